/* Keeps line tables.  See lines.h. */
#include "inspect/lines.h"

#include <string.h>

#include "base/base.h"
#include "record/recorder.h"

struct ml_lines_function {
    ml_lines_function *next;
    uint32_t first_line;
    ml_line_row **rows; /* owned, each allocated separately; by line */
    size_t row_count;
    size_t row_capacity;
};

/* Changes between two moments. */
typedef struct run {
    ml_meter_stats figures;
    ml_meter_stat_set moved;
    bool any;
} run;

/* A call in progress. */
typedef struct call {
    ml_lines_function *function;
    ml_line_row *row; /* the current line; NULL: its changes are not kept */
    int64_t start;    /* allocated bytes when it began */
    /* Changes by callees that are profiled, in this line; and all changes of this call,
     * if a profiled function made it. */
    run inner, whole;
    bool begins; /* no line has been reached yet */
} call;

typedef struct thread_calls {
    uint64_t thread;
    call *calls; /* owned */
    size_t depth;
    size_t capacity;
    uint32_t number; /* the thread's number in events */
    /* The interval of this thread; NULL between calls and without a device. */
    ml_meter *meter;
    int interval;
    run now;                     /* the last interval; settled once it is reported */
    ml_source_counters counters; /* at its end */
} thread_calls;

struct ml_lines {
    ml_lines_function *functions; /* owned */
    thread_calls **threads;       /* owned, each allocated separately */
    size_t thread_count;
    size_t thread_capacity;
    thread_calls *last; /* the thread of the previous event */
    const ml_source *source;
    int device;
    uint64_t lost;
};

/* ---- Figures ---- */

static uint64_t
larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Appends LATER to SUM as one run. */
static void
append_run(run *sum, const run *later)
{
    if (!sum->any) {
        *sum = *later;
        sum->any = true;
        return;
    }
    for (ml_meter_stat_set rest = later->moved; rest != 0; rest &= rest - 1) {
        int i = __builtin_ctzll(rest);
        sum->figures.current[i] = later->figures.current[i];
        sum->figures.peak[i] = larger(sum->figures.peak[i], later->figures.peak[i]);
        sum->figures.allocated[i] += later->figures.allocated[i];
        sum->figures.freed[i] += later->figures.freed[i];
    }
    for (int i = 0; i < ML_SOURCE_COUNTER_MAX; i++) {
        sum->figures.counted[i] += later->figures.counted[i];
    }
    sum->moved |= later->moved;
}

static void
raise_row(ml_line_row *row, const run *seen)
{
    const ml_meter_stats *figures = &seen->figures;
    ml_meter_stats *most = &row->most;
    for (int i = 0; i < ML_METER_STAT_COUNT; i++) {
        most->current[i] = larger(most->current[i], figures->current[i]);
        most->peak[i] = larger(most->peak[i], figures->peak[i]);
    }
    for (ml_meter_stat_set rest = seen->moved; rest != 0; rest &= rest - 1) {
        int i = __builtin_ctzll(rest);
        most->allocated[i] = larger(most->allocated[i], figures->allocated[i]);
        most->freed[i] = larger(most->freed[i], figures->freed[i]);
    }
    for (int i = 0; i < ML_SOURCE_COUNTER_MAX; i++) {
        most->counted[i] = larger(most->counted[i], figures->counted[i]);
    }
}

/* ---- Rows ---- */

/* The index of LINE among the rows, or its insertion point. */
static size_t
place_of(const ml_lines_function *function, uint32_t line)
{
    size_t low;
    ML_SEARCH(low, function->row_count, function->rows[low]->line < line);
    return low;
}

static ml_line_row *
row_of(ml_lines_function *function, uint32_t line)
{
    size_t place = place_of(function, line);
    if (place < function->row_count && function->rows[place]->line == line) {
        return function->rows[place];
    }
    ml_line_row *row = ml_alloc_zeroed(1, sizeof(*row));
    if (row == NULL || ml_grow((void **)&function->rows, &function->row_capacity,
                               function->row_count + 1, sizeof(*function->rows)) < 0) {
        ml_free(row);
        return NULL;
    }
    row->line = line;
    row->seen = UINT64_MAX;
    memmove(&function->rows[place + 1], &function->rows[place],
            (function->row_count - place) * sizeof(*function->rows));
    function->rows[place] = row;
    function->row_count++;
    return row;
}

