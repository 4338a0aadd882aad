/* Verdicts on recordings put together by hand: what is found, in which order, with which
 * bytes. */
#include "lab/verdict/run_verdict.h"

#include "base/base.h"
#include "budget.h"
#include "recording_samples.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)
#define GPU (100 * MIB)
/* The driver's, beside it: in the device's total, but for no process. */
#define RESERVE (3 * MIB)

static sample s;
static uint64_t next_addr;
static uint64_t sequence;

/* ---- Recordings: each block has a segment of its own ---- */

static void
begin(void)
{
    sample_begin(&s);
    next_addr = UINT64_C(1) << 40;
    sequence = 1;
}

static ml_event *
event_in(enum ml_action action, uint64_t addr, uint64_t mib, uint32_t stack)
{
    ml_event *event = sample_event(&s, action, addr, mib * MIB, stack);
    event->autograd_thread = 1;
    event->sequence = sequence;
    return event;
}

static uint64_t
take(uint64_t mib, uint32_t stack, uint8_t flags)
{
    uint64_t addr = next_addr;
    next_addr += UINT64_C(1) << 32;
    event_in(ML_ACTION_SEGMENT_ALLOC, addr, mib, stack);
    event_in(ML_ACTION_ALLOC, addr, mib, stack)->flags = flags;
    return addr;
}

static void
give(uint64_t addr, uint64_t mib, uint8_t flags)
{
    event_in(ML_ACTION_FREE_REQUESTED, addr, mib, 0)->flags = flags;
    event_in(ML_ACTION_FREE_COMPLETED, addr, mib, 0)->flags = flags;
}

/* The cache of ADDR goes back to the driver. */
static void
give_segment(uint64_t addr, uint64_t mib)
{
    event_in(ML_ACTION_SEGMENT_FREE, addr, mib, 0);
}

/* At this moment OUTSIDE MiB of the GPU are others'; torch's are as they are then. */
static void
look_at_gpu(uint64_t outside, uint64_t reserved, uint64_t allocated)
{
    uint64_t used = outside + reserved;
    s.notes[s.recording->note_count++] = (ml_note){
        .kind = ML_NOTE_GPU,
        .time = SAMPLE_TIME(&s) + 1,
        .device = 0,
        .values = {used * MIB, GPU + RESERVE, used * MIB, 0, RESERVE, reserved * MIB,
                   allocated * MIB},
    };
}

static uint32_t
in_module(const char *path)
{
    return sample_call(s.recording, 0, "/home/a/model.py", 5, "forward", path);
}

static const ml_finding *
find(const ml_run_verdict *verdict, enum ml_finding_kind kind)
{
    for (size_t i = 0; i < verdict->finding_count; i++) {
        if (verdict->findings[i].kind == kind) {
            return &verdict->findings[i];
        }
    }
    return NULL;
}

static ml_run_verdict *
judged(void)
{
    ml_run_verdict *verdict = NULL;
    return ml_run_verdict_new(s.recording, 0, false, &verdict) == 0 ? verdict : NULL;
}

/* ---- Room ---- */

/* HELD MiB of torch's in a step on a GPU of 100, 5 of others. */
static void
train(uint64_t held)
{
    begin();
    uint32_t layer = in_module("layer");
    uint64_t saved = take(held, layer, 0);
    sequence++;
    look_at_gpu(5, held, held);
    give(saved, held, ML_EVENT_BACKWARD);
}

static void
test_a_run_fits_with_room(void)
{
    train(40);
    ml_run_verdict *verdict = judged();
    CHECK_UINT(verdict->finding_count, 1);
    const ml_finding *fits = find(verdict, ML_FINDING_FITS);
    CHECK(fits != NULL && fits->bytes == 55 * MIB && fits->of == GPU);
    CHECK_UINT(verdict->peak.allocated, 40 * MIB);
    CHECK_UINT(verdict->total, GPU);
    CHECK_STR(ml_stage_text(verdict->stage), "forward");
    ml_run_verdict_free(verdict);
    sample_end(&s);
}

/* From 90 of 100 MiB on, others' with them, it is tight. */
static void
test_a_run_is_tight(void)
{
    train(85);
    ml_run_verdict *verdict = judged();
    const ml_finding *tight = find(verdict, ML_FINDING_TIGHT);
    CHECK(tight != NULL && tight->bytes == 10 * MIB);
    CHECK(find(verdict, ML_FINDING_FITS) == NULL);
    ml_run_verdict_free(verdict);
    sample_end(&s);

    train(84);
    verdict = judged();
    CHECK(find(verdict, ML_FINDING_TIGHT) == NULL);
    ml_run_verdict_free(verdict);
    sample_end(&s);
}

