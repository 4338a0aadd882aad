/* Timelines: columns by hand, against the replay event by event, and the peak's own sums. */
#include "show/draw/timeline.h"

#include "analysis/answers/peak.h"
#include "ledger/replay/replay.h"
#include "picture_samples.h"
#include "test.h"

#define MS UINT64_C(1000000)

/* Of 2 MiB, one block of 1 KiB that is a parameter and stays, and one that goes. */
static void
two_blocks(sample *f)
{
    sample_begin(f);
    sample_event(f, ML_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, 0);
    sample_event(f, ML_ACTION_ALLOC, BASE, 1000, 0);
    sample_tag(f, BASE, ML_CATEGORY_PARAMETER);
    sample_event(f, ML_ACTION_ALLOC, BASE + KIB, 600, 0);
    sample_event(f, ML_ACTION_FREE_REQUESTED, BASE + KIB, 600, 0);
    sample_event(f, ML_ACTION_FREE_COMPLETED, BASE + KIB, 600, 0);
}

static void
test_many_columns(void)
{
    sample f;
    two_blocks(&f);
    ml_timeline *t;
    CHECK_INT(ml_timeline_new(f.recording, 0, 1000, &t), 0);
    /* Four milliseconds; 1000 columns of 4000 ns would end with the last event. */
    CHECK_UINT(t->start, MS);
    CHECK_UINT(t->span_ns, 4 * MS);
    CHECK_UINT(t->column_ns, 4001);
    CHECK_UINT(t->column_count, 1000);
    CHECK_UINT(t->columns[0].reserved, 2 * MIB);
    CHECK_UINT(t->columns[248].allocated, 0);
    CHECK_UINT(t->columns[249].allocated, KIB);
    CHECK_UINT(t->columns[249].time, 2 * MS);
    CHECK_UINT(t->columns[249].of[ML_CATEGORY_PARAMETER], KIB);
    CHECK_UINT(t->columns[498].allocated, KIB);
    CHECK_UINT(t->columns[499].allocated, 2 * KIB);
    CHECK_UINT(t->columns[499].of[ML_CATEGORY_PARAMETER], KIB);
    CHECK_UINT(t->columns[499].of[ML_CATEGORY_TEMPORARY] +
                   t->columns[499].of[ML_CATEGORY_UNKNOWN],
               KIB);
    /* The one in which it goes begins with it. */
    CHECK_UINT(t->columns[749].allocated, 2 * KIB);
    CHECK_UINT(t->columns[749].time, MS + 749 * 4001);
    CHECK_UINT(t->columns[750].allocated, KIB);
    CHECK_UINT(t->columns[999].allocated, KIB);
    CHECK_UINT(t->peak, 499);
    CHECK_UINT(t->max_reserved, 2 * MIB);
    CHECK_UINT(t->misfits, 0);
    ml_timeline_free(t);
    sample_end(&f);
}

static void
test_few_columns(void)
{
    sample f;
    two_blocks(&f);
    ml_timeline *t;
    CHECK_INT(ml_timeline_new(f.recording, 0, 1, &t), 0);
    CHECK_UINT(t->column_count, 1);
    CHECK_UINT(t->columns[0].allocated, 2 * KIB);
    CHECK_UINT(t->columns[0].time, 3 * MS);
    ml_timeline_free(t);
    CHECK_INT(ml_timeline_new(f.recording, 1, 1, &t), ML_EINVALID);
    sample_end(&f);
}

static void
test_one_instant(void)
{
    sample f;
    two_blocks(&f);
    for (size_t i = 0; i < f.device.event_count; i++) {
        f.events[i].time = 7;
    }
    ml_timeline *t;
    CHECK_INT(ml_timeline_new(f.recording, 0, 1000, &t), 0);
    CHECK_UINT(t->column_count, 1);
    CHECK_UINT(t->column_ns, 1);
    CHECK_UINT(t->columns[0].allocated, 2 * KIB);
    ml_timeline_free(t);
    sample_end(&f);
}

