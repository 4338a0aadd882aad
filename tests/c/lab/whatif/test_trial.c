/* Trials of workloads: edits, the order of what one event has, memory that runs out, and
 * what is shown of a moment.  The recordings are of segments that one block each fills. */
#include "lab/whatif/trial.h"

#include "base/base.h"
#include "base/ranges.h"
#include "budget.h"
#include "lab/whatif/schedule.h"
#include "lab/whatif/tune.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)
#define BASE UINT64_C(0x7f0000000000)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define A BASE
#define B (BASE + 100 * MIB)
#define C (BASE + 200 * MIB)

typedef struct fixture {
    ml_recording recording;
    ml_device_trace device;
    ml_string string; /* the first of each, which stands for none */
    ml_frame frame;
    ml_stack stack;
    ml_workload *workload;
    ml_trial_options options;
    ml_trial_result result;
} fixture;

/* An event of a block of so many MIB. */
static ml_event
of(enum ml_action action, uint64_t addr, uint64_t mib)
{
    return (ml_event){.addr = addr, .size = mib * MIB, .action = (uint8_t)action};
}

static void
make_recording(fixture *f, ml_event *events, size_t count)
{
    memset(f, 0, sizeof(*f));
    f->device.events.plain = events;
    f->device.event_count = count;
    f->recording.devices = &f->device;
    f->recording.device_count = 1;
    f->recording.rules.max_split_bytes = UINT64_MAX;
    f->recording.rules.has_segments = 1;
    f->recording.strings = &f->string;
    f->recording.string_count = 1;
    f->recording.frames = &f->frame;
    f->recording.frame_count = 1;
    f->recording.stacks = &f->stack;
    f->recording.stack_count = 1;
}

static void
tear_down(fixture *f)
{
    ml_workload_free(f->workload);
    ml_recording_detach(&f->recording);
}

static int
set_up(fixture *f, ml_event *events, size_t count)
{
    make_recording(f, events, count);
    int error = ml_workload_new(&f->recording, 0, &f->workload);
    if (error == 0) {
        ml_trial_options_of(f->workload, &f->options);
        f->options.recorded_addresses = false;
    }
    return error;
}

static int
run(fixture *f)
{
    return ml_trial_run(f->workload, &f->options, &f->result);
}

/* a of 20 MiB lives until b of 40 and c of 60 are there: 120 MiB at once. */
#define HELD_EVENTS \
    { \
        of(ML_ACTION_SEGMENT_ALLOC, A, 20), of(ML_ACTION_ALLOC, A, 20), \
            of(ML_ACTION_SEGMENT_ALLOC, B, 40), of(ML_ACTION_ALLOC, B, 40), \
            of(ML_ACTION_SEGMENT_ALLOC, C, 60), of(ML_ACTION_ALLOC, C, 60), \
            of(ML_ACTION_FREE_REQUESTED, A, 20), of(ML_ACTION_FREE_COMPLETED, A, 20) \
    }

static void
test_as_recorded(void)
{
    ml_event events[] = HELD_EVENTS;
    fixture f;
    CHECK_INT(set_up(&f, events, COUNT(events)), 0);
    CHECK_UINT(f.workload->count, 3);
    CHECK_UINT(f.workload->demands[0].born, 1);
    CHECK_UINT(f.workload->demands[0].freed, 6);
    CHECK_UINT(f.workload->demands[0].completed, 7);
    CHECK_UINT(f.workload->demands[2].freed, ML_NO_EVENT);
    CHECK_UINT(f.workload->demands[2].block_bytes, 60 * MIB);
    f.options.recorded_addresses = true;
    CHECK_INT(run(&f), 0);
    CHECK_UINT(f.result.mismatched_addresses, 0);
    CHECK_UINT(f.result.mismatched_segments, 0);
    CHECK(!f.result.compared);
    CHECK_UINT(f.result.demands, 3);
    CHECK_UINT(f.result.events, 8);
    CHECK_UINT(f.result.peak.allocated, 120 * MIB);
    CHECK_UINT(f.result.peak_event, 5);
    CHECK_UINT(f.result.at_end.allocated, 100 * MIB);
    tear_down(&f);
}

