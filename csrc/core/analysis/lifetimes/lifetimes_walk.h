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
/* Takes the next event, which exists. */
void ml_lifetimes_walk_next(ml_lifetimes_walk *walk);

#endif