static void
test_time_runs_backwards(void)
{
    sample f;
    two_blocks(&f);
    f.events[2].time = 0;
    ml_timeline *t;
    CHECK_INT(ml_timeline_new(f.recording, 0, 4, &t), 0);
    /* The third event counts as at the time of the second. */
    CHECK_UINT(t->start, MS);
    CHECK_UINT(t->column_ns, MS + 1);
    CHECK_UINT(t->column_count, 4);
    CHECK_UINT(t->columns[0].allocated, 2 * KIB);
    CHECK_UINT(t->columns[0].time, 2 * MS);
    CHECK_UINT(t->columns[3].allocated, KIB);
    ml_timeline_free(t);
    sample_end(&f);
}

static void
test_without_events(void)
{
    sample f;
    sample_begin(&f);
    sample_segment(&f, BASE, 0);
    sample_block(&f, 3 * KIB, 3000, ML_BLOCK_ALLOCATED, 0);
    sample_block(&f, 5 * KIB, 5000, ML_BLOCK_PENDING_FREE, 0);
    sample_block(&f, 2 * MIB - 8 * KIB, 0, ML_BLOCK_INACTIVE, 0);
    ml_timeline *t;
    CHECK_INT(ml_timeline_new(f.recording, 0, 1000, &t), 0);
    CHECK_UINT(t->column_count, 1);
    CHECK_UINT(t->columns[0].allocated, 3 * KIB);
    CHECK_UINT(t->columns[0].of[ML_CATEGORY_BEFORE_RECORDING], 3 * KIB);
    CHECK_UINT(t->max_reserved, 2 * MIB);
    ml_timeline_free(t);
    sample_end(&f);
}

static void
test_what_was_there_before_goes(void)
{
    sample f;
    sample_begin(&f);
    sample_event(&f, ML_ACTION_FREE_REQUESTED, BASE, 1000, 0);
    sample_event(&f, ML_ACTION_FREE_COMPLETED, BASE, 1000, 0);
    sample_event(&f, ML_ACTION_SNAPSHOT, 0, 0, 0);
    sample_segment(&f, BASE, 0);
    sample_block(&f, 2 * MIB, 0, ML_BLOCK_INACTIVE, 0);
    ml_timeline *t;
    CHECK_INT(ml_timeline_new(f.recording, 0, 2, &t), 0);
    CHECK_UINT(t->columns[0].of[ML_CATEGORY_BEFORE_RECORDING], KIB);
    CHECK_UINT(t->columns[0].allocated, KIB);
    CHECK_UINT(t->columns[1].allocated, 0);
    CHECK_UINT(t->columns[1].of[ML_CATEGORY_BEFORE_RECORDING], 0);
    ml_timeline_free(t);
    sample_end(&f);
}

static uint32_t seed;