static void
test_a_free_that_is_moved(void)
{
    ml_event events[] = HELD_EVENTS;
    fixture f;
    CHECK_INT(set_up(&f, events, COUNT(events)), 0);
    ml_workload *copy;
    CHECK_INT(ml_workload_copy(f.workload, &copy), 0);
    /* Before what event 3 itself does: a is gone when b comes. */
    copy->demands[0].freed = copy->demands[0].completed = 3;
    CHECK_INT(ml_trial_run(copy, &f.options, &f.result), 0);
    CHECK_UINT(f.result.peak.allocated, 100 * MIB);
    CHECK_UINT(f.result.peak.reserved, 120 * MIB);
    /* Smaller, and its segment with it; the original is as it was. */
    copy->demands[2].bytes = 40 * MIB;
    CHECK_INT(ml_trial_run(copy, &f.options, &f.result), 0);
    CHECK_UINT(f.result.peak.allocated, 80 * MIB);
    copy->demands[2].bytes = 0;
    CHECK_INT(ml_trial_run(copy, &f.options, &f.result), 0);
    CHECK_UINT(f.result.peak.allocated, 40 * MIB);
    CHECK_UINT(f.result.demands, 2);
    CHECK_INT(run(&f), 0);
    CHECK_UINT(f.result.peak.allocated, 120 * MIB);
    ml_workload_free(copy);
    tear_down(&f);
}

static void
test_a_birth_that_is_moved(void)
{
    ml_event events[] = HELD_EVENTS;
    fixture f;
    CHECK_INT(set_up(&f, events, COUNT(events)), 0);
    /* c comes when a is gone, to be found in the order of one event. */
    f.workload->demands[2].born = 8;
    CHECK_INT(run(&f), 0);
    CHECK_UINT(f.result.peak.allocated, 100 * MIB);
    CHECK_UINT(f.result.peak_event, 8);
    /* a's free moved to the same event is before it. */
    f.workload->demands[0].freed = f.workload->demands[0].completed = 8;
    CHECK_INT(run(&f), 0);
    CHECK_UINT(f.result.peak.allocated, 100 * MIB);
    tear_down(&f);
}

static void
test_edits_that_make_no_sense(void)
{
    ml_event events[] = HELD_EVENTS;
    fixture f;
    CHECK_INT(set_up(&f, events, COUNT(events)), 0);
    ml_demand *a = &f.workload->demands[0];
    a->freed = a->completed = 1; /* when it is born */
    CHECK_INT(run(&f), ML_EINVALID);
    a->freed = 4;
    a->completed = 3;
    CHECK_INT(run(&f), ML_EINVALID);
    a->freed = a->completed = 9; /* there are 8 */
    CHECK_INT(run(&f), ML_EINVALID);
    a->freed = a->completed = 8;
    CHECK_INT(run(&f), 0);
    tear_down(&f);
}

static void
test_memory_that_runs_out(void)
{
    ml_event events[] = HELD_EVENTS;
    fixture f;
    CHECK_INT(set_up(&f, events, COUNT(events)), 0);
    f.options.go_on = false;
    f.options.memory_bytes = 100 * MIB;
    CHECK_INT(run(&f), 0);
    CHECK_UINT(f.result.ooms, 1);
    CHECK_UINT(f.result.oom_event, 5);
    CHECK_UINT(f.result.oom_bytes, 60 * MIB);
    CHECK_UINT(f.result.oom_reserved, 60 * MIB);
    CHECK_UINT(f.result.events, 6); /* it ends with this one */
    f.options.go_on = true;
    CHECK_INT(run(&f), 0);
    CHECK_UINT(f.result.events, 8);
    CHECK_UINT(f.result.at_end.allocated, 40 * MIB);
    uint64_t least;
    CHECK_INT(ml_trial_least_memory(f.workload, &f.options, &least), 0);
    CHECK_UINT(least, 120 * MIB);
    tear_down(&f);
}

typedef struct sights {
    uint64_t blocks;
    uint64_t births; /* sum of the demands' indices, and of 100 for each that is free */
} sights;

static int
see(void *context, const ml_block *block, uint64_t birth)
{
    sights *seen = context;
    seen->blocks++;
    seen->births += block->state == ML_BLOCK_INACTIVE ? 100 : birth;
    return 0;
}

