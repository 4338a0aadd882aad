/* Walks over lifetimes.  See lifetimes_walk.h. */
#include "analysis/lifetimes/lifetimes_walk.h"

static void
apply(ml_lifetimes_walk *walk, const ml_lifetime *row, uint32_t moment)
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

/* Applies the other changes at MOMENT, beside the event's own row. */
static void
apply_others(ml_lifetimes_walk *walk, uint32_t moment)
{
    const ml_lifetimes *lifetimes = walk->lifetimes;
    for (; walk->change < lifetimes->change_count &&
           lifetimes->changes[walk->change].moment == moment;
         walk->change++) {
        apply(walk, &lifetimes->rows[lifetimes->changes[walk->change].row], moment);
    }
    if (lifetimes->reserved_count == 0) {
        walk->reserved = walk->allocated;
    }
    else if (walk->reserve < lifetimes->reserved_count &&
             lifetimes->reserved[walk->reserve].moment == moment) {
        walk->reserved = lifetimes->reserved[walk->reserve++].bytes;
    }
}

void
ml_lifetimes_walk_begin(ml_lifetimes_walk *walk, const ml_lifetimes *lifetimes,
                        ml_lifetime_changed *changed, void *context)
{
    *walk = (ml_lifetimes_walk){
        .lifetimes = lifetimes, .changed = changed, .context = context};
    for (size_t i = 0; i < lifetimes->earlier_count; i++) {
        apply(walk, &lifetimes->rows[i], 0);
    }
    apply_others(walk, 0);
}

void
ml_lifetimes_walk_next(ml_lifetimes_walk *walk)
{
    uint32_t own = walk->lifetimes->of_event[walk->position++];
    uint32_t moment = (uint32_t)walk->position;
    if (own != 0) {
        apply(walk, &walk->lifetimes->rows[own - 1], moment);
    }
    apply_others(walk, moment);
}
