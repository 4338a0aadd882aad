/* The last uses of a workload's demands, if recorded, and frees moved to them. */
#include "lab/whatif/workload.h"

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

void
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
