/* What steps leave behind, on the scripted source and on one that no lock orders.  Rows are
 * worked out by hand, or by a model that keeps every block in a list. */
#include "inspect/leaks.h"

#include <stdlib.h>

#include "budget.h"
#include "record/recorder.h"
#include "record/script.h"
#include "record/window.h"
#include "source_samples.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)
#define BASE UINT64_C(0x7f0000000000)
#define DEVICE 1

/* ---- Stacks of one frame: the line that a test sets ---- */

static int current_line;

static uint32_t
walk_stack(void *stacks, uint8_t *flags)
{
    (void)flags;
    const ml_frame_key key = {.code = 64, .offset = (uint32_t)current_line};
    const ml_code_text text = {.name = {"train", 5}, .filename = {"/u/train.py", 11}};
    return ml_stacks_add(stacks, 0, &key, &text);
}

/* ---- The two sources ---- */

static uint64_t ticks;

static void
emit(enum ml_action action, uint64_t addr, uint64_t size)
{
    ml_event event = {
        .action = (uint8_t)action, .addr = addr, .size = size, .time = ++ticks};
    ml_script_emit(DEVICE, &event, NULL);
}

static void
take(int line, int place)
{
    current_line = line;
    emit(ML_ACTION_ALLOC, BASE + (uint64_t)place * 512, 512);
}

static void
give(int place)
{
    emit(ML_ACTION_FREE_REQUESTED, BASE + (uint64_t)place * 512, 512);
    emit(ML_ACTION_FREE_COMPLETED, BASE + (uint64_t)place * 512, 512);
}

static ml_source loose = {SOURCE_SAMPLE, .name = "loose"};

static void
emit_loose(enum ml_action action, uint64_t addr, uint64_t time)
{
    ml_event event = {.action = (uint8_t)action,
                      .addr = addr,
                      .size = 512,
                      .block_bytes = 512,
                      .flags = ML_EVENT_BLOCK_KNOWN,
                      .time = time};
    ml_recorder_record(&loose, 0, &event, NULL);
}

typedef struct fixture {
    ml_window *window;
    ml_leak_tracker *survivors;
    ml_leaks leaks;
} fixture;

static void
start(fixture *f, const ml_source *source, uint64_t max_entries)
{
    *f = (fixture){0};
    ml_window_options options = {.max_entries = max_entries,
                                 .context = ML_CONTEXT_ALLOC,
                                 .keep_events = true,
                                 .device = -1};
    ml_window_start(source, &options, &f->window);
    ml_leak_tracker_new(f->window, &f->survivors);
}

static void
set_up(fixture *f)
{
    ml_recorder_init(walk_stack);
    ml_script_register();
    ml_script_reset(NULL);
    emit(ML_ACTION_SEGMENT_ALLOC, BASE, 20 * MIB);
    start(f, ml_recorder_source("script"), 1000);
}

static void
tear_down(fixture *f)
{
    ml_leaks_fini(&f->leaks);
    ml_leak_tracker_free(f->survivors);
    ml_window_stop(f->window);
}

static int
step(fixture *f)
{
    ml_leaks_fini(&f->leaks);
    return ml_leaks_step(f->survivors, &f->leaks);
}

/* ---- Rows ---- */

static void
test_a_line_leaks_from_its_fifth_step_on(void)
{
    fixture f;
    set_up(&f);
    for (int i = 0; i < 7; i++) {
        take(10, 2 * i);
        take(20, 2 * i + 1);
        CHECK_INT(step(&f), 0);
        CHECK_INT(f.leaks.count, i < 4 ? 0 : i == 4 ? 1 : 2);
        give(2 * i + 1);
        take(20, 2 * i + 1); /* replaced after the step: counts to the next */
    }
    CHECK_INT(f.leaks.items[0].steps, 7);
    CHECK_INT(f.leaks.items[0].device, DEVICE);
    CHECK_TEXT(f.leaks.items[0].line.file.bytes, f.leaks.items[0].line.file.length,
               "/u/train.py");
    CHECK_INT(f.leaks.items[0].line.line, 10);
    CHECK_UINT(f.leaks.items[0].line.bytes, 7 * 512);
    CHECK_UINT(f.leaks.items[0].line.blocks, 7);
    CHECK_UINT(f.leaks.items[0].per_step, 512);
    /* Of its first step nothing is left, of the others two blocks, of the last one more
     * to come. */
    CHECK_INT(f.leaks.items[1].line.line, 20);
    CHECK_UINT(f.leaks.items[1].steps, 6);
    CHECK_UINT(f.leaks.items[1].line.blocks, 7);
    tear_down(&f);
}

