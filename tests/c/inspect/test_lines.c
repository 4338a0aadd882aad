/* Meters and line tables on the scripted source: some worked out by hand, then random
 * programs against a model that keeps every event and looks at all of them for each line. */
#include "inspect/lines.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "record/recorder.h"
#include "record/script.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)
#define LARGE UINT64_C(0x700000000000)
#define SMALL UINT64_C(0x710000000000)
#define LARGE_SLOTS 8
#define SMALL_SLOTS 16
#define SLOTS (LARGE_SLOTS + SMALL_SLOTS)

static uint32_t
walk(void *stacks, uint8_t *flags)
{
    (void)stacks;
    *flags |= ML_EVENT_NO_PYTHON;
    return 0;
}

static void
emit(unsigned action, uint64_t addr, uint64_t size)
{
    static uint64_t clock_ns;
    ml_event event = {.action = (uint8_t)action, .addr = addr, .size = size};
    event.time = clock_ns += 1000;
    ml_script_emit(0, &event, NULL);
}

static const ml_source *
script(void)
{
    return ml_recorder_source("script");
}

static ml_window *
start(void)
{
    ml_window_options options = {
        .max_entries = 1, .context = ML_CONTEXT_NONE, .meter = true, .device = -1};
    ml_window *window = NULL;
    return ml_window_start(script(), &options, &window) == 0 ? window : NULL;
}

/* The same on one segment of 20 MiB, whose first IN_USE bytes are a block already. */
static ml_window *
start_with(uint64_t in_use)
{
    ml_script_reset(NULL);
    emit(ML_ACTION_SEGMENT_ALLOC, LARGE, 20 * MIB);
    if (in_use != 0) {
        emit(ML_ACTION_ALLOC, LARGE, in_use);
    }
    return start();
}

static uint64_t
figure(const uint64_t *figures, int count)
{
    return figures[ml_figure(ML_FIGURE_ALL, count)];
}

static const ml_line_row *
row_at(const ml_lines_function *function, uint32_t line)
{
    size_t count;
    ml_line_row *const *rows = ml_lines_rows(function, &count);
    for (size_t i = 0; i < count; i++) {
        if (rows[i]->line == line) {
            return rows[i];
        }
    }
    return NULL;
}

