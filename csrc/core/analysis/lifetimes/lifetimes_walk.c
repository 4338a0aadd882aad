/* Walks over lifetimes.  See lifetimes_walk.h. */
#include "analysis/lifetimes/lifetimes_walk.h"

/* The moment of the next other change; without segments, reserved bytes change with all
 * others. */
static uint32_t
next_other(const ml_lifetimes_walk *walk)
{
    const ml_lifetimes *lifetimes = walk->lifetimes;
    uint32_t change = walk->change < lifetimes->change_count
                          ? lifetimes->changes[walk->change].moment
                          : ML_NEVER;
    uint32_t reserve = walk->reserve < lifetimes->reserved_count
                           ? lifetimes->reserved[walk->reserve].moment
                           : ML_NEVER;
    return lifetimes->reserved_count == 0 ? 0 : change < reserve ? change : reserve;
}

void
ml_lifetimes_walk_others(ml_lifetimes_walk *walk, uint32_t moment)
{
    const ml_lifetimes *lifetimes = walk->lifetimes;
    for (; walk->change < lifetimes->change_count &&
           lifetimes->changes[walk->change].moment == moment;
         walk->change++) {
        ml_lifetimes_walk_apply(
            walk, &lifetimes->rows[lifetimes->changes[walk->change].row], moment);
    }
    if (lifetimes->reserved_count == 0) {
        walk->reserved = walk->allocated;
    }
    else if (walk->reserve < lifetimes->reserved_count &&
             lifetimes->reserved[walk->reserve].moment == moment) {
        walk->reserved = lifetimes->reserved[walk->reserve++].bytes;
    }
    walk->other = next_other(walk);
}

void
ml_lifetimes_walk_begin(ml_lifetimes_walk *walk, const ml_lifetimes *lifetimes,
                        ml_lifetime_changed *changed, void *context)
{
    *walk = (ml_lifetimes_walk){
        .lifetimes = lifetimes, .changed = changed, .context = context};
    for (size_t i = 0; i < lifetimes->earlier_count; i++) {
        ml_lifetimes_walk_apply(walk, &lifetimes->rows[i], 0);
    }
    ml_lifetimes_walk_others(walk, 0);
}