static void
test_what_there_is_at_an_event(void)
{
    ml_event events[] = HELD_EVENTS;
    fixture f;
    CHECK_INT(set_up(&f, events, COUNT(events)), 0);
    struct {
        size_t event;
        uint64_t blocks, births;
    } rows[] = {{ML_NO_EVENT, 0, 0}, {1, 1, 0}, {5, 3, 0 + 1 + 2}, {7, 3, 100 + 1 + 2}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        sights seen = {0};
        ml_ledger_visitor visitor = {.context = &seen, .block = see};
        CHECK_INT(ml_trial_visit(f.workload, &f.options, rows[i].event, &visitor), 0);
        CHECK_UINT(seen.blocks, rows[i].blocks);
        CHECK_UINT(seen.births, rows[i].births);
    }
    tear_down(&f);
}

/* 40 MiB of cache go back before 60 are taken: the program's doing, as there was room. */
static void
test_whose_doing_a_release_was(void)
{
    ml_event events[] = {
        of(ML_ACTION_SEGMENT_ALLOC, B, 40),  of(ML_ACTION_ALLOC, B, 40),
        of(ML_ACTION_FREE_REQUESTED, B, 40), of(ML_ACTION_FREE_COMPLETED, B, 40),
        of(ML_ACTION_SEGMENT_FREE, B, 40),   of(ML_ACTION_SEGMENT_ALLOC, C, 60),
        of(ML_ACTION_ALLOC, C, 60),          of(ML_ACTION_OOM, 0, 80),
    };
    fixture f;
    CHECK_INT(set_up(&f, events, COUNT(events) - 1), 0);
    CHECK_UINT(f.workload->mark_count, 1);
    CHECK_UINT(f.workload->marks[0].kind, ML_MARK_EMPTY_CACHE);
    CHECK_UINT(f.workload->marks[0].event, 4);
    CHECK_UINT(f.workload->refused, UINT64_MAX);
    tear_down(&f);
    /* Where 80 more were refused at the end, 100 may have been refused before. */
    CHECK_INT(set_up(&f, events, COUNT(events)), 0);
    CHECK_UINT(f.workload->mark_count, 1);
    CHECK_UINT(f.workload->marks[0].kind, ML_MARK_OOM);
    CHECK_UINT(f.workload->refused, 100 * MIB);
    CHECK(f.workload->by_driver);
    CHECK_UINT(f.workload->limit, 60 * MIB); /* it had nothing left */
    tear_down(&f);
}

static void
test_ranges(void)
{
    ml_ranges ranges = {0};
    CHECK_INT(ml_ranges_take(&ranges, 100, 100), 1);
    CHECK_INT(ml_ranges_take(&ranges, 200, 50), 1);
    CHECK_INT(ml_ranges_take(&ranges, 199, 1), 0);
    CHECK_INT(ml_ranges_take(&ranges, 50, 51), 0);
    CHECK_INT(ml_ranges_take(&ranges, 50, 50), 1);
    CHECK_INT(ml_ranges_take(&ranges, UINT64_MAX, 2), 0);
    CHECK_INT(ml_ranges_take(&ranges, 300, 0), 0);
    /* The middle, over two and a half of what is taken: [50, 80) and [220, 250) stay. */
    CHECK_INT(ml_ranges_give(&ranges, 80, 140), 0);
    CHECK_UINT(ranges.count, 2);
    CHECK_INT(ml_ranges_take(&ranges, 80, 141), 0);
    CHECK_INT(ml_ranges_take(&ranges, 80, 140), 1);
    CHECK_INT(ml_ranges_give(&ranges, 60, 10), 0);
    CHECK_INT(ml_ranges_take(&ranges, 60, 10), 1);
    CHECK_INT(ml_ranges_take(&ranges, 65, 1), 0);
    ml_ranges_fini(&ranges);
}

/* A block of 30 MiB goes, then 12 come: they are cut off it, unless it is too large. */
#define CUT_EVENTS \
    { \
        of(ML_ACTION_SEGMENT_ALLOC, A, 30), of(ML_ACTION_ALLOC, A, 30), \
            of(ML_ACTION_FREE_REQUESTED, A, 30), of(ML_ACTION_FREE_COMPLETED, A, 30), \
            of(ML_ACTION_ALLOC, A, 12) \
    }