/* Others have a quarter of the GPU. */
static void
test_memory_outside_torch(void)
{
    begin();
    take(10, in_module("layer"), 0);
    look_at_gpu(25, 10, 10);
    ml_run_verdict *verdict = judged();
    const ml_finding *outside = find(verdict, ML_FINDING_OUTSIDE);
    CHECK(outside != NULL && outside->bytes == 25 * MIB && outside->of == GPU);
    ml_run_verdict_free(verdict);
    sample_end(&s);
}

/* The bytes that are told of other processes, which have MIB of 25 outside. */
static uint64_t
others_told(uint64_t mib)
{
    begin();
    take(10, in_module("layer"), 0);
    look_at_gpu(25, 10, 10);
    ml_note *seen = &s.notes[s.recording->note_count - 1];
    seen->values[3] = mib * MIB;
    seen->values[2] -= mib * MIB;
    ml_run_verdict *verdict = judged();
    const ml_finding *outside =
        verdict != NULL ? find(verdict, ML_FINDING_OUTSIDE) : NULL;
    uint64_t told = outside != NULL ? outside->others : UINT64_MAX;
    ml_run_verdict_free(verdict);
    sample_end(&s);
    return told;
}

/* Other processes are named if most of what is outside is theirs. */
static void
test_other_processes_outside_torch(void)
{
    CHECK_UINT(others_told(12), 0);
    CHECK_UINT(others_told(13), 13 * MIB);
}

/* ---- Failures ---- */

/* Torch has nothing, as the first request failed: the GPU is the one that it found. */
static void
test_out_of_memory_at_the_first_request(void)
{
    begin();
    look_at_gpu(0, 0, 0);
    event_in(ML_ACTION_OOM, 0, 8, in_module(""));
    look_at_gpu(100, 0, 0);
    ml_run_verdict *verdict = judged();
    const ml_finding *outside = find(verdict, ML_FINDING_OUTSIDE);
    CHECK(outside != NULL && outside->bytes == 100 * MIB && outside->of == GPU);
    ml_run_verdict_free(verdict);
    sample_end(&s);
}

/* The request of 80 MiB fails in a forward that has 40, and leads all else that is found. */
static void
test_out_of_memory_leads(void)
{
    begin();
    uint32_t layer = in_module("layer");
    take(40, layer, 0);
    sequence++;
    look_at_gpu(25, 40, 40);
    event_in(ML_ACTION_OOM, 35 * MIB, 80, layer);
    ml_run_verdict *verdict = judged();
    CHECK(verdict->finding_count >= 2);
    const ml_finding *failed = &verdict->findings[0];
    CHECK_STR(ml_finding_text(failed->kind), "out_of_memory");
    CHECK_UINT(failed->bytes, 80 * MIB);
    CHECK_UINT(failed->of, 40 * MIB);
    CHECK_STR(ml_stage_text(failed->stage), "forward");
    CHECK_INT(s.recording->frames[failed->cause.frame].line, 5);
    CHECK(find(verdict, ML_FINDING_FITS) == NULL);
    CHECK(find(verdict, ML_FINDING_TIGHT) == NULL);
    ml_run_verdict_free(verdict);
    sample_end(&s);
}

/* A library that found no room leads, and that memory is tight is not told; of a note of
 * another device nothing is. */
static void
test_no_room_outside_torch_leads(void)
{
    for (int32_t device = -1; device < 2; device++) {
        train(85);
        s.notes[s.recording->note_count++] = (ml_note){
            .kind = ML_NOTE_NO_ROOM,
            .time = SAMPLE_TIME(&s) + 2,
            .device = device,
            .name = sample_string(s.recording, "No room."),
            .values = {2 * MIB, GPU},
        };
        ml_run_verdict *verdict = judged();
        if (verdict == NULL) {
            CHECK_FAIL("no verdict on device %d", (int)device);
            return;
        }
        const ml_finding *found = &verdict->findings[0];
        const ml_finding *tight = find(verdict, ML_FINDING_TIGHT);
        if (device < 1) {
            CHECK_STR(ml_finding_text(found->kind), "no_room_outside_torch");
            CHECK_UINT(found->bytes, 2 * MIB);
            CHECK_UINT(found->of, GPU);
            CHECK(found->said != 0 && tight == NULL);
        }
        else {
            CHECK(found == tight);
        }
        ml_run_verdict_free(verdict);
        sample_end(&s);
    }
}

/* ---- Evaluations ---- */