/* One segment of 20 MiB, of which the first 2 MiB are in use before anyone looks. */
static void
test_every_count_of_a_split_block(void)
{
    ml_window *window = start_with(2 * MIB);
    ml_meter *meter = ml_recorder_meter(script(), 0);
    CHECK(meter != NULL);
    ml_figures seen;
    int lap = ml_meter_begin_lap(meter, ml_recorder_thread(), &seen);
    CHECK_INT(lap, 0);
    emit(ML_ACTION_ALLOC, LARGE + 2 * MIB, 3 * MIB - 100);
    ml_figure_set moved = ml_meter_next_lap(meter, lap, &seen);
    CHECK(moved != 0);
    CHECK(ml_meter_next_lap(meter, lap, &seen) == 0);
    CHECK_UINT(figure(seen.current, ML_COUNT_allocation), 2);
    CHECK_UINT(figure(seen.allocated, ML_COUNT_allocation), 1);
    CHECK_UINT(figure(seen.current, ML_COUNT_segment), 1);
    CHECK_UINT(figure(seen.allocated, ML_COUNT_segment), 0);
    CHECK_UINT(figure(seen.current, ML_COUNT_allocated_bytes), 5 * MIB);
    CHECK_UINT(figure(seen.allocated, ML_COUNT_allocated_bytes), 3 * MIB);
    CHECK_UINT(figure(seen.current, ML_COUNT_requested_bytes), 5 * MIB - 100);
    CHECK_UINT(figure(seen.current, ML_COUNT_reserved_bytes), 20 * MIB);
    /* The rest of the segment, of which 3 MiB were taken. */
    CHECK_UINT(figure(seen.current, ML_COUNT_inactive_split), 1);
    CHECK_UINT(figure(seen.peak, ML_COUNT_inactive_split_bytes), 18 * MIB);
    CHECK_UINT(figure(seen.current, ML_COUNT_inactive_split_bytes), 15 * MIB);
    CHECK_UINT(figure(seen.freed, ML_COUNT_inactive_split_bytes), 3 * MIB);
    CHECK_UINT(seen.current[ml_figure(ML_POOL_LARGE, ML_COUNT_allocation)], 2);
    CHECK_UINT(seen.current[ml_figure(ML_POOL_SMALL, ML_COUNT_allocation)], 0);
    /* Asked for but not done yet: allocated falls, active stays. */
    emit(ML_ACTION_FREE_REQUESTED, LARGE, 2 * MIB);
    ml_figures_settle(&seen, moved);
    moved = ml_meter_next_lap(meter, lap, &seen);
    CHECK_UINT(figure(seen.current, ML_COUNT_allocation), 1);
    CHECK_UINT(figure(seen.current, ML_COUNT_active), 2);
    CHECK_UINT(figure(seen.peak, ML_COUNT_allocated_bytes), 5 * MIB);
    CHECK_UINT(figure(seen.freed, ML_COUNT_allocated_bytes), 2 * MIB);
    CHECK_UINT(figure(seen.freed, ML_COUNT_active_bytes), 0);
    /* Both gone: one free block, which is no rest of a split. */
    emit(ML_ACTION_FREE_COMPLETED, LARGE, 2 * MIB);
    emit(ML_ACTION_FREE_REQUESTED, LARGE + 2 * MIB, 3 * MIB - 100);
    emit(ML_ACTION_FREE_COMPLETED, LARGE + 2 * MIB, 3 * MIB - 100);
    ml_figures_settle(&seen, moved);
    moved = ml_meter_next_lap(meter, lap, &seen);
    CHECK_UINT(figure(seen.current, ML_COUNT_active), 0);
    CHECK_UINT(figure(seen.current, ML_COUNT_inactive_split), 0);
    CHECK_UINT(figure(seen.peak, ML_COUNT_inactive_split), 2);
    CHECK_UINT(figure(seen.peak, ML_COUNT_inactive_split_bytes), 17 * MIB);
    emit(ML_ACTION_SEGMENT_FREE, LARGE, 20 * MIB);
    ml_figures_settle(&seen, moved);
    moved = ml_meter_next_lap(meter, lap, &seen);
    CHECK_UINT(figure(seen.current, ML_COUNT_reserved_bytes), 0);
    CHECK_UINT(figure(seen.freed, ML_COUNT_segment), 1);
    ml_meter_end_lap(meter, lap);
    ml_window_stop(window);
}

static void
test_laps_run_out_and_come_back(void)
{
    ml_script_reset(NULL);
    ml_window *window = start();
    ml_meter *meter = ml_recorder_meter(script(), 0);
    ml_figures now;
    for (int i = 0; i < ML_LAP_MAX; i++) {
        CHECK_INT(ml_meter_begin_lap(meter, 1, &now), i);
    }
    CHECK_INT(ml_meter_begin_lap(meter, 1, &now), -1);
    ml_meter_end_lap(meter, 3);
    CHECK_INT(ml_meter_begin_lap(meter, 1, &now), 3);
    for (int i = 0; i < ML_LAP_MAX; i++) {
        ml_meter_end_lap(meter, i);
    }
    ml_window_stop(window);
}

