/* Out of memory in block maps worked out by hand. */
#include "analysis/answers/oom.h"

#include <stdlib.h>

#include "base/base.h"
#include "budget.h"
#include "recording_samples.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define BASE UINT64_C(0x7f0000000000)
#define NEXT (BASE + GIB)

/* Stream, pool and flags are those of the events to come. */
typedef struct fixture {
    sample made;
    uint64_t stream;
    uint32_t pool;
    uint8_t flags;
    ml_oom *oom;
} fixture;

static void
set_up(fixture *f)
{
    memset(f, 0, sizeof(*f));
    sample_begin(&f->made);
    f->flags = ML_EVENT_POOL_KNOWN;
}

static void
tear_down(fixture *f)
{
    ml_oom_free(f->oom);
    sample_end(&f->made);
}

static uint32_t
add_frame(fixture *f, uint32_t parent, const char *file, int line, const char *name,
          const char *module)
{
    return sample_call(f->made.recording, parent, file, line, name, module);
}

static uint32_t
user_line(fixture *f, int line)
{
    return add_frame(f, 0, "train.py", line, "step", NULL);
}

static ml_event *
add(fixture *f, enum ml_action action, uint64_t addr, uint64_t size)
{
    ml_event *event = sample_event(&f->made, action, addr, size, 0);
    event->stream = f->stream;
    event->pool[0] = event->pool[1] = f->pool;
    event->flags = f->flags;
    return event;
}

static void
add_alloc(fixture *f, uint64_t addr, uint64_t size, uint32_t stack)
{
    add(f, ML_ACTION_ALLOC, addr, size)->stack = stack;
}

static void
add_free(fixture *f, uint64_t addr, uint64_t size)
{
    add(f, ML_ACTION_FREE_REQUESTED, addr, size);
    add(f, ML_ACTION_FREE_COMPLETED, addr, size);
}

static void
add_note(fixture *f, enum ml_note_kind kind, uint64_t time, uint64_t a, uint64_t b,
         uint64_t c, uint64_t d)
{
    ml_note *note = &f->made.notes[f->made.recording->note_count++];
    *note = (ml_note){.time = time, .kind = (uint8_t)kind};
    note->values[0] = a;
    note->values[1] = b;
    note->values[2] = c;
    note->values[3] = d;
}

/* The memory at the end, which a real recording has: that after all events. */
static int
end_segment(void *context, const ml_segment *segment)
{
    fixture *f = context;
    f->made.segments[f->made.device.segment_count++] = *segment;
    return 0;
}

static int
end_block(void *context, const ml_block *block, uint64_t birth)
{
    fixture *f = context;
    (void)birth;
    f->made.blocks[f->made.device.block_count++] = *block;
    return 0;
}

static void
finish(fixture *f)
{
    ml_ledger *ledger;
    ml_ledger_new(&ledger, &f->made.recording->rules, 1024);
    for (size_t i = 0; i < f->made.device.event_count; i++) {
        ml_event event = f->made.events[i];
        ml_ledger_apply(ledger, &event);
    }
    ml_ledger_visitor visitor = {f, end_segment, end_block};
    ml_ledger_visit(ledger, &visitor);
    ml_ledger_free(ledger);
}

/* The answer for the last OOM event, which the replay must fit. */
#define ANSWER(f) \
    do { \
        finish(f); \
        CHECK_INT(ml_recording_validate((f)->made.recording), 0); \
        int64_t last_ = ml_oom_last((f)->made.recording, 0); \
        CHECK(last_ >= 0); \
        CHECK_INT(ml_oom_new((f)->made.recording, 0, (uint64_t)last_, &(f)->oom), 0); \
        CHECK_UINT((f)->oom->state->replay.misfits, 0); \
        CHECK_UINT((f)->oom->state->replay.mismatched_blocks, 0); \
    } while (0)

#define CHECK_VERDICT(f, text) CHECK_STR(ml_oom_verdict_text((f)->oom->verdict), text)