static ml_line_row *
run_line(ml_lines *lines, ml_lines_function *function, uint32_t line)
{
    ml_line_row *row = row_of(function, line);
    lines->lost += row == NULL;
    return row;
}

/* ---- Intervals ---- */

static void
end_lap(thread_calls *calls)
{
    if (calls->meter != NULL) {
        ml_meter_end_interval(calls->meter, calls->interval);
        calls->meter = NULL;
    }
}

/* Sets calls->now to the rise of the allocator's own counters; returns whether any
 * rose.  Without a device they are 0. */
static bool
take_counters(const ml_lines *lines, thread_calls *calls)
{
    const ml_source *source = lines->source;
    if (source->counters == NULL) {
        return false;
    }
    ml_source_counters now;
    if (source->counters(source->self, lines->device, &now) < 0) {
        memset(&now, 0, sizeof(now));
    }
    uint64_t rose = 0;
    for (int i = 0; i < ML_SOURCE_COUNTER_MAX; i++) {
        uint64_t before = calls->counters.of[i];
        /* The program may have reset them. */
        uint64_t by = now.of[i] < before ? now.of[i] : now.of[i] - before;
        calls->now.figures.counted[i] = by;
        rose |= by;
    }
    calls->counters = now;
    return rose != 0;
}

/* The target's current state, without any change. */
static void
start_lap(ml_lines *lines, thread_calls *calls)
{
    end_lap(calls);
    memset(&calls->now, 0, sizeof(calls->now));
    ml_meter *meter =
        lines->source != NULL ? ml_recorder_meter(lines->source, lines->device) : NULL;
    if (meter == NULL) {
        return;
    }
    calls->interval =
        ml_meter_begin_interval(meter, calls->number, &calls->now.figures);
    if (calls->interval < 0) {
        lines->lost++;
        return;
    }
    calls->meter = meter;
    take_counters(lines, calls);
    memset(calls->now.figures.counted, 0, sizeof(calls->now.figures.counted));
}

static int64_t
allocated_now(const thread_calls *calls)
{
    return (int64_t)calls->now.figures
        .current[ml_meter_stat(ML_METER_STAT_ALL, ML_POOL_STAT_allocated_bytes)];
}

/* An interval begins during calls: earlier changes of their lines do not count. */
static void
start_lap_amid(ml_lines *lines, thread_calls *calls)
{
    start_lap(lines, calls);
    for (size_t i = 0; i < calls->depth; i++) {
        calls->calls[i].inner.any = false;
        calls->calls[i].whole.any = false;
        calls->calls[i].start = allocated_now(calls);
    }
}

/* Whether anything changed since the last time; calls->now has the change. */
static bool
next_lap(ml_lines *lines, thread_calls *calls)
{
    if (calls->meter == NULL) {
        start_lap_amid(lines, calls);
        return false;
    }
    bool counted = take_counters(lines, calls);
    calls->now.moved =
        ml_meter_next_interval(calls->meter, calls->interval, &calls->now.figures);
    return counted || calls->now.moved != 0;
}

/* The change has been reported. */
static void
forget_change(thread_calls *calls)
{
    ml_meter_stats_settle(&calls->now.figures, calls->now.moved);
    memset(calls->now.figures.counted, 0, sizeof(calls->now.figures.counted));
    calls->now.moved = 0;
}

/* ---- Calls ---- */