static void
test_a_caller_has_the_peak_of_what_it_calls(void)
{
    ml_window *window = start_with(0);
    ml_lines *lines = ml_lines_new();
    ml_lines_target(lines, script(), 0);
    ml_lines_function *outer = ml_lines_add(lines, 1);
    ml_lines_function *inner = ml_lines_add(lines, 10);
    ml_lines_enter(lines, outer, 7, false, 0);
    ml_lines_reach(lines, outer, 7, 2);
    emit(ML_ACTION_ALLOC, LARGE, 2 * MIB);
    ml_lines_reach(lines, outer, 7, 3);
    ml_lines_enter(lines, inner, 7, false, 0);
    ml_lines_reach(lines, inner, 7, 11);
    emit(ML_ACTION_ALLOC, LARGE + 2 * MIB, 4 * MIB);
    ml_lines_reach(lines, inner, 7, 12);
    emit(ML_ACTION_FREE_REQUESTED, LARGE + 2 * MIB, 4 * MIB);
    emit(ML_ACTION_FREE_COMPLETED, LARGE + 2 * MIB, 4 * MIB);
    ml_lines_leave(lines, inner, 7);
    ml_lines_reach(lines, outer, 7, 4);
    ml_lines_leave(lines, outer, 7);
    const ml_line_row *called = row_at(outer, 3);
    CHECK(called != NULL);
    CHECK_UINT(called->calls, 1);
    CHECK_UINT(figure(called->most.peak, ML_COUNT_active_bytes), 6 * MIB);
    CHECK_UINT(figure(called->most.allocated, ML_COUNT_active_bytes), 4 * MIB);
    CHECK_UINT(figure(called->most.freed, ML_COUNT_active_bytes), 4 * MIB);
    CHECK_INT(called->delta, 0);
    CHECK_INT(row_at(inner, 11)->delta, 4 * MIB);
    CHECK_INT(row_at(inner, 12)->delta, -4 * (int64_t)MIB);
    CHECK_UINT(figure(row_at(inner, 10)->most.peak, ML_COUNT_active_bytes), 2 * MIB);
    CHECK_UINT(figure(row_at(outer, 4)->most.peak, ML_COUNT_active_bytes), 2 * MIB);
    CHECK_UINT(figure(row_at(outer, 1)->most.peak, ML_COUNT_active_bytes), 0);
    CHECK_UINT(ml_lines_lost(lines), 0);
    ml_lines_free(lines);
    ml_window_stop(window);
}

/* How many laps there is room for on METER. */
static int
free_laps(ml_meter *meter)
{
    ml_figures now;
    int laps = 0;
    int taken[ML_LAP_MAX];
    while (laps < ML_LAP_MAX &&
           (taken[laps] = ml_meter_begin_lap(meter, 1, &now)) >= 0) {
        laps++;
    }
    for (int i = 0; i < laps; i++) {
        ml_meter_end_lap(meter, taken[i]);
    }
    return laps;
}

/* All laps are taken until the second line: what there was already is nobody's growth. */
static void
test_a_lap_that_begins_amid_a_call(void)
{
    ml_window *window = start_with(4 * MIB);
    ml_meter *meter = ml_recorder_meter(script(), 0);
    ml_figures now;
    for (int i = 0; i < ML_LAP_MAX; i++) {
        ml_meter_begin_lap(meter, 1, &now);
    }
    ml_lines *lines = ml_lines_new();
    ml_lines_target(lines, script(), 0);
    ml_lines_function *outer = ml_lines_add(lines, 1);
    ml_lines_function *inner = ml_lines_add(lines, 10);
    ml_lines_enter(lines, outer, 7, false, 0);
    ml_lines_reach(lines, outer, 7, 2);
    ml_lines_enter(lines, inner, 7, false, 0);
    ml_meter_end_lap(meter, 3);
    ml_lines_reach(lines, inner, 7, 11);
    emit(ML_ACTION_ALLOC, LARGE + 4 * MIB, 2 * MIB);
    ml_lines_leave(lines, inner, 7);
    ml_lines_leave(lines, outer, 7);
    CHECK_INT(row_at(inner, 10)->delta, 0);
    CHECK_INT(row_at(inner, 11)->delta, 2 * MIB);
    CHECK_INT(row_at(outer, 2)->delta, 2 * MIB);
    CHECK_UINT(figure(row_at(outer, 2)->most.peak, ML_COUNT_allocated_bytes), 6 * MIB);
    CHECK_UINT(figure(row_at(outer, 2)->most.allocated, ML_COUNT_allocated_bytes),
               2 * MIB);
    CHECK(ml_lines_lost(lines) > 0);
    for (int i = 0; i < ML_LAP_MAX; i++) {
        ml_meter_end_lap(meter, i);
    }
    ml_lines_free(lines);
    ml_window_stop(window);
}