static void
test_settings_that_decide_alike(void)
{
    ml_event events[] = CUT_EVENTS;
    fixture f;
    CHECK_INT(set_up(&f, events, COUNT(events)), 0);
    CHECK_INT(run(&f), 0);
    CHECK_UINT(f.result.peak.reserved, 30 * MIB);
    CHECK_UINT(f.result.slack.split_low, 30 * MIB + 1);
    CHECK_UINT(f.result.slack.split_high, UINT64_MAX);
    f.options.settings.max_split_bytes = 25 * MIB;
    CHECK_INT(run(&f), 0);
    CHECK_UINT(f.result.peak.reserved, 42 * MIB);
    CHECK_UINT(f.result.slack.split_low, 12 * MIB + 1);
    CHECK_UINT(f.result.slack.split_high, 30 * MIB);
    /* Whole for what is large itself: 18 MiB more than it asked for. */
    f.options.settings.max_split_bytes = 12 * MIB;
    f.options.settings.max_non_split_rounding = 20 * MIB;
    CHECK_INT(run(&f), 0);
    CHECK_UINT(f.result.peak.reserved, 30 * MIB);
    CHECK_UINT(f.result.peak.allocated, 30 * MIB);
    CHECK_UINT(f.result.slack.rounding_low, 18 * MIB + 1);
    CHECK_UINT(f.result.slack.rounding_high, UINT64_MAX);
    tear_down(&f);
}

/* Blocks of 30, 40 and 50 MiB one after the other take 120 MiB, or 60 in pages of 20 that
 * grow. */
static void
test_the_best_alone(void)
{
    ml_event events[] = {
        of(ML_ACTION_SEGMENT_ALLOC, A, 30),  of(ML_ACTION_ALLOC, A, 30),
        of(ML_ACTION_FREE_REQUESTED, A, 30), of(ML_ACTION_FREE_COMPLETED, A, 30),
        of(ML_ACTION_SEGMENT_ALLOC, B, 40),  of(ML_ACTION_ALLOC, B, 40),
        of(ML_ACTION_FREE_REQUESTED, B, 40), of(ML_ACTION_FREE_COMPLETED, B, 40),
        of(ML_ACTION_SEGMENT_ALLOC, C, 50),  of(ML_ACTION_ALLOC, C, 50)};
    fixture f;
    CHECK_INT(set_up(&f, events, COUNT(events)), 0);
    f.options.recorded_addresses = true;
    CHECK_INT(ml_trial_check(f.workload, &f.options, &f.result), 0);
    CHECK_UINT(f.result.peak.reserved, 120 * MIB);
    ml_tune *tune = NULL;
    ml_tuned best;
    ml_trial_options best_options;
    bool helps = false;
    CHECK_INT(ml_tune_new(&f.recording, 0, ML_WHATIF_RECORDED, &tune), 0);
    ml_trial_options placed = f.options;
    placed.recorded_addresses = false;
    ml_trial_result before;
    CHECK_INT(ml_trial_run(f.workload, &placed, &before), 0);
    CHECK_INT(ml_tune_best(f.workload, &f.options, &f.result, &placed, &before, &best,
                           &best_options, &helps),
              0);
    CHECK(helps && tune->helps);
    CHECK_STR(best.conf, "expandable_segments:True");
    CHECK_STR(tune->best.conf, best.conf);
    CHECK_UINT(best.result.peak.reserved, 60 * MIB);
    CHECK(best_options.settings.expandable_segments);
    CHECK_UINT(tune->best.result.peak.reserved, 60 * MIB);
    ml_tune_free(tune);
    tear_down(&f);
}

/* Where blocks are ordered by their making, a run that began with nothing and was refused
 * nothing is the same at other addresses; where they are ordered by address, or memory
 * was there before, it may not be. */
static void
test_any_addresses(void)
{
    ml_event events[] = HELD_EVENTS;
    fixture f;
    CHECK_INT(set_up(&f, events, COUNT(events)), 0);
    f.options.recorded_addresses = true;
    CHECK_INT(run(&f), 0);
    CHECK(!f.result.any_addresses && !f.result.placed);
    f.options.settings.order = ML_ORDER_BLOCK;
    CHECK_INT(run(&f), 0);
    CHECK(f.result.any_addresses);
    ml_trial_result recorded = f.result;
    f.options.recorded_addresses = false;
    CHECK_INT(run(&f), 0);
    CHECK(!f.result.any_addresses && f.result.placed);
    CHECK_UINT(f.result.peak.reserved, recorded.peak.reserved);
    CHECK_UINT(f.result.driver_calls, recorded.driver_calls);
    f.options.settings.expandable_segments = true;
    CHECK_INT(run(&f), 0);
    CHECK(!f.result.placed);
    f.options.recorded_addresses = true;
    CHECK_INT(run(&f), 0);
    CHECK(!f.result.any_addresses);
    tear_down(&f);

    ml_event before[] = {of(ML_ACTION_FREE_REQUESTED, A, 20),
                         of(ML_ACTION_FREE_COMPLETED, A, 20)};
    CHECK_INT(set_up(&f, before, COUNT(before)), 0);
    CHECK_UINT(f.workload->before_count, 1);
    f.options.settings.order = ML_ORDER_BLOCK;
    f.options.recorded_addresses = true;
    CHECK_INT(run(&f), 0);
    CHECK(!f.result.any_addresses);
    tear_down(&f);
}