static void
test_a_step_that_leaves_nothing_ends_the_row(void)
{
    fixture f;
    set_up(&f);
    for (int i = 0; i < 12; i++) {
        if (i != 6) {
            take(10, i);
        }
        CHECK_INT(step(&f), 0);
        /* Steps 0 to 4, and 7 to 11. */
        bool leaks = (i >= 4 && i < 6) || i >= 11;
        CHECK_INT(f.leaks.count, leaks);
    }
    CHECK_UINT(f.leaks.items[0].steps, 5);
    tear_down(&f);
}

static void
test_what_is_kept_of_a_bounded_number_of_steps_is_full_once(void)
{
    fixture f;
    set_up(&f);
    for (int i = 0; i < 20; i++) {
        if (i >= 8) {
            give(i - 8);
        }
        take(10, i);
        CHECK_INT(step(&f), 0);
        CHECK_INT(f.leaks.count, i >= 4 && i < 8);
    }
    tear_down(&f);
}

static void
test_what_is_kept_of_four_steps_is_no_leak(void)
{
    fixture f;
    set_up(&f);
    for (int i = 0; i < 20; i++) {
        if (i >= 4) {
            give(i - 4);
        }
        take(10, i);
        CHECK_INT(step(&f), 0);
        CHECK_INT(f.leaks.count, 0);
    }
    tear_down(&f);
}

static void
test_the_middle_step_tells_the_bytes_of_one(void)
{
    fixture f;
    set_up(&f);
    for (int i = 0; i < 5; i++) {
        take(10, i);
        if (i == 2) {
            emit(ML_ACTION_ALLOC, BASE + MIB, 2 * MIB);
        }
        CHECK_INT(step(&f), 0);
    }
    CHECK_INT(f.leaks.count, 1);
    CHECK_UINT(f.leaks.items[0].line.bytes, 5 * 512 + 2 * MIB);
    CHECK_UINT(f.leaks.items[0].per_step, 512);
    tear_down(&f);
}

static void
test_lost_events_begin_rows_again(void)
{
    fixture f;
    set_up(&f);
    for (int i = 0; i < 5; i++) {
        take(10, i);
        CHECK_INT(step(&f), 0);
        CHECK(!f.leaks.lost);
    }
    CHECK_INT(f.leaks.count, 1);
    for (int i = 0; i < 100000; i++) {
        take(20, 100);
        give(100);
    }
    CHECK_INT(step(&f), 0);
    CHECK(f.leaks.lost);
    CHECK_INT(f.leaks.count, 0);
    for (int i = 5; i < 10; i++) {
        CHECK_INT(f.leaks.count, 0);
        take(10, i);
        CHECK_INT(step(&f), 0);
        CHECK(!f.leaks.lost);
    }
    CHECK_INT(f.leaks.count, 1);
    CHECK_UINT(f.leaks.items[0].line.blocks, 5);
    tear_down(&f);
}

/* ---- A model ---- */

#define PLACES 300
#define LINES 4
#define STEPS 60

typedef struct model {
    int born[PLACES]; /* step; -1: free */
    int line[PLACES];
    int before[LINES]; /* the row that the call before found */
} model;

/* Of LINE, the steps in a row that end with STEP, and their blocks. */
static int
model_row(const model *m, int line, int step, unsigned *blocks)
{
    int row = 0;
    for (*blocks = 0; row <= step; row++) {
        unsigned alive = 0;
        for (int i = 0; i < PLACES; i++) {
            alive += m->born[i] == step - row && m->line[i] == line;
        }
        if (alive == 0) {
            break;
        }
        *blocks += alive;
    }
    return row;
}

static const ml_leak *
leak_of(const fixture *f, int line)
{
    for (size_t i = 0; i < f->leaks.count; i++) {
        if (f->leaks.items[i].line.line == line) {
            return &f->leaks.items[i];
        }
    }
    return NULL;
}