/* As two greenlets that take turns: what is left amid a line has no end that is told. */
static void
test_calls_of_whose_end_nobody_tells(void)
{
    ml_window *window = start_with(0);
    ml_meter *meter = ml_recorder_meter(script(), 0);
    ml_lines *lines = ml_lines_new();
    ml_lines_target(lines, script(), 0);
    ml_lines_function *one = ml_lines_add(lines, 1);
    ml_lines_function *other = ml_lines_add(lines, 10);
    ml_lines_enter(lines, one, 7, false, 0);
    ml_lines_enter(lines, other, 7, false, 0);
    for (int i = 0; i < 100; i++) {
        ml_lines_reach(lines, one, 7, 2);
        emit(ML_ACTION_ALLOC, LARGE, 2 * MIB);
        ml_lines_reach(lines, other, 7, 11);
        emit(ML_ACTION_FREE_REQUESTED, LARGE, 2 * MIB);
        emit(ML_ACTION_FREE_COMPLETED, LARGE, 2 * MIB);
    }
    ml_lines_leave(lines, one, 7);
    CHECK_UINT(row_at(one, 2)->calls, 100);
    CHECK_UINT(row_at(other, 11)->calls, 100);
    CHECK_INT(row_at(other, 11)->delta, -200 * (int64_t)MIB);
    CHECK_INT(free_laps(meter), ML_LAP_MAX);
    ml_lines_free(lines);
    ml_window_stop(window);
}

static void
test_a_function_that_is_removed(void)
{
    ml_lines *lines = ml_lines_new();
    ml_lines_function *functions[3];
    for (uint32_t i = 0; i < 3; i++) {
        functions[i] = ml_lines_add(lines, 10 * i);
        ml_lines_enter(lines, functions[i], 7, false, 0);
        ml_lines_leave(lines, functions[i], 7);
    }
    ml_lines_remove(lines, functions[1]);
    ml_lines_remove(lines, functions[2]);
    CHECK_UINT(row_at(functions[0], 0)->calls, 1);
    ml_lines_remove(lines, functions[0]);
    ml_lines_free(lines);
}

/* ---- Random programs ---- */

#define LINES 5
#define DEPTH 12
#define STEPS 4000
#define FUNCTIONS 3

enum {
    ALLOCATED,
    ACTIVE,
    REQUESTED,
    BLOCKS,
    KINDS
};
static const int counts[KINDS] = {ML_COUNT_allocated_bytes, ML_COUNT_active_bytes,
                                  ML_COUNT_requested_bytes, ML_COUNT_active};

typedef struct moment {
    uint64_t of[KINDS];
} moment;

typedef struct model_row {
    uint64_t calls;
    int64_t delta;
    bool ran;
    uint64_t current[KINDS], peak[KINDS], allocated[KINDS], freed[KINDS];
} model_row;

static struct {
    moment moments[STEPS + 1]; /* after each event, the first before all */
    size_t count;
    uint64_t requested[SLOTS]; /* 0: free */
    bool pending[SLOTS];
    model_row rows[FUNCTIONS][LINES];
    struct {
        int function;
        int line;
        size_t since; /* moment at which the line began */
    } calls[DEPTH];
    int depth;
} model;

static uint64_t
slot_addr(int slot)
{
    return slot < LARGE_SLOTS ? LARGE + (uint64_t)slot * 2 * MIB
                              : SMALL + (uint64_t)(slot - LARGE_SLOTS) * (MIB / 8);
}

