/* A walk over the lifetimes of a device's blocks: the totals after each event, and the
 * blocks that begin and end there, without a replay. */
#ifndef ML_LIFETIMES_WALK_H
#define ML_LIFETIMES_WALK_H

#include "analysis/lifetimes/lifetimes.h"

/* ROW is one of the walk's lifetimes. */
typedef void ml_lifetime_changed(void *context, const ml_lifetime *row, bool begins);

typedef struct ml_lifetimes_walk {
    const ml_lifetimes *lifetimes; /* borrowed */
    size_t position;               /* number of events passed */
    size_t change;                 /* index of the next of the changes */
    size_t reserve;                /* index of the next of reserved */
    uint32_t other;                /* moment of the next of both */
    uint64_t allocated;            /* bytes, after these events */
    uint64_t active;
    uint64_t reserved;
    /* Called for each row whose allocation begins or ends.  NULL: none. */
    ml_lifetime_changed *changed;
    void *context;
} ml_lifetimes_walk;

/* Starts before the first event. */
void ml_lifetimes_walk_begin(ml_lifetimes_walk *walk, const ml_lifetimes *lifetimes,
                             ml_lifetime_changed *changed, void *context);
/* Applies the other changes at MOMENT, beside the event's own row. */
void ml_lifetimes_walk_others(ml_lifetimes_walk *walk, uint32_t moment);

static inline void
ml_lifetimes_walk_apply(ml_lifetimes_walk *walk, const ml_lifetime *row,
                        uint32_t moment)
{
    if (row->start == moment) {
        walk->active += row->bytes;
        walk->allocated += row->bytes;
        if (walk->changed != NULL) {
            walk->changed(walk->context, row, true);
        }
    }
    if (row->requested == moment) {
        walk->allocated -= row->bytes;
        if (walk->changed != NULL) {
            walk->changed(walk->context, row, false);
        }
    }
    if (row->end == moment) {
        walk->active -= row->bytes;
    }
}

/* Takes the next event, which exists. */
static inline void
ml_lifetimes_walk_next(ml_lifetimes_walk *walk)
{
    uint32_t own = walk->lifetimes->of_event[walk->position++];
    uint32_t moment = (uint32_t)walk->position;
    if (own != 0) {
        ml_lifetimes_walk_apply(walk, &walk->lifetimes->rows[own - 1], moment);
    }
    if (moment >= walk->other) {
        ml_lifetimes_walk_others(walk, moment);
    }
}

#endif
