/* Finds the lines of survivors, and those that leak.  See leaks.h.
 *
 * cause.h finds causes, peak_groups.h sums by line: survivors are treated as a peak. */
#include "inspect/leaks.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/answers/peak_groups.h"
#include "base/base.h"
#include "record/recorder.h"
#include "stacks/id_remap.h"

/* ---- Where the blocks came from ---- */

/* Index of BLOCK's allocation in LIST; LIST's count: not there. */
static size_t
find_event(const ml_leak_tracker *s, const ml_event_list *list,
           const ml_survivor *block)
{
    if (s->window->feed->source->ordered) {
        return block->place < list->first ? list->count
                                          : (size_t)(block->place - list->first);
    }
    size_t low;
    ML_SEARCH(low, list->count, list->items[low].time < block->place);
    while (low < list->count && list->items[low].time == block->place &&
           (list->items[low].addr != block->addr ||
            list->items[low].action != ML_ACTION_ALLOC)) {
        low++;
    }
    return low < list->count && list->items[low].time == block->place ? low
                                                                      : list->count;
}

static int
explain_by_events(ml_leak_tracker *s, ml_survivor_set *set, const ml_event_list *list)
{
    ml_device_trace trace = {.events = {.plain = list->items},
                             .event_count = list->count};
    s->known->devices = &trace;
    s->known->device_count = 1;
    ml_causes *causes = NULL;
    int result = ml_id_remap(s->known, ml_recorder_stacks(), NULL, false);
    if (result == 0) {
        result = ml_causes_new(s->known, &causes);
    }
    for (size_t i = 0; i < set->count && result == 0; i++) {
        ml_survivor *block = &set->items[i];
        size_t event = block->explained ? list->count : find_event(s, list, block);
        if (event < list->count) {
            block->cause = ml_causes_of(causes, 0, event);
        }
        else if (!block->explained) {
            /* Its event is no longer kept. */
            block->cause = ml_causes_before(causes, 0);
        }
        block->explained = true;
    }
    ml_causes_free(causes);
    s->known->devices = NULL;
    s->known->device_count = 0;
    return result;
}

static int
explain(ml_leak_tracker *s, int device)
{
    ml_survivor_set *set = &s->sets[device];
    uint64_t step = s->steps;
    for (size_t i = 0; i < set->count; i++) {
        if (!set->items[i].explained && set->items[i].step < step) {
            step = set->items[i].step;
        }
    }
    if (step == s->steps) {
        return 0;
    }
    int result = ml_leak_tracker_recall(s, device, step > 0 ? step - 1 : 0, &s->list);
    return result == 0 ? explain_by_events(s, set, &s->list) : result;
}

/* ---- Rows of steps ---- */

/* A block at the line that it is of. */
typedef struct placed {
    uint64_t step;
    uint64_t bytes;
    uint32_t line;
    uint32_t block; /* index into the peak's */
} placed;

static int
compare_placed(const void *a, const void *b)
{
    const placed *x = a;
    const placed *y = b;
    if (x->line != y->line) {
        return x->line < y->line ? -1 : 1;
    }
    return x->step > y->step ? -1 : x->step < y->step;
}

static int
compare_bytes(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* The row of the COUNT blocks of one line, newest first, that ends with the last step.
 * SUMS has room for COUNT. */
static ml_leak
measure(const ml_leak_tracker *s, const placed *blocks, size_t count, uint64_t *sums)
{
    ml_leak leak = {0};
    for (size_t i = 0; i < count; i++) {
        uint64_t age = s->steps - 1 - blocks[i].step;
        if (age > leak.steps) {
            break;
        }
        sums[age] = age == leak.steps ? blocks[i].bytes : sums[age] + blocks[i].bytes;
        leak.steps = age + 1;
        leak.line.bytes += blocks[i].bytes;
        leak.line.blocks++;
    }
    if (leak.steps >= ML_LEAK_STEPS) {
        /* The median, because a library may have made its workspace in one of them. */
        qsort(sums, (size_t)leak.steps, sizeof(*sums), compare_bytes);
        leak.per_step = sums[leak.steps / 2];
    }
    return leak;
}

static uint64_t
steps_before(const ml_leak_tracker *s, const ml_leak_row *row)
{
    for (size_t i = 0; i < s->previous_count; i++) {
        const ml_leak_row *was = &s->previous[i];
        if (was->device == row->device && was->frame == row->frame &&
            was->phase == row->phase && was->how == row->how &&
            was->no_line == row->no_line) {
            return was->steps;
        }
    }
    return 0;
}

typedef struct finding {
    ml_leak_tracker *s;
    int device;
    ml_leaks *out;
    size_t capacity;
    ml_leak_row *rows; /* owned; become the previous rows */
    size_t row_count;
    size_t row_capacity;
} finding;

/* BLOCKS are those of LINE. */
static int
judge_line(finding *f, ml_peak *peak, const placed *blocks, size_t count,
           uint64_t *sums)
{
    ml_leak leak = measure(f->s, blocks, count, sums);
    if (leak.steps < ML_LEAK_STEPS) {
        return 0;
    }
    const ml_cause *cause = &peak->blocks[blocks[0].block].cause;
    ml_leak_row row = {.steps = leak.steps,
                       .frame = cause->frame,
                       .device = f->device,
                       .phase = cause->phase,
                       .how = cause->how,
                       .no_line = cause->no_line};
    if (ml_grow((void **)&f->rows, &f->row_capacity, f->row_count + 1,
                sizeof(*f->rows)) < 0 ||
        ml_grow((void **)&f->out->items, &f->capacity, f->out->count + 1,
                sizeof(*f->out->items)) < 0) {
        return ML_ENOMEM;
    }
    f->rows[f->row_count++] = row;
    if (leak.steps <= steps_before(f->s, &row)) {
        return 0;
    }
    ml_peak_line *line = &peak->lines[blocks[0].line];
    ml_leak *told = &f->out->items[f->out->count++];
    *told = (ml_leak){
        .line = *line, .steps = leak.steps, .frame = cause->frame, .device = f->device};
    told->per_step = leak.per_step;
    told->line.bytes = leak.line.bytes;
    told->line.blocks = leak.line.blocks;
    line->module = NULL;
    return 0;
}

static int
judge_lines(finding *f, ml_peak *peak, placed *blocks, uint64_t *sums,
            const ml_survivor_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        blocks[i] = (placed){.step = set->items[i].step,
                             .bytes = set->items[i].bytes,
                             .line = peak->blocks[i].line,
                             .block = (uint32_t)i};
    }
    qsort(blocks, set->count, sizeof(*blocks), compare_placed);
    int result = 0;
    size_t first = 0;
    for (size_t i = 1; i <= set->count && result == 0; i++) {
        if (i == set->count || blocks[i].line != blocks[first].line) {
            result = judge_line(f, peak, &blocks[first], i - first, sums);
            first = i;
        }
    }
    return result;
}