static thread_calls *
calls_of(ml_lines *lines, uint64_t thread)
{
    if (lines->last != NULL && lines->last->thread == thread) {
        return lines->last;
    }
    for (size_t i = 0; i < lines->thread_count; i++) {
        if (lines->threads[i]->thread == thread) {
            lines->last = lines->threads[i];
            return lines->last;
        }
    }
    /* A thread without calls here, which may have ended, keeps nothing. */
    for (size_t i = 0; i < lines->thread_count; i++) {
        if (lines->threads[i]->depth == 0) {
            lines->last = lines->threads[i];
            lines->last->thread = thread;
            return lines->last;
        }
    }
    thread_calls *calls = ml_alloc_zeroed(1, sizeof(*calls));
    if (calls == NULL ||
        ml_grow((void **)&lines->threads, &lines->thread_capacity,
                lines->thread_count + 1, sizeof(*lines->threads)) < 0) {
        ml_free(calls);
        return NULL;
    }
    calls->thread = thread;
    lines->threads[lines->thread_count++] = calls;
    lines->last = calls;
    return calls;
}

/* PART happened in a profiled callee of the call on top. */
static void
append_to_caller(thread_calls *calls, const run *part)
{
    call *top = &calls->calls[calls->depth - 1];
    append_run(&top->inner, part);
    if (calls->depth > 1) {
        append_run(&top->whole, part);
    }
}

/* The line of the call on top ends. */
static void
end_line(ml_lines *lines, thread_calls *calls)
{
    call *top = &calls->calls[calls->depth - 1];
    ml_line_row *row = top->row;
    /* Read before the interval ends: the row may miss later changes. */
    uint64_t events = calls->meter != NULL ? ml_meter_events(calls->meter) : 0;
    bool moved = next_lap(lines, calls);
    if (row != NULL && (moved || top->inner.any || row->seen != events)) {
        if (top->inner.any) {
            append_run(&top->inner, &calls->now);
        }
        raise_row(row, top->inner.any ? &top->inner : &calls->now);
        row->delta += allocated_now(calls) - top->start;
        row->seen = events;
    }
    if (moved) {
        if (calls->depth > 1) {
            append_run(&top->whole, &calls->now);
        }
        forget_change(calls);
    }
    top->inner.any = false;
    top->start = allocated_now(calls);
}

/* The call on top ends or is suspended. */
static void
end_call(ml_lines *lines, thread_calls *calls)
{
    end_line(lines, calls);
    const call *ended = &calls->calls[--calls->depth];
    if (calls->depth == 0) {
        end_lap(calls);
    }
    else if (ended->whole.any) {
        append_to_caller(calls, &ended->whole);
    }
}

/* Whether a call of FUNCTION is in progress, which is then on top.  Calls above it were
 * left without notice, as when a greenlet switches inside them. */
static bool
find_call(ml_lines *lines, thread_calls *calls, const ml_lines_function *function)
{
    size_t place = calls->depth;
    while (place > 0 && calls->calls[place - 1].function != function) {
        place--;
    }
    while (place > 0 && calls->depth > place) {
        end_call(lines, calls);
    }
    return place > 0;
}

void
ml_lines_enter(ml_lines *lines, ml_lines_function *function, uint64_t thread,
               bool resumed, uint32_t line)
{
    thread_calls *calls = calls_of(lines, thread);
    if (calls == NULL || ml_grow((void **)&calls->calls, &calls->capacity,
                                 calls->depth + 1, sizeof(*calls->calls)) < 0) {
        lines->lost++;
        return;
    }
    if (calls->depth == 0) {
        calls->number = ml_recorder_thread();
        start_lap(lines, calls);
    }
    else if (next_lap(lines, calls)) {
        /* Up to here it was the caller's line. */
        append_to_caller(calls, &calls->now);
        forget_change(calls);
    }
    call *top = &calls->calls[calls->depth++];
    top->function = function;
    top->row = run_line(lines, function, resumed ? line : function->first_line);
    top->begins = !resumed;
    top->start = allocated_now(calls);
    top->inner.any = false;
    top->whole.any = false;
    if (top->row != NULL && !resumed) {
        top->row->calls++;
    }
}

void
ml_lines_reach(ml_lines *lines, ml_lines_function *function, uint64_t thread,
               uint32_t line)
{
    thread_calls *calls = calls_of(lines, thread);
    if (calls == NULL) {
        lines->lost++;
        return;
    }
    if (!find_call(lines, calls, function)) {
        /* It began before it was watched. */
        ml_lines_enter(lines, function, thread, true, line);
        if (calls->depth == 0) {
            return;
        }
    }
    else {
        end_line(lines, calls);
    }
    call *top = &calls->calls[calls->depth - 1];
    if (top->row == NULL || top->row->line != line) {
        top->row = run_line(lines, function, line);
        top->begins = false;
    }
    /* A body on the line of its `def` began with the call. */
    if (top->row != NULL && !top->begins) {
        top->row->calls++;
    }
    top->begins = false;
}