#define CHECK_UNUSED(f, kind, bytes_, pieces_, largest_) \
    do { \
        const ml_oom_unused *u_ = &(f)->oom->unused[ML_OOM_UNUSED_##kind]; \
        CHECK_UINT(u_->bytes, bytes_); \
        CHECK_UINT(u_->pieces, pieces_); \
        CHECK_UINT(u_->largest, largest_); \
    } while (0)

/* The advice in order, "kind:MiB ...". */
static const char *
advice_text(const ml_oom *oom)
{
    static char text[512];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < oom->advice_count; i++) {
        used +=
            (size_t)snprintf(text + used, sizeof(text) - used, "%s%s:%llu",
                             i == 0 ? "" : " ", ml_oom_advice_text(oom->advice[i].kind),
                             (unsigned long long)(oom->advice[i].bytes / MIB));
    }
    return text;
}

#define OOM(f, free, size) add(f, ML_ACTION_OOM, free, size)

/* One segment of 20 MiB: A 6, B 4, C 6, D 4 MiB; A and C are freed, 8 MiB asked for. */
static void
add_fragments(fixture *f)
{
    add(f, ML_ACTION_SEGMENT_ALLOC, BASE, 20 * MIB);
    add_alloc(f, BASE, 6 * MIB, user_line(f, 1));
    add_alloc(f, BASE + 6 * MIB, 4 * MIB, user_line(f, 2));
    add_alloc(f, BASE + 10 * MIB, 6 * MIB, user_line(f, 3));
    add_alloc(f, BASE + 16 * MIB, 4 * MIB, user_line(f, 4));
    add_free(f, BASE, 6 * MIB);
    add_free(f, BASE + 10 * MIB, 6 * MIB);
}

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

static void
test_where_it_was_asked(void)
{
    fixture f;
    set_up(&f);
    uint32_t stack = add_frame(&f, 0, "train.py", 41, "step", NULL);
    stack =
        add_frame(&f, stack, "/lib/python3.11/site-packages/torch/nn/modules/module.py",
                  1, "_call_impl", "model.h.3.mlp");
    stack = add_frame(&f, stack, "/lib/python3.11/site-packages/torch/nn/functional.py",
                      2, "cross_entropy", NULL);
    OOM(&f, 0, 8 * MIB)->stack = stack;
    ANSWER(&f);
    CHECK_INT(f.made.recording->frames[f.oom->cause.frame].line, 41);
    ml_string module = f.made.recording->strings[f.oom->cause.module];
    CHECK_TEXT(module.bytes, module.length, "model.h.3.mlp");
    CHECK_VERDICT(&f, "too_big");
    tear_down(&f);

    set_up(&f);
    add_fragments(&f);
    stack = add_frame(&f, 0, "/lib/python3.11/site-packages/torch/nn/functional.py", 2,
                      "cross_entropy", NULL);
    OOM(&f, 0, 18 * MIB)->stack = stack;
    ANSWER(&f);
    CHECK_VERDICT(&f, "full");
    CHECK_STR(advice_text(f.oom), "logits:18 one_line:4");
    tear_down(&f);

    set_up(&f);
    add_fragments(&f);
    ml_event *event = OOM(&f, 0, 18 * MIB);
    event->flags |= ML_EVENT_BACKWARD | ML_EVENT_NO_PYTHON;
    event->node = sample_string(f.made.recording,
                                "N5torch8autograd9generated19LogSoftmaxBackward0E");
    ANSWER(&f);
    CHECK_STR(ml_phase_text(f.oom->cause.phase), "backward");
    CHECK_UINT(f.oom->cause.frame, 0);
    CHECK_INT(f.oom->cause.no_line, ML_NO_LINE_BACKWARD);
    CHECK_STR(advice_text(f.oom), "logits:18 one_line:4");
    tear_down(&f);
}

