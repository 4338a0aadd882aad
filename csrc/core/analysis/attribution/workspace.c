/* Finds the workspaces that their size alone does not tell.  See workspace.h. */
#include "analysis/attribution/workspace.h"

/* Whether allocation INDEX has the size, nobody owns it, and it is never freed. */
static bool
stays(const ml_lifetimes *lifetimes, size_t index)
{
    const ml_events *events = &lifetimes->trace->events;
    if (ml_events_size(events, index) != ML_WORKSPACE_LIGHT ||
        ml_events_action(events, index) != ML_ACTION_ALLOC) {
        return false;
    }
    const ml_lifetime *row = &lifetimes->rows[ml_lifetimes_row(lifetimes, index)];
    return row->tag == ML_CATEGORY_COUNT &&
           ml_lifetime_last(lifetimes, row)->requested == ML_NEVER;
}

bool
ml_workspace_is_light(const ml_causes *causes, size_t device,
                      const ml_lifetimes *lifetimes, const ml_lifetime *life)
{
    const ml_events *events = &lifetimes->trace->events;
    size_t own = life->birth - 1;
    if (!stays(lifetimes, own)) {
        return false;
    }
    for (size_t i = 0; i < own; i++) {
        if (stays(lifetimes, i) &&
            ml_events_stream(events, i) == ml_events_stream(events, own) &&
            ml_causes_phase(causes, device, i) == ML_PHASE_FORWARD) {
            return false;
        }
    }
    return true;
}

bool
ml_workspace_is_generators(const ml_recording *recording, const ml_events *events,
                           const ml_lifetime *life)
{
    size_t own = life->birth - 1;
    uint64_t bytes = ml_events_size(events, own);
    uint32_t stack = ml_events_stack(events, own);
    if (life->requested != ML_NEVER || bytes == 0 ||
        bytes % ML_WORKSPACE_GENERATORS != 0 || stack == 0) {
        return false;
    }
    const ml_frame *inner = &recording->frames[recording->stacks[stack].frame];
    ml_string file = recording->strings[inner->filename];
    return ml_string_holds(file, "torch/nn/modules/rnn.py");
}
