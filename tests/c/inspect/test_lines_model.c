/* Line tables of random programs against a model that keeps every event and looks at
 * all of them for each line. */
#include "inspect/lines.h"

#include <stdlib.h>
#include <string.h>

#include "lines_samples.h"
#include "record/recorder.h"
#include "record/script.h"
#include "test.h"

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
static const int counts[KINDS] = {ML_POOL_STAT_allocated_bytes,
                                  ML_POOL_STAT_active_bytes,
                                  ML_POOL_STAT_requested_bytes, ML_POOL_STAT_active};

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
        /* Some 2 MiB in the large slots, so that nothing is left to split off
         * between. */
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

/* Every slot is a block of its own from the start: allocation never has to look for
 * one. */
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

int
main(void)
{
    ml_recorder_init(walk);
    ml_script_register();
    RUN(test_random_programs_against_a_model);
    return TEST_RESULT();
}