static void
push_moment(void)
{
    moment now;
    memset(&now, 0, sizeof(now));
    for (int i = 0; i < SLOTS; i++) {
        if (model.requested[i] == 0) {
            continue;
        }
        uint64_t bytes = (model.requested[i] + 511) / 512 * 512;
        now.of[ALLOCATED] += model.pending[i] ? 0 : bytes;
        now.of[ACTIVE] += bytes;
        now.of[REQUESTED] += model.requested[i];
        now.of[BLOCKS]++;
    }
    model.moments[model.count++] = now;
}

static uint64_t
most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void
model_end_line(void)
{
    int function = model.calls[model.depth - 1].function;
    model_row *row = &model.rows[function][model.calls[model.depth - 1].line];
    size_t since = model.calls[model.depth - 1].since, now = model.count - 1;
    row->ran = true;
    for (int kind = 0; kind < KINDS; kind++) {
        uint64_t peak = 0, added = 0, taken = 0;
        for (size_t i = since; i <= now; i++) {
            uint64_t value = model.moments[i].of[kind];
            peak = most(peak, value);
            if (i > since) {
                uint64_t before = model.moments[i - 1].of[kind];
                added += value > before ? value - before : 0;
                taken += value < before ? before - value : 0;
            }
        }
        row->peak[kind] = most(row->peak[kind], peak);
        row->allocated[kind] = most(row->allocated[kind], added);
        row->freed[kind] = most(row->freed[kind], taken);
        row->current[kind] = most(row->current[kind], model.moments[now].of[kind]);
    }
    row->delta += (int64_t)(model.moments[now].of[ALLOCATED] -
                            model.moments[since].of[ALLOCATED]);
    model.calls[model.depth - 1].since = now;
}

/* Allocates, asks for a free, or completes one, in a slot. */
static void
move_memory(int slot)
{
    uint64_t addr = slot_addr(slot), size = model.requested[slot];
    if (size == 0) {
        /* Some 2 MiB in the large slots, so that nothing is left to split off between. */
        size = slot < LARGE_SLOTS ? 2 * MIB - (uint64_t)(rand() % 500)
                                  : MIB / 8 - (uint64_t)(rand() % 500);
        emit(ML_ACTION_ALLOC, addr, size);
        model.requested[slot] = size;
    }
    else if (!model.pending[slot]) {
        emit(ML_ACTION_FREE_REQUESTED, addr, size);
        model.pending[slot] = true;
    }
    else {
        emit(ML_ACTION_FREE_COMPLETED, addr, size);
        model.requested[slot] = 0;
        model.pending[slot] = false;
    }
    push_moment();
}

/* Every slot is a block of its own from the start: allocation never has to look for one. */
static void
cut_segments(void)
{
    emit(ML_ACTION_SEGMENT_ALLOC, LARGE, LARGE_SLOTS * 2 * MIB);
    emit(ML_ACTION_SEGMENT_ALLOC, SMALL, 2 * MIB);
}

/* The lowest free slot of a run of free ones: blocks are cut from their front. */
static int
usable_slot(void)
{
    int slot = rand() % SLOTS;
    if (model.requested[slot] != 0) {
        return slot;
    }
    int first = slot < LARGE_SLOTS ? 0 : LARGE_SLOTS;
    while (slot > first && model.requested[slot - 1] == 0) {
        slot--;
    }
    return slot;
}

static void
step(ml_lines *lines, ml_lines_function **functions)
{
    int choice = rand() % 10;
    if (choice < 5) {
        move_memory(usable_slot());
    }
    else if (choice < 6 && model.depth < DEPTH) {
        int function = rand() % FUNCTIONS;
        ml_lines_enter(lines, functions[function], 1, false, 0);
        model.calls[model.depth].function = function;
        model.calls[model.depth].line = 0;
        model.calls[model.depth++].since = model.count - 1;
        model.rows[function][0].calls++;
    }
    else if (choice < 9 && model.depth > 0) {
        int function = model.calls[model.depth - 1].function;
        int line = 1 + rand() % (LINES - 1);
        ml_lines_reach(lines, functions[function], 1,
                       (uint32_t)(100 * function + line));
        model_end_line();
        model.calls[model.depth - 1].line = line;
        model.rows[function][line].calls++;
    }
    else if (model.depth > 0) {
        ml_lines_leave(lines, functions[model.calls[model.depth - 1].function], 1);
        model_end_line();
        model.depth--;
    }
}

