/* The last uses of a workload's demands, if recorded, and frees moved to them.
 *
 * If uses were followed in some steps only, a demand of another step gets its use from
 * demands like it, of the same stack and bytes: training repeats its steps, so that they
 * were used alike.  Of several, the one that was used longest counts. */
#include <stdlib.h>

#include "base/base.h"
#include "lab/whatif/workload.h"

/* Demands that are alike, and the most events after its birth that one was used. */
typedef struct likeness {
    uint64_t bytes;
    uint32_t stack;
    uint32_t used;
} likeness;

/* A freed demand's last use is in its free; that of a live one, in the list of live
 * blocks at the end. */
static uint64_t
recorded_use(const ml_workload *workload, const ml_demand *demand)
{
    const ml_device_trace *trace = workload->trace;
    if (demand->freed != ML_NO_EVENT) {
        return ml_device_trace_last_use(trace, demand->freed);
    }
    return ml_device_trace_last_use_live(trace, demand->addr);
}

/* Without USED. */
static int
compare_alike(const void *a, const void *b)
{
    const likeness *x = a;
    const likeness *y = b;
    if (x->stack != y->stack) {
        return x->stack < y->stack ? -1 : 1;
    }
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static bool
was_whole(const ml_demand *demand)
{
    return demand->born != ML_NO_EVENT && demand->freed != ML_NO_EVENT;
}

/* One entry for those alike, in order; returns their number. */
static size_t
find_likenesses(const ml_workload *workload, likeness *known)
{
    size_t count = 0;
    for (size_t i = 0; i < workload->count; i++) {
        const ml_demand *demand = &workload->demands[i];
        if (was_whole(demand) && demand->last_used != ML_NO_EVENT) {
            known[count++] = (likeness){.bytes = demand->bytes,
                                        .stack = demand->stack,
                                        .used = demand->last_used - demand->born};
        }
    }
    size_t kept = 0;
    if (count != 0) {
        qsort(known, count, sizeof(*known), compare_alike);
    }
    for (size_t i = 0; i < count; i++) {
        likeness *last = kept != 0 ? &known[kept - 1] : NULL;
        if (last == NULL || compare_alike(last, &known[i]) != 0) {
            known[kept++] = known[i];
        }
        else if (last->used < known[i].used) {
            last->used = known[i].used;
        }
    }
    return kept;
}

static int
infer_uses(ml_workload *workload)
{
    likeness *known = ml_alloc_zeroed(workload->count + 1, sizeof(*known));
    if (known == NULL) {
        return ML_ENOMEM;
    }
    size_t count = find_likenesses(workload, known);
    for (size_t i = 0; i < workload->count && count != 0; i++) {
        ml_demand *demand = &workload->demands[i];
        if (was_whole(demand) && demand->last_used == ML_NO_EVENT) {
            likeness alike = {.bytes = demand->bytes, .stack = demand->stack};
            const likeness *found =
                bsearch(&alike, known, count, sizeof(*known), compare_alike);
            if (found != NULL) {
                bool late = found->used < demand->freed - demand->born;
                demand->last_used = late ? demand->born + found->used : demand->freed;
            }
        }
    }
    ml_free(known);
    return 0;
}

int
ml_workload_take_uses(ml_workload *workload)
{
    for (size_t i = 0; i < workload->count; i++) {
        ml_demand *demand = &workload->demands[i];
        uint64_t last = recorded_use(workload, demand);
        /* Before its birth, another block had the address. */
        bool known =
            last != UINT64_MAX && (demand->born == ML_NO_EVENT || last > demand->born);
        demand->last_used = (uint32_t)(known ? last : ML_NO_EVENT);
    }
    return workload->trace->uses_sampled ? infer_uses(workload) : 0;
}

size_t
ml_workload_free_at_last_use(ml_workload *workload)
{
    size_t known = 0;
    for (size_t i = 0; i < workload->count; i++) {
        ml_demand *demand = &workload->demands[i];
        if (demand->last_used == ML_NO_EVENT) {
            continue;
        }
        known++;
        /* A demand live at the end may have been used after the last event. */
        if (demand->last_used < workload->trace->event_count &&
            (demand->freed == ML_NO_EVENT || demand->last_used < demand->freed)) {
            demand->freed = demand->last_used;
            demand->completed = demand->last_used;
        }
    }
    return known;
}