/* A step of 20 MiB, then a forward without nodes of four blocks of SIZE MiB. */
static void
train_and_evaluate(uint64_t size)
{
    begin();
    uint32_t layer = in_module("layer");
    uint64_t saved = take(10, layer, 0);
    sequence++;
    uint64_t more = take(10, layer, 0);
    sequence++;
    give(more, 10, ML_EVENT_BACKWARD);
    event_in(ML_ACTION_ALLOC, next_addr, 0, 0)->flags = ML_EVENT_BACKWARD;
    give(saved, 10, ML_EVENT_BACKWARD);
    give_segment(saved, 10);
    give_segment(more, 10);
    take(1, 0, 0);
    for (int i = 0; i < 4; i++) {
        take(size, layer, 0);
    }
}

/* 1 and 4 times 10 MiB against 20 of the training. */
static void
test_an_evaluation_makes_the_peak(void)
{
    train_and_evaluate(10);
    ml_run_verdict *verdict = judged();
    CHECK_STR(ml_stage_text(verdict->stage), "evaluation");
    const ml_finding *found = find(verdict, ML_FINDING_PEAK_IN_EVALUATION);
    CHECK(found != NULL && found->bytes == 21 * MIB && found->of == 20 * MIB);
    ml_run_verdict_free(verdict);
    sample_end(&s);
}

/* The peak of 41 MiB leads on a GPU of 100, of which it is 21 % above the training's, and not on
 * one of 10,000. */
static void
test_a_peak_leads_where_it_matters(void)
{
    for (unsigned times = 1; times <= 100; times *= 100) {
        train_and_evaluate(10);
        look_at_gpu(0, 41, 41);
        s.notes[s.recording->note_count - 1].values[1] = times * GPU + RESERVE;
        ml_run_verdict *verdict = judged();
        CHECK(verdict != NULL && verdict->finding_count == 2);
        const ml_finding *found = find(verdict, ML_FINDING_PEAK_IN_EVALUATION);
        CHECK_PTR(found, &verdict->findings[times == 1 ? 0 : 1]);
        CHECK(find(verdict, ML_FINDING_FITS) != NULL);
        ml_run_verdict_free(verdict);
        sample_end(&s);
    }
}

static void
test_a_small_evaluation_is_none(void)
{
    train_and_evaluate(2);
    ml_run_verdict *verdict = judged();
    CHECK_STR(ml_stage_text(verdict->stage), "forward");
    CHECK(find(verdict, ML_FINDING_PEAK_IN_EVALUATION) == NULL);
    ml_run_verdict_free(verdict);
    sample_end(&s);
}

/* ---- What is unused ---- */

/* 30 MiB used, then as many of others: the first 30 stay reserved. */
static void
test_the_cache_holds_memory(void)
{
    begin();
    uint32_t layer = in_module("layer");
    give(take(30, layer, 0), 30, 0);
    take(20, layer, 0);
    take(10, layer, 0);
    look_at_gpu(5, 60, 30);
    ml_run_verdict *verdict = judged();
    const ml_finding *cached = find(verdict, ML_FINDING_CACHE_HELD);
    CHECK(cached != NULL && cached->bytes == 30 * MIB && cached->of == 60 * MIB);
    CHECK_UINT(verdict->findings[0].kind, ML_FINDING_FITS);
    ml_run_verdict_free(verdict);
    sample_end(&s);
}

/* ---- Memory failures ---- */

static void
test_memory_failures(void)
{
    train_and_evaluate(10);
    int result = ML_ENOMEM;
    long tries = 0;
    for (; result == ML_ENOMEM && tries < 2000; tries++) {
        ml_run_verdict *verdict = NULL;
        budget_begin(tries);
        result = ml_run_verdict_new(s.recording, 0, true, &verdict);
        ml_run_verdict_free(verdict);
        ml_recording_detach(s.recording);
        budget_end();
        CHECK_INT(budget_alive, 0);
    }
    CHECK_INT(result, 0);
    CHECK(tries > 20);
    CHECK_INT(ml_run_verdict_new(s.recording, 1, false, NULL), ML_EINVALID);
    sample_end(&s);
}

int
main(void)
{
    RUN(test_a_run_fits_with_room);
    RUN(test_a_run_is_tight);
    RUN(test_memory_outside_torch);
    RUN(test_other_processes_outside_torch);
    RUN(test_out_of_memory_at_the_first_request);
    RUN(test_out_of_memory_leads);
    RUN(test_no_room_outside_torch_leads);
    RUN(test_an_evaluation_makes_the_peak);
    RUN(test_a_peak_leads_where_it_matters);
    RUN(test_a_small_evaluation_is_none);
    RUN(test_the_cache_holds_memory);
    RUN(test_memory_failures);
    return TEST_RESULT();
}