/* A function of the program may have the word in its name. */
static void
test_no_loss_asked(void)
{
    fixture f;
    set_up(&f);
    add_fragments(&f);
    OOM(&f, 0, 18 * MIB)->stack =
        add_frame(&f, 0, "train.py", 3, "train_with_cross_entropy", NULL);
    ANSWER(&f);
    CHECK_STR(advice_text(f.oom), "one_line:4");
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

/* Parameters 12, optimizer state 12, gradients 4, the rest 2 MiB of line 8. */
static void
test_what_takes_the_memory(void)
{
    fixture f;
    set_up(&f);
    add(&f, ML_ACTION_SEGMENT_ALLOC, BASE, 30 * MIB);
    add_alloc(&f, BASE, 12 * MIB, user_line(&f, 1));
    sample_tag(&f.made, BASE, ML_CATEGORY_PARAMETER);
    add_alloc(&f, BASE + 12 * MIB, 12 * MIB, user_line(&f, 2));
    sample_tag(&f.made, BASE + 12 * MIB, ML_CATEGORY_OPTIMIZER_STATE);
    add_alloc(&f, BASE + 24 * MIB, 4 * MIB, user_line(&f, 3));
    sample_tag(&f.made, BASE + 24 * MIB, ML_CATEGORY_GRADIENT);
    add_alloc(&f, BASE + 28 * MIB, 2 * MIB, user_line(&f, 8));
    OOM(&f, 0, 12 * MIB);
    ANSWER(&f);
    CHECK_VERDICT(&f, "full");
    CHECK_STR(advice_text(f.oom), "optimizer_state:12 parameters:12");
    CHECK_UINT(f.oom->state->line_count, 4);
    tear_down(&f);
}

/* Each step keeps 2 MiB of line 7 for ever; an activation of another size each time comes
 * and goes. */
static void
add_steps(fixture *f, int steps, bool backward, bool marked)
{
    uint32_t kept = user_line(f, 7);
    add(f, ML_ACTION_SEGMENT_ALLOC, BASE, 64 * MIB);
    add_alloc(f, BASE, 10 * MIB, user_line(f, 1));
    for (int i = 0; i < steps; i++) {
        uint64_t at = BASE + 10 * MIB + (uint64_t)i * 2 * MIB;
        uint64_t size = (i % 2 == 0 ? 20 : 2) * MIB;
        add_alloc(f, at, 2 * MIB, kept);
        add_alloc(f, at + 2 * MIB, size, user_line(f, 5));
        f->flags |= backward ? ML_EVENT_BACKWARD : 0;
        add_free(f, at + 2 * MIB, size);
        f->flags &= (uint8_t)~ML_EVENT_BACKWARD;
        if (marked) {
            add_note(f, ML_NOTE_STEP, SAMPLE_TIME(&f->made), (uint64_t)i, 0, 0, 0);
        }
    }
}

static void
test_growth(void)
{
    for (int marked = 0; marked < 2; marked++) {
        fixture f;
        set_up(&f);
        add_steps(&f, 6, true, marked != 0);
        OOM(&f, 0, 50 * MIB);
        ANSWER(&f);
        const ml_oom_growth *growth = &f.oom->growth;
        CHECK_INT(growth->marked, marked);
        /* Passes: the lowest between two of the six, 12 MiB up to 20; the last pass is in
         * no whole step.  Marks: those after the first mark, 12 MiB before the second
         * step's block up to 20 before the sixth's; the same. */
        CHECK_UINT(growth->steps, 4);
        CHECK_UINT(growth->first, 12 * MIB);
        CHECK_UINT(growth->last, 20 * MIB);
        CHECK_UINT(growth->line_count, 1);
        CHECK_INT(growth->lines[0].line, 7);
        CHECK_UINT(growth->lines[0].before, 2 * MIB);
        CHECK_UINT(growth->lines[0].after, 10 * MIB);
        CHECK_VERDICT(&f, "full");
        CHECK(strncmp(advice_text(f.oom), "growth:8", 8) == 0);
        tear_down(&f);
    }
}

/* Three steps are too few to say, and a level that once falls has not grown. */
static void
test_no_growth(void)
{
    fixture f;
    set_up(&f);
    add_steps(&f, 4, true, false);
    OOM(&f, 0, 60 * MIB);
    ANSWER(&f);
    CHECK_UINT(f.oom->growth.steps, 0);
    tear_down(&f);

    set_up(&f);
    add_steps(&f, 6, true, false);
    add_free(&f, BASE + 10 * MIB, 2 * MIB);
    add_free(&f, BASE + 12 * MIB, 2 * MIB);
    add_alloc(&f, BASE + 10 * MIB, 2 * MIB, 0);
    f.flags |= ML_EVENT_BACKWARD;
    add_free(&f, BASE + 14 * MIB, 2 * MIB);
    OOM(&f, 0, 60 * MIB);
    ANSWER(&f);
    CHECK_UINT(f.oom->growth.steps, 0);
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
    RUN(test_where_it_was_asked);
    RUN(test_no_loss_asked);
    RUN(test_a_request_of_nothing);
    RUN(test_what_takes_the_memory);
    RUN(test_growth);
    RUN(test_no_growth);
    RUN(test_no_such_event);
    RUN(test_without_segments);
    RUN(test_many_holes);
    RUN(test_out_of_memory);
    return TEST_RESULT();
}
