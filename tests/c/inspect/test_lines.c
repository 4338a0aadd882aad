/* Meters and line tables on the scripted source, worked out by hand. */
#include "inspect/lines.h"

#include <pthread.h>

#include "lines_samples.h"
#include "record/recorder.h"
#include "record/script.h"
#include "test.h"

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

/* One segment of 20 MiB, of which the first 2 MiB are in use before anyone looks. */
static void
test_every_count_of_a_split_block(void)
{
    ml_window *window = start_with(2 * MIB);
    ml_meter *meter = ml_recorder_meter(script(), 0);
    CHECK(meter != NULL);
    ml_meter_stats seen;
    int interval = ml_meter_begin_interval(meter, ml_recorder_thread(), &seen);
    CHECK_INT(interval, 0);
    emit(ML_ACTION_ALLOC, LARGE + 2 * MIB, 3 * MIB - 100);
    ml_meter_stat_set moved = ml_meter_next_interval(meter, interval, &seen);
    CHECK(moved != 0);
    CHECK(ml_meter_next_interval(meter, interval, &seen) == 0);
    CHECK_UINT(figure(seen.current, ML_POOL_STAT_allocation), 2);
    CHECK_UINT(figure(seen.allocated, ML_POOL_STAT_allocation), 1);
    CHECK_UINT(figure(seen.current, ML_POOL_STAT_segment), 1);
    CHECK_UINT(figure(seen.allocated, ML_POOL_STAT_segment), 0);
    CHECK_UINT(figure(seen.current, ML_POOL_STAT_allocated_bytes), 5 * MIB);
    CHECK_UINT(figure(seen.allocated, ML_POOL_STAT_allocated_bytes), 3 * MIB);
    CHECK_UINT(figure(seen.current, ML_POOL_STAT_requested_bytes), 5 * MIB - 100);
    CHECK_UINT(figure(seen.current, ML_POOL_STAT_reserved_bytes), 20 * MIB);
    /* The rest of the segment, of which 3 MiB were taken. */
    CHECK_UINT(figure(seen.current, ML_POOL_STAT_inactive_split), 1);
    CHECK_UINT(figure(seen.peak, ML_POOL_STAT_inactive_split_bytes), 18 * MIB);
    CHECK_UINT(figure(seen.current, ML_POOL_STAT_inactive_split_bytes), 15 * MIB);
    CHECK_UINT(figure(seen.freed, ML_POOL_STAT_inactive_split_bytes), 3 * MIB);
    CHECK_UINT(seen.current[ml_meter_stat(ML_POOL_LARGE, ML_POOL_STAT_allocation)], 2);
    CHECK_UINT(seen.current[ml_meter_stat(ML_POOL_SMALL, ML_POOL_STAT_allocation)], 0);
    /* Asked for but not done yet: allocated falls, active stays. */
    emit(ML_ACTION_FREE_REQUESTED, LARGE, 2 * MIB);
    ml_meter_stats_settle(&seen, moved);
    moved = ml_meter_next_interval(meter, interval, &seen);
    CHECK_UINT(figure(seen.current, ML_POOL_STAT_allocation), 1);
    CHECK_UINT(figure(seen.current, ML_POOL_STAT_active), 2);
    CHECK_UINT(figure(seen.peak, ML_POOL_STAT_allocated_bytes), 5 * MIB);
    CHECK_UINT(figure(seen.freed, ML_POOL_STAT_allocated_bytes), 2 * MIB);
    CHECK_UINT(figure(seen.freed, ML_POOL_STAT_active_bytes), 0);
    /* Both gone: one free block, which is no rest of a split. */
    emit(ML_ACTION_FREE_COMPLETED, LARGE, 2 * MIB);
    emit(ML_ACTION_FREE_REQUESTED, LARGE + 2 * MIB, 3 * MIB - 100);
    emit(ML_ACTION_FREE_COMPLETED, LARGE + 2 * MIB, 3 * MIB - 100);
    ml_meter_stats_settle(&seen, moved);
    moved = ml_meter_next_interval(meter, interval, &seen);
    CHECK_UINT(figure(seen.current, ML_POOL_STAT_active), 0);
    CHECK_UINT(figure(seen.current, ML_POOL_STAT_inactive_split), 0);
    CHECK_UINT(figure(seen.peak, ML_POOL_STAT_inactive_split), 2);
    CHECK_UINT(figure(seen.peak, ML_POOL_STAT_inactive_split_bytes), 17 * MIB);
    emit(ML_ACTION_SEGMENT_FREE, LARGE, 20 * MIB);
    ml_meter_stats_settle(&seen, moved);
    moved = ml_meter_next_interval(meter, interval, &seen);
    CHECK_UINT(figure(seen.current, ML_POOL_STAT_reserved_bytes), 0);
    CHECK_UINT(figure(seen.freed, ML_POOL_STAT_segment), 1);
    ml_meter_end_interval(meter, interval);
    ml_window_stop(window);
}