void
ml_lines_leave(ml_lines *lines, const ml_lines_function *function, uint64_t thread)
{
    thread_calls *calls = calls_of(lines, thread);
    if (calls != NULL && find_call(lines, calls, function)) {
        end_call(lines, calls);
    }
}

void
ml_lines_close(ml_lines *lines)
{
    for (size_t i = 0; i < lines->thread_count; i++) {
        thread_calls *calls = lines->threads[i];
        while (calls->depth > 0) {
            end_call(lines, calls);
        }
    }
}

/* ---- Life ---- */

static void
drop_rows(ml_lines_function *function)
{
    for (size_t i = 0; i < function->row_count; i++) {
        ml_free(function->rows[i]);
    }
    function->row_count = 0;
}

static void
function_free(ml_lines_function *function)
{
    drop_rows(function);
    ml_free(function->rows);
    ml_free(function);
}

void
ml_lines_clear(ml_lines *lines)
{
    for (ml_lines_function *function = lines->functions; function != NULL;
         function = function->next) {
        drop_rows(function);
    }
    for (size_t i = 0; i < lines->thread_count; i++) {
        for (size_t j = 0; j < lines->threads[i]->depth; j++) {
            lines->threads[i]->calls[j].row = NULL;
        }
    }
    lines->lost = 0;
}

ml_lines *
ml_lines_new(void)
{
    return ml_alloc_zeroed(1, sizeof(ml_lines));
}

void
ml_lines_free(ml_lines *lines)
{
    if (lines == NULL) {
        return;
    }
    ml_lines_close(lines);
    for (size_t i = 0; i < lines->thread_count; i++) {
        ml_free(lines->threads[i]->calls);
        ml_free(lines->threads[i]);
    }
    while (lines->functions != NULL) {
        ml_lines_function *function = lines->functions;
        lines->functions = function->next;
        function_free(function);
    }
    ml_free(lines->threads);
    ml_free(lines);
}

void
ml_lines_target(ml_lines *lines, const ml_source *source, int device)
{
    if (lines->source == source && lines->device == device) {
        return;
    }
    lines->source = source;
    lines->device = device;
    for (ml_lines_function *function = lines->functions; function != NULL;
         function = function->next) {
        for (size_t i = 0; i < function->row_count; i++) {
            function->rows[i]->seen = UINT64_MAX;
        }
    }
    for (size_t i = 0; i < lines->thread_count; i++) {
        thread_calls *calls = lines->threads[i];
        if (calls->depth != 0) {
            start_lap_amid(lines, calls);
        }
    }
}

ml_lines_function *
ml_lines_add(ml_lines *lines, uint32_t first_line)
{
    ml_lines_function *function = ml_alloc_zeroed(1, sizeof(*function));
    if (function != NULL) {
        function->first_line = first_line;
        function->next = lines->functions;
        lines->functions = function;
    }
    return function;
}

void
ml_lines_remove(ml_lines *lines, ml_lines_function *function)
{
    ml_lines_function **link = &lines->functions;
    while (*link != function) {
        link = &(*link)->next;
    }
    *link = function->next;
    function_free(function);
}

ml_line_row *const *
ml_lines_rows(const ml_lines_function *function, size_t *count)
{
    *count = function->row_count;
    return function->rows;
}

bool
ml_lines_counting(const ml_lines *lines, uint64_t *max_split_bytes)
{
    const ml_source *source = lines->source;
    ml_allocator_rules rules;
    if (source == NULL || source->counters == NULL ||
        source->rules(source->self, lines->device, &rules) < 0) {
        return false;
    }
    *max_split_bytes = rules.max_split_bytes;
    return true;
}

uint64_t
ml_lines_lost(const ml_lines *lines)
{
    return lines->lost;
}