static uint32_t
next_random(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

/* 64 blocks of 32 KiB side by side, every other one of which goes and comes back; some get
 * tags.  With MISFITS the sizes are any, and frees are missing. */
static void
any_events(sample *f, bool misfits)
{
    bool used[64] = {false};
    sample_begin(f);
    sample_event(f, ML_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, 0);
    for (uint32_t n = 0; f->device.event_count < 250; n++) {
        uint32_t i = n < 64 ? n : 2 * next_random(32);
        uint64_t addr = BASE + i * 32 * KIB;
        if (used[i] && !(misfits && next_random(8) == 0)) {
            sample_event(f, ML_ACTION_FREE_REQUESTED, addr, 1, 0);
            sample_event(f, ML_ACTION_FREE_COMPLETED, addr, 1, 0);
            used[i] = false;
        }
        else {
            uint64_t size = misfits ? 1 + next_random(100000) : 32 * KIB;
            sample_event(f, ML_ACTION_ALLOC, addr, size, 0);
            used[i] = true;
            if (next_random(2) == 0) {
                sample_tag(f, addr,
                           (enum ml_category)next_random(ML_CATEGORY_TAG_LAST + 1));
            }
        }
        f->events[f->device.event_count - 1].time += next_random(1000000);
    }
}

/* The most allocated and reserved bytes of each column, by a replay of every event. */
static void
check_columns(const sample *f, const ml_timeline *t)
{
    uint64_t allocated[64] = {0};
    uint64_t reserved[64] = {0};
    CHECK(t->column_count <= 64);
    ml_replay *replay;
    CHECK_INT(ml_replay_new(f->recording, 0, &replay), 0);
    size_t column = 0;
    uint64_t time = t->start;
    for (size_t i = 0; i < f->device.event_count; i++) {
        time = f->events[i].time > time ? f->events[i].time : time;
        ml_totals before = *ml_replay_totals(replay);
        while (t->start + (column + 1) * t->column_ns <= time) {
            column++;
            allocated[column] = before.allocated;
            reserved[column] = before.reserved;
        }
        ml_replay_next(replay);
        const ml_totals *now = ml_replay_totals(replay);
        allocated[column] =
            now->allocated > allocated[column] ? now->allocated : allocated[column];
        reserved[column] =
            now->reserved > reserved[column] ? now->reserved : reserved[column];
    }
    ml_replay_free(replay);
    CHECK_UINT(column + 1, t->column_count);
    for (size_t i = 0; i < t->column_count; i++) {
        uint64_t sum = 0;
        for (size_t k = 0; k < ML_CATEGORY_COUNT; k++) {
            sum += t->columns[i].of[k];
        }
        CHECK_UINT(t->columns[i].allocated, allocated[i]);
        CHECK_UINT(t->columns[i].reserved, reserved[i]);
        CHECK_UINT(sum, allocated[i]);
    }
}

static void
test_against_the_replay_and_the_peak(void)
{
    for (uint32_t round = 0; round < 60; round++) {
        seed = round;
        sample f;
        any_events(&f, round % 2 == 1);
        size_t most = 1 + next_random(64);
        ml_timeline *t;
        CHECK_INT(ml_timeline_new(f.recording, 0, most, &t), 0);
        CHECK(t->column_count <= most);
        CHECK(round % 2 == 1 || t->misfits == 0);
        check_columns(&f, t);
        ml_peak *peak;
        CHECK_INT(ml_peak_new(f.recording, 0, &peak), 0);
        CHECK_UINT(t->columns[t->peak].allocated, peak->totals.allocated);
        CHECK_UINT(t->max_reserved, peak->window_peaks.reserved);
        for (size_t k = 0; round % 2 == 0 && k < ML_CATEGORY_COUNT; k++) {
            CHECK_UINT(t->columns[t->peak].of[k], peak->categories[k].bytes);
        }
        ml_peak_free(peak);
        ml_timeline_free(t);
        sample_end(&f);
        if (test_broken) {
            CHECK_FAIL("round %u", (unsigned)round);
        }
    }
}

static void
test_memory_failures(void)
{
    sample f;
    two_blocks(&f);
    int result = ML_ENOMEM;
    long tries = 0;
    for (; result == ML_ENOMEM && tries < 200; tries++) {
        ml_timeline *t = NULL;
        budget_begin(tries);
        result = ml_timeline_new(f.recording, 0, 10, &t);
        ml_timeline_free(t);
        ml_recording_detach(f.recording);
        budget_end();
        CHECK_INT(budget_alive, 0);
    }
    CHECK_INT(result, 0);
    CHECK(tries > 10);
    sample_end(&f);
}

int
main(void)
{
    RUN(test_many_columns);
    RUN(test_few_columns);
    RUN(test_one_instant);
    RUN(test_time_runs_backwards);
    RUN(test_without_events);
    RUN(test_what_was_there_before_goes);
    RUN(test_against_the_replay_and_the_peak);
    RUN(test_memory_failures);
    return TEST_RESULT();
}
