/* Out of memory in block maps worked out by hand. */
#include "analysis/answers/oom.h"

#include "budget.h"
#include "oom_samples.h"
#include "recording_samples.h"
#include "test.h"

#define NEXT (BASE + GIB)

#define CHECK_UNUSED(f, kind, bytes_, pieces_, largest_) \
    do { \
        const ml_oom_unused *u_ = &(f)->oom->unused[ML_OOM_UNUSED_##kind]; \
        CHECK_UINT(u_->bytes, bytes_); \
        CHECK_UINT(u_->pieces, pieces_); \
        CHECK_UINT(u_->largest, largest_); \
    } while (0)

static void
test_fragmented(void)
{
    fixture f;
    set_up(&f);
    add_fragments(&f);
    OOM(&f, MIB, 8 * MIB)->stack = user_line(&f, 9);
    ANSWER(&f);
    const ml_oom *oom = f.oom;
    CHECK_VERDICT(&f, "fragmented");
    CHECK_UINT(oom->event, 9);
    CHECK_UINT(oom->requested, 8 * MIB);
    CHECK_UINT(oom->driver_request, 20 * MIB);
    CHECK_UINT(oom->device_free, MIB);
    CHECK_UINT(oom->headroom, MIB);
    CHECK_UINT(oom->total, ML_OOM_UNKNOWN);
    CHECK_UINT(oom->outside, ML_OOM_UNKNOWN);
    CHECK_UINT(oom->state->totals.allocated, 8 * MIB);
    CHECK_UINT(oom->state->totals.reserved, 20 * MIB);
    CHECK_UNUSED(&f, ELIGIBLE, 12 * MIB, 2, 6 * MIB);
    CHECK_UNUSED(&f, OTHER_SIZE, 0, 0, 0);
    CHECK_UINT(oom->hole_count, 2);
    CHECK_UINT(oom->holes[0].addr, BASE);
    CHECK_UINT(oom->holes[0].size, 6 * MIB);
    CHECK_UINT(oom->holes[0].segment_bytes, 20 * MIB);
    CHECK_UINT(oom->holes[0].before.size, 0);
    CHECK_UINT(oom->holes[0].after.addr, BASE + 6 * MIB);
    CHECK_UINT(oom->holes[0].after.size, 4 * MIB);
    CHECK_INT(oom->holes[0].after.event, 2);
    CHECK_INT(oom->holes[0].after.place, 0);
    CHECK_UINT(oom->holes[1].before.addr, BASE + 6 * MIB);
    CHECK_UINT(oom->holes[1].after.addr, BASE + 16 * MIB);
    CHECK_INT(oom->holes[1].after.place, 1);
    /* A and B together, with the 4 MiB of B in use. */
    CHECK_UINT(oom->fit.addr, BASE);
    CHECK_UINT(oom->fit.size, 10 * MIB);
    CHECK_UINT(oom->fit.used, 4 * MIB);
    CHECK_UINT(oom->fit.used_blocks, 1);
    CHECK_INT(oom->fit.largest[0].event, 2);
    CHECK_UINT(oom->fit.largest[1].size, 0);
    CHECK_STR(advice_text(oom), "expandable_segments:12 one_line:4");
    CHECK_INT(oom->state->lines[oom->line].line, 2);
    CHECK_INT(f.made.recording->frames[oom->cause.frame].line, 9);
    /* Autograd took note of nothing, and no module was called. */
    CHECK_STR(ml_phase_text(oom->cause.phase), "unknown");
    tear_down(&f);
}

/* The cache of 12 MiB alone does not do for 20; with 8 that the driver has left it does,
 * with 6 it does not. */
static void
test_fragmented_with_what_is_left(void)
{
    fixture f;
    set_up(&f);
    add_fragments(&f);
    OOM(&f, 8 * MIB, 20 * MIB);
    ANSWER(&f);
    CHECK_VERDICT(&f, "fragmented");
    CHECK_UINT(f.oom->fit.used, 8 * MIB);
    CHECK_UINT(f.oom->fit.used_blocks, 2);
    CHECK_UINT(f.oom->fit.largest[1].size, 4 * MIB);
    tear_down(&f);

    set_up(&f);
    add_fragments(&f);
    OOM(&f, 6 * MIB, 20 * MIB);
    ANSWER(&f);
    CHECK_VERDICT(&f, "full");
    tear_down(&f);
}

static void
test_too_big(void)
{
    fixture f;
    set_up(&f);
    add_fragments(&f);
    OOM(&f, 40 * MIB, 100 * MIB);
    ANSWER(&f);
    /* Without the total: 20 MiB reserved and 40 MiB free are all there is. */
    CHECK_VERDICT(&f, "too_big");
    CHECK_STR(advice_text(f.oom), "request:100");
    CHECK_UINT(f.oom->fit.size, 0);
    tear_down(&f);

    set_up(&f);
    add_fragments(&f);
    OOM(&f, 40 * MIB, 70 * MIB);
    add_note(&f, ML_NOTE_OOM, SAMPLE_TIME(&f.made), 70 * MIB, 40 * MIB, 101 * MIB, 0);
    ANSWER(&f);
    /* Of 101 MiB 20 are reserved, 40 free and 41 somebody else's: 81 would do. */
    CHECK_VERDICT(&f, "outside");
    CHECK_UINT(f.oom->outside, 41 * MIB);
    CHECK_STR(advice_text(f.oom), "outside:41 one_line:4");
    tear_down(&f);
}

/* 20 MiB reserved, 60 free, and a limit of 50. */
static void
test_limit(void)
{
    fixture f;
    set_up(&f);
    add_fragments(&f);
    OOM(&f, 60 * MIB, 40 * MIB);
    add_note(&f, ML_NOTE_OOM, SAMPLE_TIME(&f.made), 40 * MIB, 60 * MIB, 90 * MIB,
             50 * MIB);
    ANSWER(&f);
    CHECK_VERDICT(&f, "limit");
    CHECK_UINT(f.oom->allowed, 50 * MIB);
    CHECK_UINT(f.oom->headroom, 30 * MIB);
    CHECK_UINT(f.oom->outside, 10 * MIB);
    CHECK_STR(advice_text(f.oom),
              "raise_limit:30 expandable_segments:12 outside:10 one_line:4");
    tear_down(&f);

    set_up(&f);
    OOM(&f, 60 * MIB, 52 * MIB);
    add_note(&f, ML_NOTE_OOM, UINT64_C(1000000), 52 * MIB, 60 * MIB, 90 * MIB,
             50 * MIB);
    ANSWER(&f);
    CHECK_VERDICT(&f, "too_big"); /* for the limit, with nothing allocated at all */
    tear_down(&f);
}

/* A note of another time, device or failure is not this one's. */
static void
test_only_its_own_note(void)
{
    fixture f;
    set_up(&f);
    add_fragments(&f);
    uint64_t time = SAMPLE_TIME(&f.made) + 1000000;
    OOM(&f, 60 * MIB, 40 * MIB);
    add_note(&f, ML_NOTE_OOM, time - 1, 1, 60 * MIB, 2, 3);
    add_note(&f, ML_NOTE_OOM, time, 1, 61 * MIB, 2, 3);
    add_note(&f, ML_NOTE_OOM, time, 1, 60 * MIB, 2, 3);
    f.made.notes[2].device = 1;
    add_note(&f, ML_NOTE_GPU, time, 1, 60 * MIB, 2, 3);
    ANSWER(&f);
    CHECK_UINT(f.oom->total, ML_OOM_UNKNOWN);
    CHECK_UINT(f.oom->driver_request, 40 * MIB);
    CHECK_VERDICT(&f, "driver");
    tear_down(&f);
}

/* What a free block of each kind is good for. */
static void
test_cache_that_cannot_serve(void)
{
    fixture f;
    set_up(&f);
    add(&f, ML_ACTION_SEGMENT_ALLOC, BASE, 20 * MIB); /* its own: 4 of 20 MiB free */
    add_alloc(&f, BASE, 16 * MIB, 0);
    add(&f, ML_ACTION_SEGMENT_ALLOC, NEXT, 2 * MIB); /* small: all but 512 B */
    add_alloc(&f, NEXT, 512, 0);
    f.stream = 7;
    add(&f, ML_ACTION_SEGMENT_ALLOC, NEXT + GIB, 20 * MIB); /* stream 7: 12 MiB free */
    add_alloc(&f, NEXT + GIB, 8 * MIB, 0);
    f.stream = 0;
    f.pool = 3;
    add(&f, ML_ACTION_SEGMENT_ALLOC, NEXT + 2 * GIB, 30 * MIB); /* a graph's: 20 */
    add_alloc(&f, NEXT + 2 * GIB, 10 * MIB, 0);
    f.pool = 0;
    OOM(&f, 0, 12 * MIB);
    ANSWER(&f);
    CHECK_VERDICT(&f, "not_eligible");
    CHECK_UNUSED(&f, ELIGIBLE, 4 * MIB, 1, 4 * MIB);
    CHECK_UNUSED(&f, OTHER_SIZE, 2 * MIB - 512, 1, 2 * MIB - 512);
    CHECK_UNUSED(&f, OTHER_STREAM, 12 * MIB, 1, 12 * MIB);
    CHECK_UNUSED(&f, OTHER_POOL, 20 * MIB, 1, 20 * MIB);
    CHECK_UNUSED(&f, OVERSIZE, 0, 0, 0);
    CHECK_STR(advice_text(f.oom), "other_stream:12 other_pool:20");
    CHECK_UINT(f.oom->hole_count, 1);
    /* Only its own segment counts, where the block in use alone would do: no fit. */
    CHECK_UINT(f.oom->fit.size, 0);
    tear_down(&f);
}

/* A request of the graph's own pool sees the rest as the other pool. */
static void
test_request_of_a_private_pool(void)
{
    fixture f;
    set_up(&f);
    add_fragments(&f);
    f.pool = 3;
    OOM(&f, 0, 8 * MIB);
    ANSWER(&f);
    CHECK_UNUSED(&f, ELIGIBLE, 0, 0, 0);
    CHECK_UNUSED(&f, OTHER_POOL, 12 * MIB, 2, 6 * MIB);
    CHECK_VERDICT(&f, "not_eligible");
    tear_down(&f);
}

/* torch up to 2.11 does not say the pool of an event: that of the segment at the end. */
static void
test_pool_of_the_end(void)
{
    fixture f;
    set_up(&f);
    f.flags = 0;
    add_fragments(&f);
    OOM(&f, 0, 8 * MIB);
    finish(&f);
    f.made.segments[0].pool[0] = f.made.segments[0].pool[1] = 3;
    CHECK_INT(ml_oom_new(f.made.recording, 0, 9, &f.oom), 0);
    CHECK(!f.oom->pool_known);
    CHECK_UNUSED(&f, OTHER_POOL, 12 * MIB, 2, 6 * MIB);
    tear_down(&f);
}

/* With max_split_size a free block above it is not split for a smaller request. */
static void
test_oversize(void)
{
    fixture f;
    set_up(&f);
    f.made.recording->rules.max_split_bytes = 30 * MIB;
    add(&f, ML_ACTION_SEGMENT_ALLOC, BASE, 64 * MIB);
    add_alloc(&f, BASE, 64 * MIB, 0);
    add_free(&f, BASE, 64 * MIB);
    OOM(&f, 0, 12 * MIB);
    ANSWER(&f);
    CHECK_VERDICT(&f, "not_eligible");
    CHECK_UNUSED(&f, OVERSIZE, 64 * MIB, 1, 64 * MIB);
    CHECK_STR(advice_text(f.oom), "max_split_size:64");
    tear_down(&f);

    set_up(&f);
    f.made.recording->rules.max_split_bytes = 30 * MIB;
    add(&f, ML_ACTION_SEGMENT_ALLOC, BASE, 64 * MIB);
    add_alloc(&f, BASE, 64 * MIB, 0);
    add_free(&f, BASE, 64 * MIB);
    OOM(&f, 0, 46 * MIB); /* 18 MiB more than asked: taken whole */
    ANSWER(&f);
    CHECK_UNUSED(&f, OVERSIZE, 0, 0, 0);
    CHECK_VERDICT(&f, "unexplained");
    tear_down(&f);
}

static void
test_driver_refuses_what_is_free(void)
{
    fixture f;
    set_up(&f);
    OOM(&f, 20 * MIB, 8 * MIB);
    add_note(&f, ML_NOTE_OOM, UINT64_C(1000000), 20 * MIB, 20 * MIB, 90 * MIB, 0);
    ANSWER(&f);
    CHECK_VERDICT(&f, "driver");
    tear_down(&f);
}

/* Runs of mapped pages are segments; with the setting on it is no advice. */
static void
test_expandable_segments(void)
{
    fixture f;
    set_up(&f);
    f.made.recording->rules.expandable_segments = 1;
    add(&f, ML_ACTION_SEGMENT_MAP, BASE, 20 * MIB);
    add(&f, ML_ACTION_SEGMENT_MAP, BASE + 20 * MIB, 20 * MIB);
    add_alloc(&f, BASE, 15 * MIB, 0);
    add_alloc(&f, BASE + 15 * MIB, 10 * MIB, 0);
    add_alloc(&f, BASE + 25 * MIB, 10 * MIB, 0);
    add_free(&f, BASE + 15 * MIB, 10 * MIB);
    OOM(&f, 0, 12 * MIB);
    ANSWER(&f);
    CHECK_VERDICT(&f, "fragmented");
    CHECK(f.oom->expandable);
    CHECK_UINT(f.oom->driver_request, 20 * MIB);
    CHECK_UNUSED(&f, ELIGIBLE, 15 * MIB, 2, 10 * MIB);
    CHECK_UINT(f.oom->holes[0].segment_bytes, 40 * MIB);
    CHECK_STR(advice_text(f.oom), "");
    /* The hole of 10, the block of 10 after it. */
    CHECK_UINT(f.oom->fit.used, 10 * MIB);
    tear_down(&f);
}

/* A block whose free waits for another stream is no hole, and has no owner. */
static void
test_pending_neighbour(void)
{
    fixture f;
    set_up(&f);
    add_fragments(&f);
    add(&f, ML_ACTION_FREE_REQUESTED, BASE + 6 * MIB, 4 * MIB);
    OOM(&f, 0, 8 * MIB);
    ANSWER(&f);
    CHECK_UINT(f.oom->pending, 4 * MIB);
    CHECK_UNUSED(&f, ELIGIBLE, 12 * MIB, 2, 6 * MIB);
    CHECK_UINT(f.oom->holes[0].after.size, 4 * MIB);
    CHECK_INT(f.oom->holes[0].after.place, -1);
    CHECK_UINT(f.oom->state->totals.allocated, 4 * MIB);
    tear_down(&f);
}

/* The instant is the event's: before it torch gave 30 MiB back, after it memory goes on.
 * The first of two is another instant. */
static void
test_the_instant(void)
{
    fixture f;
    set_up(&f);
    add_fragments(&f);
    OOM(&f, 0, 2 * MIB); /* 9 */
    add(&f, ML_ACTION_SEGMENT_ALLOC, NEXT, 30 * MIB);
    add_alloc(&f, NEXT, 30 * MIB, 0);
    add_free(&f, NEXT, 30 * MIB);
    add(&f, ML_ACTION_SEGMENT_FREE, NEXT, 30 * MIB);
    OOM(&f, 0, 8 * MIB); /* 15 */
    add_alloc(&f, BASE, 6 * MIB, 0);
    add_alloc(&f, BASE + 10 * MIB, 6 * MIB, 0);
    ANSWER(&f);
    CHECK_UINT(f.oom->event, 15);
    CHECK_UINT(f.oom->number, 2);
    CHECK_UINT(f.oom->count, 2);
    CHECK_UINT(f.oom->released, 30 * MIB);
    CHECK_UINT(f.oom->state->totals.allocated, 8 * MIB);
    CHECK_UINT(f.oom->state->totals.reserved, 20 * MIB);
    CHECK_UNUSED(&f, ELIGIBLE, 12 * MIB, 2, 6 * MIB);
    ml_oom_free(f.oom);
    f.oom = NULL;
    CHECK_INT(ml_oom_new(f.made.recording, 0, 9, &f.oom), 0);
    CHECK_UINT(f.oom->number, 1);
    CHECK_UINT(f.oom->released, 0);
    CHECK_VERDICT(&f, "unexplained");
    tear_down(&f);
}

/* As a file may say: nothing was asked for, and less than nothing is left. */
static void
test_a_request_of_nothing(void)
{
    fixture f;
    set_up(&f);
    add_fragments(&f);
    OOM(&f, 0, 0);
    ANSWER(&f);
    CHECK_UINT(f.oom->requested, 0);
    CHECK_UINT(f.oom->fit.size, 0);
    tear_down(&f);
}

static void
test_no_such_event(void)
{
    fixture f;
    set_up(&f);
    CHECK_INT(ml_oom_last(f.made.recording, 0), -1);
    CHECK_INT(ml_oom_last(f.made.recording, 1), -1);
    add_fragments(&f);
    CHECK_INT(ml_oom_last(f.made.recording, 0), -1);
    OOM(&f, 0, 8 * MIB);
    CHECK_INT(ml_oom_last(f.made.recording, 0), 9);
    CHECK_INT(ml_oom_new(f.made.recording, 0, 8, &f.oom), ML_EINVALID);
    CHECK_INT(ml_oom_new(f.made.recording, 0, 10, &f.oom), ML_EINVALID);
    CHECK_INT(ml_oom_new(f.made.recording, 1, 9, &f.oom), ML_EINVALID);
    tear_down(&f);
}

/* Rules without segments: no cache, no driver to speak of. */
static void
test_without_segments(void)
{
    fixture f;
    set_up(&f);
    f.made.recording->rules.has_segments = 0;
    add_alloc(&f, BASE, 100, 0);
    OOM(&f, 0, 8 * MIB);
    ANSWER(&f);
    CHECK_UINT(f.oom->state->totals.allocated, 100);
    CHECK_UINT(f.oom->hole_count, 0);
    CHECK_UINT(f.oom->fit.size, 0);
    tear_down(&f);
}

/* More holes than are kept: the largest, in order. */
static void
test_many_holes(void)
{
    fixture f;
    set_up(&f);
    add(&f, ML_ACTION_SEGMENT_ALLOC, BASE, 64 * MIB);
    for (uint64_t i = 0; i < 8; i++) {
        add_alloc(&f, BASE + i * 8 * MIB, (2 + (i * 3) % 6) * MIB, 0);
        add_alloc(&f, BASE + i * 8 * MIB + (2 + (i * 3) % 6) * MIB,
                  (6 - (i * 3) % 6) * MIB, 0);
    }
    for (uint64_t i = 0; i < 8; i++) {
        add_free(&f, BASE + i * 8 * MIB, (2 + (i * 3) % 6) * MIB);
    }
    OOM(&f, 0, 9 * MIB);
    ANSWER(&f);
    /* 2 5 2 5 2 5 2 5 */
    CHECK_UNUSED(&f, ELIGIBLE, 28 * MIB, 8, 5 * MIB);
    CHECK_UINT(f.oom->hole_count, ML_OOM_HOLES);
    for (int i = 0; i < 4; i++) {
        CHECK_UINT(f.oom->holes[i].size, 5 * MIB);
        CHECK_UINT(f.oom->holes[i].addr, BASE + (2 * (uint64_t)i + 1) * 8 * MIB);
    }
    CHECK_UINT(f.oom->holes[4].size, 2 * MIB);
    CHECK_UINT(f.oom->holes[4].addr, BASE);
    /* 5 free, 3 in use, 2 free. */
    CHECK_UINT(f.oom->fit.size, 10 * MIB);
    CHECK_UINT(f.oom->fit.used, 3 * MIB);
    tear_down(&f);
}

/* Every allocation fails in turn, and nothing is left behind. */
static void
test_out_of_memory(void)
{
    fixture f;
    set_up(&f);
    add_steps(&f, 6, true, false);
    OOM(&f, 0, 50 * MIB);
    finish(&f);
    size_t last = f.made.device.event_count - 1;
    int result = ML_ENOMEM;
    for (long budget = 0; result == ML_ENOMEM; budget++) {
        budget_begin(budget);
        result = ml_oom_new(f.made.recording, 0, last, &f.oom);
        if (result == 0) {
            ml_oom_free(f.oom);
            f.oom = NULL;
        }
        ml_recording_detach(f.made.recording);
        bool clean = budget_alive == 0;
        budget_end();
        CHECK(clean);
        CHECK(budget < 10000);
    }
    CHECK_INT(result, 0);
    tear_down(&f);
}

int
main(void)
{
    RUN(test_fragmented);
    RUN(test_fragmented_with_what_is_left);
    RUN(test_too_big);
    RUN(test_limit);
    RUN(test_only_its_own_note);
    RUN(test_cache_that_cannot_serve);
    RUN(test_request_of_a_private_pool);
    RUN(test_pool_of_the_end);
    RUN(test_oversize);
    RUN(test_driver_refuses_what_is_free);
    RUN(test_expandable_segments);
    RUN(test_pending_neighbour);
    RUN(test_the_instant);
    RUN(test_a_request_of_nothing);
    RUN(test_no_such_event);
    RUN(test_without_segments);
    RUN(test_many_holes);
    RUN(test_out_of_memory);
    return TEST_RESULT();
}
