/* Finds the workspaces that their size alone does not tell.  See workspace.h. */
#include "analysis/attribution/workspace.h"

#include "base/base.h"

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

static bool
knows_stream(const ml_workspaces *of, uint64_t stream)
{
    for (size_t i = 0; i < of->count; i++) {
        if (of->list[i].stream == stream) {
            return true;
        }
    }
    return false;
}

int
ml_workspaces_init(ml_workspaces *of, const ml_causes *causes,
                   const ml_recording *recording, size_t device,
                   const ml_lifetimes *lifetimes)
{
    const ml_device_trace *trace = lifetimes->trace;
    const uint8_t *marks = ml_causes_marks(causes, device);
    int error = 0;
    *of = (ml_workspaces){.recording = recording, .lifetimes = lifetimes};
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events,
                         ML_EVENT_BIT(size) | ML_EVENT_BIT(stream));
    for (size_t i = 0; i < trace->event_count && error == 0; i++) {
        if ((marks[i] & ML_MARK_ALLOC) == 0 ||
            (marks[i] & ML_MARK_PHASE) != ML_PHASE_FORWARD) {
            continue;
        }
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        if (event->size != ML_WORKSPACE_LIGHT || !stays(lifetimes, i) ||
            knows_stream(of, event->stream)) {
            continue;
        }
        void *list = of->list;
        error = ml_grow(&list, &of->capacity, of->count + 1, sizeof(*of->list));
        if (error == 0) {
            of->list = list;
            of->list[of->count++] =
                (ml_light_workspace){.stream = event->stream, .event = i};
        }
    }
    return error;
}

void
ml_workspaces_fini(ml_workspaces *of)
{
    ml_free(of->list);
    *of = (ml_workspaces){0};
}

static bool
is_light(const ml_workspaces *of, const ml_lifetime *life)
{
    size_t own = life->birth - 1;
    if (!stays(of->lifetimes, own)) {
        return false;
    }
    uint64_t stream = ml_events_stream(&of->lifetimes->trace->events, own);
    for (size_t i = 0; i < of->count; i++) {
        if (of->list[i].stream == stream && of->list[i].event < own) {
            return false;
        }
    }
    return true;
}

static bool
is_generators(const ml_workspaces *of, const ml_lifetime *life)
{
    const ml_recording *recording = of->recording;
    const ml_events *events = &of->lifetimes->trace->events;
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

bool
ml_workspaces_hold(const ml_workspaces *of, const ml_lifetime *life)
{
    return is_light(of, life) || is_generators(of, life);
}