static void
compare(ml_lines_function **functions, int seed)
{
    for (int function = 0; function < FUNCTIONS; function++) {
        for (int line = 0; line < LINES; line++) {
            const model_row *want = &model.rows[function][line];
            const ml_line_row *got =
                row_at(functions[function], (uint32_t)(100 * function + line));
            if (got == NULL) {
                CHECK(!want->ran);
                continue;
            }
            CHECK_UINT(got->calls, want->calls);
            CHECK_INT(got->delta, want->delta);
            for (int kind = 0; kind < KINDS; kind++) {
                int count = counts[kind];
                if (figure(got->most.peak, count) != want->peak[kind]) {
                    printf("seed %d, function %d, line %d\n", seed, function, line);
                }
                CHECK_UINT(figure(got->most.peak, count), want->peak[kind]);
                CHECK_UINT(figure(got->most.current, count), want->current[kind]);
                CHECK_UINT(figure(got->most.allocated, count), want->allocated[kind]);
                CHECK_UINT(figure(got->most.freed, count), want->freed[kind]);
            }
        }
    }
}

static void
test_random_programs_against_a_model(void)
{
    for (int seed = 1; seed <= 40 && !test_broken; seed++) {
        srand((unsigned)seed);
        memset(&model, 0, sizeof(model));
        ml_script_reset(NULL);
        cut_segments();
        ml_window *window = start();
        push_moment();
        ml_lines *lines = ml_lines_new();
        ml_lines_target(lines, script(), 0);
        ml_lines_function *functions[FUNCTIONS];
        for (int i = 0; i < FUNCTIONS; i++) {
            functions[i] = ml_lines_add(lines, (uint32_t)(100 * i));
        }
        for (int i = 0; i < STEPS - 1; i++) {
            step(lines, functions);
        }
        while (model.depth > 0) {
            model_end_line();
            model.depth--;
        }
        ml_lines_close(lines);
        ml_recorder_stats stats;
        ml_recorder_stats_of(script(), 0, &stats);
        CHECK_UINT(stats.inconsistencies, 0);
        compare(functions, seed);
        ml_lines_free(lines);
        ml_window_stop(window);
    }
}

/* ---- Another thread ---- */

enum {
    OTHERS_EVENTS = 30000
};

static _Atomic bool others_done;

/* Up to eight blocks of 1 MiB, whose number rises and falls. */
static void *
allocate_elsewhere(void *arg)
{
    unsigned number = 1, live = 0;
    (void)arg;
    for (int i = 0; i < OTHERS_EVENTS; i++) {
        uint64_t addr = LARGE + live * MIB;
        number = number * 1103515245u + 12345u;
        if (live == 0 || (live < LARGE_SLOTS && number >> 31 != 0)) {
            emit(ML_ACTION_ALLOC, addr, MIB);
            live++;
        }
        else {
            emit(ML_ACTION_FREE_REQUESTED, addr - MIB, MIB);
            emit(ML_ACTION_FREE_COMPLETED, addr - MIB, MIB);
            live--;
        }
    }
    atomic_store(&others_done, true);
    return NULL;
}

/* The laps of this thread, taken while another allocates, leave nothing out and tell
 * nothing twice: each starts where the last ended. */