/* The model shares one segment; the recording had one for each. */
static void
test_enough_mismatches(void)
{
    ml_event events[] = {of(ML_ACTION_SEGMENT_ALLOC, A, 20), of(ML_ACTION_ALLOC, A, 4),
                         of(ML_ACTION_SEGMENT_ALLOC, B, 20), of(ML_ACTION_ALLOC, B, 4),
                         of(ML_ACTION_SEGMENT_ALLOC, C, 20), of(ML_ACTION_ALLOC, C, 4)};
    fixture f;
    CHECK_INT(set_up(&f, events, COUNT(events)), 0);
    f.options.recorded_addresses = true;
    CHECK_INT(run(&f), 0);
    CHECK_UINT(f.result.mismatched_addresses, 2);
    CHECK_UINT(f.result.mismatched_segments, 2);
    CHECK_UINT(f.result.events, 6);
    f.options.enough_mismatches = 2;
    CHECK_INT(run(&f), 0);
    CHECK_UINT(f.result.mismatched_addresses, 1);
    CHECK_UINT(f.result.events, 4);
    tear_down(&f);
}

/* Fills EVENTS with COUNT blocks, each of 4 MiB in a segment of its own until the next one
 * comes.  Returns the number of events. */
static size_t
fill_alone(ml_event *events, size_t count)
{
    size_t made = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t addr = A + i * 64 * MIB;
        events[made++] = of(ML_ACTION_SEGMENT_ALLOC, addr, 20);
        events[made++] = of(ML_ACTION_ALLOC, addr, 4);
        if (i > 0) {
            events[made++] = of(ML_ACTION_FREE_REQUESTED, addr - 64 * MIB, 4);
            events[made++] = of(ML_ACTION_FREE_COMPLETED, addr - 64 * MIB, 4);
        }
    }
    return made;
}

/* The model puts all blocks into the first segment, in each version of torch: the first
 * 8,192 blocks tell that none is found, and the trial that is told is of all 9,000. */
static void
test_no_version_is_found(void)
{
    ml_event *events = ml_alloc_zeroed(4 * 9000, sizeof(*events));
    CHECK(events != NULL);
    size_t count = fill_alone(events, 9000);
    fixture f;
    CHECK_INT(set_up(&f, events, count), 0);
    f.options.recorded_addresses = true;
    f.options.most_demands = 100;
    CHECK_INT(run(&f), 0);
    CHECK(f.result.cut && !f.result.compared);
    CHECK_UINT(f.result.demands, 100);
    CHECK_UINT(f.result.mismatched_addresses, 99);
    CHECK_UINT(f.result.mismatched_segments, 99);
    f.options.most_demands = 0;
    CHECK_INT(ml_trial_check(f.workload, &f.options, &f.result), 0);
    CHECK(!f.result.cut);
    CHECK_UINT(f.result.demands, 9000);
    CHECK_UINT(f.result.mismatched_addresses, 8999);
    CHECK_UINT(f.options.settings.version, 211);
    tear_down(&f);
    ml_free(events);
}

/* Two free blocks of one size, of which the one at C was made first and B is lower: torch 2.11
 * takes B, 2.12 and 2.13 take C.  The steps before, which are alike in all versions, are more
 * than are tried in part. */
