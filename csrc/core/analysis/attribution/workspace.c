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
    *of = (ml_workspaces){.recording = recording,
                          .lifetimes = lifetimes,
                          .facts = ml_causes_facts(causes)};
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

/* Index + 1 of the last allocation or free before event INDEX; 0: none.  A cache that grows
 * or shrinks lies between an operation's allocations. */
static size_t
block_before(const ml_events *events, size_t index)
{
    while (index > 0) {
        uint8_t action = ml_events_action(events, index - 1);
        if (action == ML_ACTION_ALLOC || ml_action_frees_block(action)) {
            return index;
        }
        index--;
    }
    return 0;
}

/* Whether the Python code of these stacks is at one line; frames of C++ may differ. */
static bool
is_one_line(const ml_workspaces *of, uint32_t stack, uint32_t other)
{
    ml_standing line = of->facts->of[stack].inner;
    const ml_frame *a = &of->recording->frames[line.frame];
    const ml_frame *b = &of->recording->frames[of->facts->of[other].inner.frame];
    return stack == other || (line.place < ML_PLACE_NATIVE && a->line == b->line &&
                              a->filename == b->filename);
}

bool
ml_workspaces_of_product(const ml_workspaces *of, const ml_lifetime *life)
{
    const ml_events *events = &of->lifetimes->trace->events;
    if (life->birth == 0 || life->requested != life->birth + 1) {
        return false;
    }
    size_t own = life->birth - 1;
    size_t before = block_before(events, own);
    if (!ml_workspace_has_size(ml_events_size(events, own)) || before == 0 ||
        ml_events_action(events, before - 1) != ML_ACTION_ALLOC) {
        return false;
    }
    ml_event made = ml_events_at(events, own);
    ml_event result = ml_events_at(events, before - 1);
    size_t row = ml_lifetimes_row(of->lifetimes, before - 1);
    return is_one_line(of, made.stack, result.stack) && made.stream == result.stream &&
           made.autograd_thread == result.autograd_thread &&
           made.sequence == result.sequence &&
           of->lifetimes->rows[row].requested > life->requested;
}