static void
test_laps_add_up_while_another_thread_allocates(void)
{
    ml_window *window = start_with(0);
    ml_meter *meter = ml_recorder_meter(script(), 0);
    ml_figures seen;
    int lap = ml_meter_begin_lap(meter, ml_recorder_thread(), &seen);
    int bytes = ml_figure(ML_FIGURE_ALL, ML_COUNT_allocated_bytes);
    uint64_t allocated = 0, freed = 0, peak = 0;
    uint64_t allocated_before = atomic_load(&meter->allocated[bytes]);
    int wrong = 0;
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, allocate_elsewhere, NULL), 0);
    for (bool last = false; !last;) {
        last = atomic_load(&others_done);
        uint64_t before = seen.current[bytes];
        ml_figure_set moved = ml_meter_next_lap(meter, lap, &seen);
        wrong +=
            before + seen.allocated[bytes] - seen.freed[bytes] != seen.current[bytes];
        wrong += seen.peak[bytes] < before || seen.peak[bytes] < seen.current[bytes];
        wrong += seen.peak[bytes] > LARGE_SLOTS * MIB;
        allocated += seen.allocated[bytes];
        freed += seen.freed[bytes];
        peak = seen.peak[bytes] > peak ? seen.peak[bytes] : peak;
        ml_figures_settle(&seen, moved);
    }
    pthread_join(thread, NULL);
    ml_meter_next_lap(meter, lap, &seen);
    allocated += seen.allocated[bytes];
    freed += seen.freed[bytes];
    CHECK_INT(wrong, 0);
    CHECK_UINT(allocated - freed, seen.current[bytes]);
    CHECK_UINT(peak, LARGE_SLOTS * MIB);
    CHECK_UINT(allocated, atomic_load(&meter->allocated[bytes]) - allocated_before);
    ml_meter_end_lap(meter, lap);
    ml_window_stop(window);
}

static struct {
    ml_lines *lines;
    ml_lines_function *function;
    uint32_t number;
    _Atomic bool entered;
} elsewhere;

static void *
run_elsewhere(void *arg)
{
    (void)arg;
    elsewhere.number = ml_recorder_thread();
    ml_lines_enter(elsewhere.lines, elsewhere.function, 8, false, 0);
    atomic_store(&elsewhere.entered, true);
    return allocate_elsewhere(NULL);
}

/* It allocates meanwhile, as a thread does that has let go of the GIL. */
static void
test_laps_begun_and_ended_for_another_thread(void)
{
    ml_window *window = start_with(0);
    ml_meter *meter = ml_recorder_meter(script(), 0);
    ml_lines *lines = ml_lines_new();
    ml_lines_target(lines, script(), 0);
    elsewhere.lines = lines;
    elsewhere.function = ml_lines_add(lines, 1);
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, run_elsewhere, NULL), 0);
    while (!atomic_load(&elsewhere.entered)) {
    }
    for (int i = 0; i < 1000; i++) {
        ml_lines_target(lines, script(), 1);
        ml_lines_target(lines, script(), 0);
    }
    CHECK_UINT(atomic_load(&meter->laps[0].thread), elsewhere.number);
    ml_lines_close(lines);
    pthread_join(thread, NULL);
    const ml_line_row *row = row_at(elsewhere.function, 1);
    CHECK(figure(row->most.peak, ML_COUNT_allocated_bytes) <= LARGE_SLOTS * MIB);
    CHECK_INT(free_laps(meter), ML_LAP_MAX);
    ml_lines_free(lines);
    ml_window_stop(window);
}

int
main(void)
{
    ml_recorder_init(walk);
    ml_script_register(ml_recorder_add_source, ml_recorder_record);
    RUN(test_every_count_of_a_split_block);
    RUN(test_laps_run_out_and_come_back);
    RUN(test_a_caller_has_the_peak_of_what_it_calls);
    RUN(test_a_lap_that_begins_amid_a_call);
    RUN(test_calls_of_whose_end_nobody_tells);
    RUN(test_a_function_that_is_removed);
    RUN(test_random_programs_against_a_model);
    RUN(test_laps_add_up_while_another_thread_allocates);
    RUN(test_laps_begun_and_ended_for_another_thread);
    return TEST_RESULT();
}