static int
judge_device(finding *f, const ml_survivor_set *set)
{
    ml_peak *peak = ml_alloc_zeroed(1, sizeof(*peak));
    placed *blocks = ml_alloc_zeroed(set->count, sizeof(*blocks));
    uint64_t *sums = ml_alloc_zeroed(set->count, sizeof(*sums));
    ml_peak_block *all = ml_alloc_zeroed(set->count, sizeof(*all));
    bool room = peak != NULL && blocks != NULL && sums != NULL && all != NULL;
    int result = room ? 0 : ML_ENOMEM;
    if (peak != NULL) {
        peak->blocks = all;
        peak->block_count = all != NULL ? set->count : 0;
    }
    for (size_t i = 0; i < set->count && result == 0; i++) {
        all[i] = (ml_peak_block){.size = set->items[i].bytes,
                                 .cause = set->items[i].cause,
                                 .verdict = {.category = ML_CATEGORY_UNKNOWN}};
    }
    if (result == 0) {
        result = ml_peak_group(peak, f->s->known);
    }
    if (result == 0) {
        result = judge_lines(f, peak, blocks, sums, set);
    }
    ml_free(blocks);
    ml_free(sums);
    if (peak == NULL) {
        ml_free(all);
    }
    ml_peak_free(peak);
    return result;
}

static int
compare_leaks(const void *a, const void *b)
{
    const ml_leak *x = a;
    const ml_leak *y = b;
    if (x->line.bytes != y->line.bytes) {
        return x->line.bytes > y->line.bytes ? -1 : 1;
    }
    if (x->line.line != y->line.line) {
        return x->line.line < y->line.line ? -1 : 1;
    }
    return x->device < y->device ? -1 : x->device > y->device;
}

static int
find_leaks(ml_leak_tracker *s, ml_leaks *out)
{
    finding f = {.s = s, .out = out};
    int result = 0;
    for (int i = 0; i < ML_DEVICE_MAX && result == 0; i++) {
        if (s->sets[i].step_count < ML_LEAK_STEPS) {
            continue;
        }
        f.device = i;
        result = explain(s, i);
        if (result == 0) {
            result = judge_device(&f, &s->sets[i]);
        }
    }
    ml_free(s->previous);
    s->previous = f.rows;
    s->previous_count = f.row_count;
    s->previous_capacity = f.row_capacity;
    if (out->count > 1) {
        qsort(out->items, out->count, sizeof(ml_leak), compare_leaks);
    }
    return result;
}

/* ---- Steps ---- */

static int
step_locked(ml_leak_tracker *s, ml_leaks *out)
{
    if (!ml_window_begun(s->window)) {
        return 0;
    }
    int result = ml_leak_tracker_follow(s, &out->lost);
    return result < 0 || out->lost ? result : find_leaks(s, out);
}

int
ml_leaks_step(ml_leak_tracker *s, ml_leaks *out)
{
    *out = (ml_leaks){0};
    if (s->window->forked) {
        return ml_recorder_fail(ML_ESTATE, "a forked child has no part in its parent's "
                                           "recording");
    }
    ml_recorder_lock();
    int result = step_locked(s, out);
    ml_recorder_unlock();
    if (result < 0) {
        ml_leaks_fini(out);
        return ml_recorder_fail(result, "%s", ml_strerror(result));
    }
    return 0;
}

void
ml_leaks_fini(ml_leaks *leaks)
{
    for (size_t i = 0; i < leaks->count; i++) {
        ml_free(leaks->items[i].line.module);
    }
    ml_free(leaks->items);
    *leaks = (ml_leaks){0};
}
