/* Finds whether memory grew step by step.  See oom_growth.h. */
#include "analysis/answers/oom_growth.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Fewer rises in a row could be chance, or optimizer state that the first step makes. */
#define FEWEST_RISES 3
/* Growth that began earlier does not matter. */
#define MOST_STEPS 64
/* A smaller share of live memory did not cause the failure. */
#define LEAST_PART 20

void
ml_oom_steps_init(ml_oom_steps *steps, const ml_recording *recording, size_t device)
{
    memset(steps, 0, sizeof(*steps));
    steps->recording = recording;
    steps->device = device;
    steps->current.bytes = UINT64_MAX;
    for (size_t i = 0; i < recording->note_count && !steps->marked; i++) {
        steps->marked = recording->notes[i].kind == ML_NOTE_STEP;
    }
}

void
ml_oom_steps_fini(ml_oom_steps *steps)
{
    ml_free(steps->floors);
}

static int
end_step(ml_oom_steps *steps)
{
    if (steps->begun && steps->current.bytes != UINT64_MAX) {
        void *floors = steps->floors;
        int error =
            ml_grow(&floors, &steps->capacity, steps->count + 1, sizeof(ml_oom_floor));
        if (error < 0) {
            return error;
        }
        steps->floors = floors;
        steps->floors[steps->count++] = steps->current;
    }
    steps->begun = true;
    steps->current.bytes = UINT64_MAX;
    return 0;
}

/* Whether a step ended before EVENT. */
static bool
step_ended(ml_oom_steps *steps, const ml_event *event)
{
    bool ended = false;
    if (steps->marked) {
        const ml_recording *recording = steps->recording;
        for (; steps->next_note < recording->note_count &&
               recording->notes[steps->next_note].time <= event->time;
             steps->next_note++) {
            ended = ended || recording->notes[steps->next_note].kind == ML_NOTE_STEP;
        }
    }
    else if (event->flags & ML_EVENT_BACKWARD) {
        ended = !steps->inside;
        steps->inside = true;
    }
    else if (event->action == ML_ACTION_ALLOC) {
        steps->inside = false;
    }
    return ended;
}

int
ml_oom_steps_add(ml_oom_steps *steps, const ml_event *event, uint64_t position,
                 uint64_t allocated)
{
    if (step_ended(steps, event)) {
        int error = end_step(steps);
        if (error < 0) {
            return error;
        }
    }
    if (allocated < steps->current.bytes) {
        steps->current = (ml_oom_floor){allocated, position};
    }
    return 0;
}

/* ---- Which lines grew ---- */

static int
compare_places(const ml_peak_line *a, const ml_peak_line *b)
{
    if (a->line != b->line) {
        return a->line < b->line ? -1 : 1;
    }
    int order = ml_string_compare(a->file, b->file);
    return order != 0 ? order : ml_string_compare(a->function, b->function);
}

static int
compare_pointers(const void *a, const void *b)
{
    const ml_peak_line *const *x = a;
    const ml_peak_line *const *y = b;
    return compare_places(*x, *y);
}

/* A moment's lines by place; one place may be in several, of different phases. */
typedef struct places {
    const ml_peak_line **lines; /* owned */
    size_t count;
    size_t at; /* index of the next place */
} places;

static int
sort_places(const ml_peak *peak, places *out)
{
    out->lines = ml_alloc_zeroed(peak->line_count + 1, sizeof(*out->lines));
    if (out->lines == NULL) {
        return ML_ENOMEM;
    }
    out->count = peak->line_count;
    for (size_t i = 0; i < out->count; i++) {
        out->lines[i] = &peak->lines[i];
    }
    qsort(out->lines, out->count, sizeof(*out->lines), compare_pointers);
    return 0;
}

/* The bytes of PLACE; earlier places of OF are not asked for again. */
static uint64_t
take_place(places *of, const ml_peak_line *place)
{
    uint64_t bytes = 0;
    for (; of->at < of->count; of->at++) {
        int order = compare_places(of->lines[of->at], place);
        if (order > 0) {
            break;
        }
        bytes += order == 0 ? of->lines[of->at]->bytes : 0;
    }
    return bytes;
}

static void
insert_line(ml_oom_growth *growth, const ml_oom_growing *line)
{
    size_t at = growth->line_count;
    while (at > 0 && growth->lines[at - 1].after - growth->lines[at - 1].before <
                         line->after - line->before) {
        at--;
    }
    if (at == ML_OOM_HOLES) {
        return;
    }
    size_t kept = growth->line_count < ML_OOM_HOLES ? growth->line_count
                                                    : (size_t)ML_OOM_HOLES - 1;
    memmove(&growth->lines[at + 1], &growth->lines[at],
            (kept - at) * sizeof(growth->lines[0]));
    growth->lines[at] = *line;
    growth->line_count = kept + 1;
}

static void
compare_lines(places *before, places *after, ml_oom_growth *growth)
{
    while (after->at < after->count) {
        const ml_peak_line *line = after->lines[after->at];
        ml_oom_growing grown = {.file = line->file,
                                .function = line->function,
                                .line = line->line,
                                .before = take_place(before, line),
                                .after = take_place(after, line)};
        if (line->no_line == ML_NO_LINE_NONE && grown.after > grown.before) {
            insert_line(growth, &grown);
        }
    }
}

static int
find_lines(const ml_oom_steps *steps, const ml_oom_floor *first,
           const ml_oom_floor *last, ml_oom_growth *growth)
{
    ml_peak *before = NULL;
    ml_peak *after = NULL;
    places old = {0};
    places now = {0};
    int error =
        ml_peak_new_at(steps->recording, steps->device, first->position, &before);
    if (error == 0) {
        error = ml_peak_new_at(steps->recording, steps->device, last->position, &after);
    }
    if (error == 0) {
        error = sort_places(before, &old);
    }
    if (error == 0) {
        error = sort_places(after, &now);
    }
    if (error == 0) {
        compare_lines(&old, &now, growth);
    }
    ml_free(old.lines);
    ml_free(now.lines);
    ml_peak_free(before);
    ml_peak_free(after);
    return error;
}

int
ml_oom_steps_judge(const ml_oom_steps *steps, uint64_t allocated, ml_oom_growth *out)
{
    ml_oom_growth growth = {.marked = steps->marked};
    size_t last = steps->count;
    size_t first = last;
    while (first > 0 && last - first < MOST_STEPS &&
           (first == last ||
            steps->floors[first - 1].bytes < steps->floors[first].bytes)) {
        first--;
    }
    int error = 0;
    if (last - first > FEWEST_RISES) {
        const ml_oom_floor *low = &steps->floors[first];
        const ml_oom_floor *high = &steps->floors[last - 1];
        if (high->bytes - low->bytes >= allocated / LEAST_PART) {
            growth.steps = last - first - 1;
            growth.first = low->bytes;
            growth.last = high->bytes;
            error = find_lines(steps, low, high, &growth);
        }
    }
    if (error == 0) {
        *out = growth;
    }
    return error;
}