static void
test_a_version_is_found_late(void)
{
    size_t room = 3 * 9000 + 10;
    ml_event *events = ml_alloc_zeroed(room, sizeof(*events));
    CHECK(events != NULL);
    size_t made = 0;
    events[made++] = of(ML_ACTION_SEGMENT_ALLOC, C, 30);
    for (size_t i = 0; i < 9000; i++) {
        events[made++] = of(ML_ACTION_ALLOC, C, 30);
        events[made++] = of(ML_ACTION_FREE_REQUESTED, C, 30);
        events[made++] = of(ML_ACTION_FREE_COMPLETED, C, 30);
    }
    events[made++] = of(ML_ACTION_ALLOC, C, 30);
    events[made++] = of(ML_ACTION_SEGMENT_ALLOC, B, 30);
    events[made++] = of(ML_ACTION_ALLOC, B, 30);
    events[made++] = of(ML_ACTION_FREE_REQUESTED, B, 30);
    events[made++] = of(ML_ACTION_FREE_COMPLETED, B, 30);
    events[made++] = of(ML_ACTION_FREE_REQUESTED, C, 30);
    events[made++] = of(ML_ACTION_FREE_COMPLETED, C, 30);
    events[made++] = of(ML_ACTION_ALLOC, C, 30);
    fixture f;
    CHECK_INT(set_up(&f, events, made), 0);
    f.options.recorded_addresses = true;
    CHECK_INT(ml_trial_check(f.workload, &f.options, &f.result), 0);
    CHECK_UINT(f.result.mismatched_addresses, 0);
    CHECK(f.options.settings.order != ML_ORDER_ADDRESS);
    CHECK_UINT(f.result.demands, 9003);
    tear_down(&f);
    ml_free(events);
}

/* Every allocation of all of it fails in turn. */
static void
test_no_memory(void)
{
    ml_event events[] = HELD_EVENTS;
    fixture f;
    make_recording(&f, events, COUNT(events));
    int error = ML_ENOMEM;
    for (long budget = 0; error == ML_ENOMEM; budget++) {
        ml_tune *tune = NULL;
        budget_begin(budget);
        error = ml_tune_new(&f.recording, 0, 100 * MIB, &tune);
        ml_tune_free(tune);
        ml_recording_detach(&f.recording);
        budget_end();
        CHECK_INT(budget_alive, 0);
        CHECK(error == 0 || error == ML_ENOMEM);
        /* Past the first trials each is as those before. */
        budget += budget > 400 ? budget / 4 : 0;
    }
    CHECK_INT(error, 0);
}

static void
test_what_is_refused(void)
{
    ml_event events[] = HELD_EVENTS;
    fixture f;
    make_recording(&f, events, COUNT(events));
    CHECK_INT(ml_workload_new(&f.recording, 1, &f.workload), ML_EINVALID);
    f.recording.rules.has_segments = 0;
    CHECK_INT(ml_workload_new(&f.recording, 0, &f.workload), ML_EUNSUPPORTED);
}

/* Fractions are of what processes can have, as torch's are, not of the device's total. */
static void
test_the_memory_of_the_gpu(void)
{
    ml_event events[] = HELD_EVENTS;
    ml_note notes[] = {
        {.kind = ML_NOTE_GPU, .device = 1, .values = {1, 90 * MIB, 1, 0, 2 * MIB}},
        {.kind = ML_NOTE_GPU, .device = 0, .values = {1, 80 * MIB, 1, 0, 2 * MIB}},
    };
    fixture f;
    make_recording(&f, events, COUNT(events));
    CHECK_INT(ml_workload_new(&f.recording, 0, &f.workload), 0);
    CHECK_UINT(ml_trial_gpu_memory(f.workload), 0);
    f.recording.notes = notes;
    f.recording.note_count = COUNT(notes);
    CHECK_UINT(ml_trial_gpu_memory(f.workload), 78 * MIB);
    tear_down(&f);
}

int
main(void)
{
    RUN(test_as_recorded);
    RUN(test_a_free_that_is_moved);
    RUN(test_a_birth_that_is_moved);
    RUN(test_edits_that_make_no_sense);
    RUN(test_memory_that_runs_out);
    RUN(test_what_there_is_at_an_event);
    RUN(test_whose_doing_a_release_was);
    RUN(test_ranges);
    RUN(test_settings_that_decide_alike);
    RUN(test_the_best_alone);
    RUN(test_any_addresses);
    RUN(test_enough_mismatches);
    RUN(test_no_version_is_found);
    RUN(test_a_version_is_found_late);
    RUN(test_no_memory);
    RUN(test_what_is_refused);
    RUN(test_the_memory_of_the_gpu);
    return TEST_RESULT();
}
