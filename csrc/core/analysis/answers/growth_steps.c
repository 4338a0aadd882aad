/* Finds the ends of a training's steps.  See growth_steps.h. */
#include "analysis/answers/growth_steps.h"

#include <string.h>

#include "base/base.h"

static int
end_step(ml_growth_steps *steps, size_t moment)
{
    void *moments = steps->moments;
    if (ml_grow(&moments, &steps->capacity, steps->count + 1, sizeof(uint32_t)) < 0) {
        return ML_ENOMEM;
    }
    steps->moments = moments;
    steps->moments[steps->count++] = (uint32_t)moment;
    return 0;
}

static int
by_notes(const ml_analysis *a, ml_growth_steps *steps)
{
    const ml_recording *recording = a->recording;
    size_t count = 0;
    for (size_t i = 0; i < recording->note_count; i++) {
        count += recording->notes[i].kind == ML_NOTE_STEP;
    }
    if (count == 0) {
        return 0;
    }
    steps->by = ML_GROWTH_BY_NOTES;
    steps->numbers = ml_alloc_zeroed(count, sizeof(uint64_t));
    int error = steps->numbers == NULL ? ML_ENOMEM : 0;
    for (size_t i = 0; error == 0 && i < recording->note_count; i++) {
        const ml_note *note = &recording->notes[i];
        if (note->kind == ML_NOTE_STEP) {
            steps->numbers[steps->count] = note->values[0];
            error = end_step(steps, ml_device_trace_until(a->trace, note->time));
        }
    }
    return error;
}

/* A pass ends with its last event before something else allocates. */
static int
by_passes(const ml_analysis *a, ml_growth_steps *steps)
{
    const uint8_t *marks = ml_causes_marks(a->causes, a->device);
    size_t end = 0;
    int error = 0;
    for (size_t i = 0; error == 0 && i < a->trace->event_count; i++) {
        if ((marks[i] & ML_MARK_BACKWARD) != 0) {
            end = i + 1;
        }
        else if (end != 0 && (marks[i] & ML_MARK_ALLOC) != 0) {
            error = end_step(steps, end);
            end = 0;
        }
    }
    return error == 0 && end != 0 ? end_step(steps, end) : error;
}

/* If the recording does not mark a pass's events, the pass begins with a gradient made
 * by backward(). */
static int
by_seeds(const ml_analysis *a, ml_growth_steps *steps)
{
    const ml_stack_fact *facts = ml_causes_facts(a->causes)->of;
    int error = 0;
    for (size_t i = 0; error == 0 && i < a->trace->event_count; i++) {
        if (ml_events_action(&a->trace->events, i) == ML_ACTION_ALLOC &&
            facts[ml_events_stack(&a->trace->events, i)].seed) {
            error = end_step(steps, i);
        }
    }
    return error;
}

/* Whether EVENT, number INDEX, is a call's own allocation: a library's workspace is made once, by
 * the stack of a result. */
static bool
is_call(const ml_analysis *a, const ml_event *event, size_t index)
{
    return event->action == ML_ACTION_ALLOC &&
           (event->flags & ML_EVENT_BACKWARD) == 0 &&
           ml_causes_facts(a->causes)->of[event->stack].scope == ML_SCOPE_MODULE &&
           !ml_categories_like_workspace(
               a->categories,
               &a->lifetimes.rows[ml_lifetimes_row(&a->lifetimes, index)]);
}

/* Of this many repeated stacks, a stack that marks a call is not among the rarest. */
#define RAREST 16

/* The least repetition that a fair part of COUNT stacks has, of those that are
 * repeated: in torch's snapshots, the layers of a net may have the same stacks.  0:
 * there is one call, as most stacks are not repeated; a loop over layers repeats some. */
static int
find_usual(const uint32_t *times, size_t count, uint32_t *out)
{
    uint32_t most = 0;
    for (size_t i = 0; i < count; i++) {
        most = times[i] > most ? times[i] : most;
    }
    uint32_t *stacks = ml_alloc_zeroed((size_t)most + 1, sizeof(*stacks));
    if (stacks == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        stacks[times[i]]++;
    }
    uint64_t all = 0;
    for (uint32_t i = 2; i <= most; i++) {
        all += stacks[i];
    }
    *out = 0;
    bool one_call = most == 0 || stacks[1] > all;
    for (uint32_t i = 2; i <= most && *out == 0 && !one_call; i++) {
        if (stacks[i] != 0 && (uint64_t)stacks[i] * RAREST >= all) {
            *out = i;
        }
    }
    ml_free(stacks);
    return 0;
}

/* A call allocates from the same stacks each time, with few exceptions: a stack that
 * appears once per call marks calls. */
static int
by_calls(const ml_analysis *a, ml_growth_steps *steps)
{
    size_t stack_count = a->recording->stack_count;
    uint32_t *times = ml_alloc_zeroed(stack_count + 1, sizeof(*times));
    if (times == NULL) {
        return ML_ENOMEM;
    }
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &a->trace->events,
                         ML_EVENT_BIT(action) | ML_EVENT_BIT(flags) |
                             ML_EVENT_BIT(stack));
    for (size_t i = 0; i < a->trace->event_count; i++) {
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        times[event->stack] += is_call(a, event, i);
    }
    uint32_t usual = 0;
    uint32_t marking = 0;
    bool begun = false;
    int error = find_usual(times, stack_count, &usual);
    for (size_t i = 0; error == 0 && usual != 0 && i < a->trace->event_count; i++) {
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        if (!is_call(a, event, i) || times[event->stack] != usual) {
            continue;
        }
        if (!begun) {
            begun = true;
            marking = event->stack;
        }
        else if (event->stack == marking) {
            error = end_step(steps, i);
        }
    }
    ml_free(times);
    return error;
}

int
ml_growth_steps_find(const ml_analysis *analysis, ml_growth_steps *steps)
{
    memset(steps, 0, sizeof(*steps));
    int error = by_notes(analysis, steps);
    if (error == 0 && steps->count == 0) {
        /* Signs may tear one pass apart; seeds do not. */
        bool by_signs = ml_causes_signs(analysis->causes)->of != NULL;
        bool known = ml_causes_know_passes(analysis->causes);
        steps->by = ML_GROWTH_BY_PASSES;
        error = known && !by_signs ? 0 : by_seeds(analysis, steps);
        if (error == 0 && known && steps->count == 0) {
            error = by_passes(analysis, steps);
        }
    }
    if (error == 0 && steps->count == 0) {
        steps->by = ML_GROWTH_BY_CALLS;
        error = by_calls(analysis, steps);
    }
    if (error == 0 && steps->count == 0) {
        steps->by = ML_GROWTH_BY_NOTHING;
    }
    return error;
}

void
ml_growth_steps_fini(ml_growth_steps *steps)
{
    ml_free(steps->moments);
    ml_free(steps->numbers);
}