static void
test_rows_are_those_of_a_model(void)
{
    fixture f;
    set_up(&f);
    model m;
    memset(&m, 0, sizeof(m));
    memset(m.born, -1, sizeof(m.born));
    srand(20);
    unsigned leaks = 0;
    for (int now = 0; now < STEPS; now++) {
        for (int i = 0; i < 40; i++) {
            int place = rand() % PLACES;
            if (m.born[place] >= 0) {
                give(place);
                m.born[place] = -1;
            }
            else {
                m.line[place] = rand() % LINES;
                m.born[place] = now;
                take(m.line[place] + 1, place);
            }
        }
        CHECK_INT(step(&f), 0);
        for (int line = 0; line < LINES; line++) {
            unsigned blocks;
            int row = model_row(&m, line, now, &blocks);
            bool leak = row >= ML_LEAK_STEPS && row > m.before[line];
            const ml_leak *found = leak_of(&f, line + 1);
            if ((found != NULL) != leak) {
                CHECK_FAIL("step %d, line %d: a row of %d after %d", now, line, row,
                           m.before[line]);
            }
            if (leak) {
                CHECK_UINT(found->steps, row);
                CHECK_UINT(found->line.blocks, blocks);
            }
            m.before[line] = row >= ML_LEAK_STEPS ? row : 0;
            leaks += leak;
        }
    }
    CHECK(leaks > 20);
    tear_down(&f);
}

/* ---- Without a lock that orders events ---- */

static void
test_a_free_that_is_told_before_its_allocation(void)
{
    ml_recorder_init(walk_stack);
    if (ml_recorder_source("loose") == NULL) {
        ml_recorder_add_source(&loose);
    }
    fixture f;
    start(&f, &loose, 1000);
    current_line = 10;
    for (uint64_t i = 0; i < 8; i++) {
        uint64_t time = 1000 * (i + 1);
        /* The thread that allocated tells it in the next step only. */
        emit_loose(ML_ACTION_FREE_REQUESTED, BASE + 512 * i, time + 20);
        emit_loose(ML_ACTION_FREE_COMPLETED, BASE + 512 * i, time + 20);
        CHECK_INT(step(&f), 0);
        CHECK_INT(f.leaks.count, 0);
        emit_loose(ML_ACTION_ALLOC, BASE + 512 * i, time + 10);
    }
    tear_down(&f);
}

static void
test_a_free_of_older_memory_leaves_what_is_there_since(void)
{
    ml_recorder_init(walk_stack);
    if (ml_recorder_source("loose") == NULL) {
        ml_recorder_add_source(&loose);
    }
    fixture f;
    start(&f, &loose, 1000);
    current_line = 10;
    for (uint64_t i = 0; i < 5; i++) {
        uint64_t time = 100000 + 1000 * i;
        /* From before the recording; its place is taken again at once. */
        emit_loose(ML_ACTION_FREE_REQUESTED, BASE + 512 * i, time);
        emit_loose(ML_ACTION_FREE_COMPLETED, BASE + 512 * i, time);
        emit_loose(ML_ACTION_ALLOC, BASE + 512 * i, time + 10);
        CHECK_INT(step(&f), 0);
    }
    CHECK_INT(f.leaks.count, 1);
    CHECK_UINT(f.leaks.items[0].line.blocks, 5);
    tear_down(&f);
}

/* ---- Without memory ---- */

static void
test_every_failed_allocation_is_an_error_and_leaves_nothing(void)
{
    int result = ML_ENOMEM;
    long budget = 0;
    for (; result == ML_ENOMEM && budget < 10000; budget++) {
        fixture f;
        set_up(&f);
        for (int i = 0; i < 4; i++) {
            take(10, i);
            CHECK_INT(step(&f), 0);
        }
        take(10, 4);
        budget_begin(budget);
        result = step(&f);
        budget_end();
        CHECK_INT(f.leaks.count, result == 0);
        if (result == ML_ENOMEM) {
            CHECK_INT(step(&f), 0);
            CHECK_INT(f.leaks.count, 0);
        }
        tear_down(&f);
    }
    CHECK_INT(result, 0);
    CHECK(budget > 10);
}

int
main(void)
{
    RUN(test_a_line_leaks_from_its_fifth_step_on);
    RUN(test_a_step_that_leaves_nothing_ends_the_row);
    RUN(test_what_is_kept_of_a_bounded_number_of_steps_is_full_once);
    RUN(test_what_is_kept_of_four_steps_is_no_leak);
    RUN(test_the_middle_step_tells_the_bytes_of_one);
    RUN(test_lost_events_begin_rows_again);
    RUN(test_rows_are_those_of_a_model);
    RUN(test_a_free_that_is_told_before_its_allocation);
    RUN(test_a_free_of_older_memory_leaves_what_is_there_since);
    RUN(test_every_failed_allocation_is_an_error_and_leaves_nothing);
    return TEST_RESULT();
}