static void
test_laps_run_out_and_come_back(void)
{
    ml_script_reset(NULL);
    ml_window *window = start();
    ml_meter *meter = ml_recorder_meter(script(), 0);
    ml_meter_stats now;
    for (int i = 0; i < ML_METER_INTERVAL_MAX; i++) {
        CHECK_INT(ml_meter_begin_interval(meter, 1, &now), i);
    }
    CHECK_INT(ml_meter_begin_interval(meter, 1, &now), -1);
    ml_meter_end_interval(meter, 3);
    CHECK_INT(ml_meter_begin_interval(meter, 1, &now), 3);
    for (int i = 0; i < ML_METER_INTERVAL_MAX; i++) {
        ml_meter_end_interval(meter, i);
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
    CHECK_UINT(figure(called->most.peak, ML_POOL_STAT_active_bytes), 6 * MIB);
    CHECK_UINT(figure(called->most.allocated, ML_POOL_STAT_active_bytes), 4 * MIB);
    CHECK_UINT(figure(called->most.freed, ML_POOL_STAT_active_bytes), 4 * MIB);
    CHECK_INT(called->delta, 0);
    CHECK_INT(row_at(inner, 11)->delta, 4 * MIB);
    CHECK_INT(row_at(inner, 12)->delta, -4 * (int64_t)MIB);
    CHECK_UINT(figure(row_at(inner, 10)->most.peak, ML_POOL_STAT_active_bytes),
               2 * MIB);
    CHECK_UINT(figure(row_at(outer, 4)->most.peak, ML_POOL_STAT_active_bytes), 2 * MIB);
    CHECK_UINT(figure(row_at(outer, 1)->most.peak, ML_POOL_STAT_active_bytes), 0);
    CHECK_UINT(ml_lines_lost(lines), 0);
    ml_lines_free(lines);
    ml_window_stop(window);
}

/* How many intervals there is room for on METER. */
static int
free_laps(ml_meter *meter)
{
    ml_meter_stats now;
    int intervals = 0;
    int taken[ML_METER_INTERVAL_MAX];
    while (intervals < ML_METER_INTERVAL_MAX &&
           (taken[intervals] = ml_meter_begin_interval(meter, 1, &now)) >= 0) {
        intervals++;
    }
    for (int i = 0; i < intervals; i++) {
        ml_meter_end_interval(meter, taken[i]);
    }
    return intervals;
}

/* All intervals are taken until the second line: what there was already is nobody's
 * growth. */
static void
test_a_lap_that_begins_amid_a_call(void)
{
    ml_window *window = start_with(4 * MIB);
    ml_meter *meter = ml_recorder_meter(script(), 0);
    ml_meter_stats now;
    for (int i = 0; i < ML_METER_INTERVAL_MAX; i++) {
        ml_meter_begin_interval(meter, 1, &now);
    }
    ml_lines *lines = ml_lines_new();
    ml_lines_target(lines, script(), 0);
    ml_lines_function *outer = ml_lines_add(lines, 1);
    ml_lines_function *inner = ml_lines_add(lines, 10);
    ml_lines_enter(lines, outer, 7, false, 0);
    ml_lines_reach(lines, outer, 7, 2);
    ml_lines_enter(lines, inner, 7, false, 0);
    ml_meter_end_interval(meter, 3);
    ml_lines_reach(lines, inner, 7, 11);
    emit(ML_ACTION_ALLOC, LARGE + 4 * MIB, 2 * MIB);
    ml_lines_leave(lines, inner, 7);
    ml_lines_leave(lines, outer, 7);
    CHECK_INT(row_at(inner, 10)->delta, 0);
    CHECK_INT(row_at(inner, 11)->delta, 2 * MIB);
    CHECK_INT(row_at(outer, 2)->delta, 2 * MIB);
    CHECK_UINT(figure(row_at(outer, 2)->most.peak, ML_POOL_STAT_allocated_bytes),
               6 * MIB);
    CHECK_UINT(figure(row_at(outer, 2)->most.allocated, ML_POOL_STAT_allocated_bytes),
               2 * MIB);
    CHECK(ml_lines_lost(lines) > 0);
    for (int i = 0; i < ML_METER_INTERVAL_MAX; i++) {
        ml_meter_end_interval(meter, i);
    }
    ml_lines_free(lines);
    ml_window_stop(window);
}

/* As two greenlets that take turns: what is left amid a line has no end that is
 * told. */
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
    CHECK_INT(free_laps(meter), ML_METER_INTERVAL_MAX);
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

/* The intervals of this thread, taken while another allocates, leave nothing out and
 * tell nothing twice: each starts where the last ended. */
static void
test_laps_add_up_while_another_thread_allocates(void)
{
    ml_window *window = start_with(0);
    ml_meter *meter = ml_recorder_meter(script(), 0);
    ml_meter_stats seen;
    int interval = ml_meter_begin_interval(meter, ml_recorder_thread(), &seen);
    int bytes = ml_meter_stat(ML_METER_STAT_ALL, ML_POOL_STAT_allocated_bytes);
    uint64_t allocated = 0, freed = 0, peak = 0;
    uint64_t allocated_before = atomic_load(&meter->allocated[bytes]);
    int wrong = 0;
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, allocate_elsewhere, NULL), 0);
    for (bool last = false; !last;) {
        last = atomic_load(&others_done);
        uint64_t before = seen.current[bytes];
        ml_meter_stat_set moved = ml_meter_next_interval(meter, interval, &seen);
        wrong +=
            before + seen.allocated[bytes] - seen.freed[bytes] != seen.current[bytes];
        wrong += seen.peak[bytes] < before || seen.peak[bytes] < seen.current[bytes];
        wrong += seen.peak[bytes] > LARGE_SLOTS * MIB;
        allocated += seen.allocated[bytes];
        freed += seen.freed[bytes];
        peak = seen.peak[bytes] > peak ? seen.peak[bytes] : peak;
        ml_meter_stats_settle(&seen, moved);
    }
    pthread_join(thread, NULL);
    ml_meter_next_interval(meter, interval, &seen);
    allocated += seen.allocated[bytes];
    freed += seen.freed[bytes];
    CHECK_INT(wrong, 0);
    CHECK_UINT(allocated - freed, seen.current[bytes]);
    CHECK_UINT(peak, LARGE_SLOTS * MIB);
    CHECK_UINT(allocated, atomic_load(&meter->allocated[bytes]) - allocated_before);
    ml_meter_end_interval(meter, interval);
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
    CHECK_UINT(atomic_load(&meter->intervals[0].thread), elsewhere.number);
    ml_lines_close(lines);
    pthread_join(thread, NULL);
    const ml_line_row *row = row_at(elsewhere.function, 1);
    CHECK(figure(row->most.peak, ML_POOL_STAT_allocated_bytes) <= LARGE_SLOTS * MIB);
    CHECK_INT(free_laps(meter), ML_METER_INTERVAL_MAX);
    ml_lines_free(lines);
    ml_window_stop(window);
}

int
main(void)
{
    ml_recorder_init(walk);
    ml_script_register();
    RUN(test_every_count_of_a_split_block);
    RUN(test_laps_run_out_and_come_back);
    RUN(test_a_caller_has_the_peak_of_what_it_calls);
    RUN(test_a_lap_that_begins_amid_a_call);
    RUN(test_calls_of_whose_end_nobody_tells);
    RUN(test_a_function_that_is_removed);
    RUN(test_laps_add_up_while_another_thread_allocates);
    RUN(test_laps_begun_and_ended_for_another_thread);
    return TEST_RESULT();
}
