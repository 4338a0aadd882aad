/* Advice: what rules find in recordings put together by hand, and what a trial of their
 * edits saves. */
#include "lab/advice/advice.h"

#include <stdlib.h>

#include "analysis/attribution/module_repeats.h"
#include "base/base.h"
#include "budget.h"
#include "recording_samples.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)

static sample s;
static uint64_t next_addr;

/* ---- Recordings: each block has a segment of its own ---- */

static void
begin(void)
{
    sample_begin(&s);
    next_addr = UINT64_C(1) << 40;
}

static ml_event *
event_in(enum ml_action action, uint64_t addr, uint64_t size, uint32_t stack,
         uint8_t flags)
{
    ml_event *event = sample_event(&s, action, addr, size, stack);
    event->flags = flags;
    event->autograd_thread = 1;
    return event;
}

static uint64_t
take(uint64_t mib, uint32_t stack, uint8_t flags)
{
    uint64_t addr = next_addr;
    next_addr += UINT64_C(1) << 32;
    event_in(ML_ACTION_SEGMENT_ALLOC, addr, mib * MIB, stack, 0);
    event_in(ML_ACTION_ALLOC, addr, mib * MIB, stack, flags);
    return addr;
}

static void
give(uint64_t addr, uint64_t mib, uint8_t flags)
{
    event_in(ML_ACTION_FREE_REQUESTED, addr, mib * MIB, 0, flags);
    event_in(ML_ACTION_FREE_COMPLETED, addr, mib * MIB, 0, flags);
}

/* A step ends, behind the last event. */
static void
end_step(void)
{
    size_t number = s.recording->note_count++;
    s.notes[number] = (ml_note){
        .kind = ML_NOTE_STEP, .time = SAMPLE_TIME(&s) + 1, .values = {number}};
}

static uint32_t
in_module(const char *path)
{
    return sample_call(s.recording, 0, "/home/a/model.py", 5, "forward", path);
}

static const ml_advice *
find(const ml_advices *advices, enum ml_advice_kind kind)
{
    for (size_t i = 0; i < advices->count; i++) {
        if (advices->list[i].kind == kind) {
            return &advices->list[i];
        }
    }
    return NULL;
}

/* ---- Gradients ---- */

/* Of each step: 20 MiB of activations, and a gradient of 10 MiB for 10 MiB of parameters;
 * KEPT, the first step's stays and what the later ones make is added to it. */
static void
train(bool kept)
{
    begin();
    uint32_t stack = in_module("layer");
    uint64_t parameter = take(10, 0, 0);
    sample_tag(&s, parameter, ML_CATEGORY_PARAMETER);
    uint64_t gradient = 0;
    for (unsigned step = 0; step < 3; step++) {
        uint64_t saved = take(20, stack, 0);
        uint64_t made = take(10, 0, ML_EVENT_BACKWARD);
        if (step == 0 || !kept) {
            gradient = made;
            sample_tag(&s, gradient, ML_CATEGORY_GRADIENT);
        }
        else {
            give(made, 10, ML_EVENT_BACKWARD);
        }
        give(saved, 20, ML_EVENT_BACKWARD);
        end_step();
        if (!kept) {
            give(gradient, 10, 0);
        }
    }
}

/* At most parameter, kept gradient, activation and the new gradient: 50 MiB; without the
 * kept one, which the new one replaces up to the end of its step, 40. */
static void
test_gradients_that_are_kept(void)
{
    ml_advices *advices = NULL;
    train(true);
    int result = ml_advices_new(s.recording, 0, UINT64_MAX, &advices);
    CHECK_INT(result, 0);
    const ml_advice *advice = find(advices, ML_ADVICE_GRADIENTS_KEPT);
    CHECK(advice != NULL);
    CHECK_UINT(advices->before.peak.allocated, 50 * MIB);
    CHECK_UINT(advice->alone.peak.allocated, 40 * MIB);
    CHECK_UINT(advice->bytes, 10 * MIB);
    CHECK_UINT(advice->blocks, 1);
    CHECK(advice->together);
    CHECK_UINT(advices->after.peak.allocated, 40 * MIB);
    ml_advices_free(advices);
    sample_end(&s);
}

static void
test_gradients_that_are_freed(void)
{
    ml_advices *advices = NULL;
    train(false);
    int result = ml_advices_new(s.recording, 0, UINT64_MAX, &advices);
    CHECK_INT(result, 0);
    CHECK_UINT(advices->before.peak.allocated, 40 * MIB);
    CHECK(find(advices, ML_ADVICE_GRADIENTS_KEPT) == NULL);
    ml_advices_free(advices);
    sample_end(&s);
}

/* Beside PARAMETERS, in MiB, three steps whose gradient of MIB is freed, at line 8, after the
 * next forward: it has 20 MiB of activations and, while it runs, 10 of temporaries. */
static void
train_late(uint64_t parameters, uint64_t mib)
{
    begin();
    sample_tag(&s, take(parameters, 0, 0), ML_CATEGORY_PARAMETER);
    uint32_t freeing = sample_call(s.recording, 0, "/home/a/train.py", 8, "main", "");
    uint32_t stack = in_module("layer");
    uint64_t gradient = 0;
    for (unsigned step = 0; step < 3; step++) {
        uint64_t saved = take(20, stack, 0);
        give(take(10, stack, 0), 10, 0);
        if (step != 0) {
            event_in(ML_ACTION_FREE_REQUESTED, gradient, mib * MIB, freeing, 0);
            event_in(ML_ACTION_FREE_COMPLETED, gradient, mib * MIB, freeing, 0);
        }
        gradient = take(mib, 0, ML_EVENT_BACKWARD);
        sample_tag(&s, gradient, ML_CATEGORY_GRADIENT);
        give(saved, 20, ML_EVENT_BACKWARD);
        end_step();
    }
}

/* At most parameters, gradient, activations and temporaries: 50 MiB; without the gradient,
 * which ends with its step, 40. */
static void
test_gradients_that_are_freed_late(void)
{
    ml_advices *advices = NULL;
    train_late(10, 10);
    int result = ml_advices_new(s.recording, 0, UINT64_MAX, &advices);
    CHECK_INT(result, 0);
    CHECK_UINT(advices->before.peak.allocated, 50 * MIB);
    CHECK(find(advices, ML_ADVICE_GRADIENTS_KEPT) == NULL);
    const ml_advice *advice = find(advices, ML_ADVICE_GRADIENTS_LATE);
    CHECK(advice != NULL);
    CHECK_UINT(advice->alone.peak.allocated, 40 * MIB);
    CHECK_UINT(advice->bytes, 10 * MIB);
    CHECK_INT(s.recording->frames[advice->frame].line, 8);
    ml_advices_free(advices);
    sample_end(&s);
}

/* Each step frees the layer's gradient, which the optimizer read.  The head's 10 MiB are of
 * no optimizer: its zero_grad() cannot reach them.  At most parameter, both gradients,
 * what is added to the head's, and activation: 60 MiB; without the head's, 40. */
static void
test_gradients_of_no_optimizer(void)
{
    begin();
    uint32_t layer = in_module("layer");
    uint32_t head = in_module("head");
    sample_tag(&s, take(10, 0, 0), ML_CATEGORY_PARAMETER);
    for (unsigned step = 0; step < 3; step++) {
        uint64_t saved = take(20, head, 0);
        s.events[s.device.event_count - 1].sequence = 1000 + 10 * step;
        uint64_t kept = take(10, 0, ML_EVENT_BACKWARD);
        s.events[s.device.event_count - 1].sequence = 999 + 10 * step;
        uint64_t gradient = take(10, layer, ML_EVENT_BACKWARD);
        sample_tag(&s, gradient, ML_CATEGORY_GRADIENT);
        if (step != 0) {
            give(kept, 10, ML_EVENT_BACKWARD);
        }
        give(saved, 20, ML_EVENT_BACKWARD);
        end_step();
        give(gradient, 10, 0);
    }
    ml_advices *advices = NULL;
    int result = ml_advices_new(s.recording, 0, UINT64_MAX, &advices);
    CHECK_INT(result, 0);
    CHECK_UINT(advices->before.peak.allocated, 60 * MIB);
    CHECK(find(advices, ML_ADVICE_GRADIENTS_KEPT) == NULL);
    const ml_advice *advice = find(advices, ML_ADVICE_FROZEN_GRADIENTS);
    CHECK(advice != NULL);
    CHECK_UINT(advice->bytes, 10 * MIB);
    CHECK_UINT(advice->alone.peak.allocated, 40 * MIB);
    ml_advices_free(advices);
    sample_end(&s);
}

/* 10 MiB of 1,000 are one part in 100, and told; of 1,500 they are less. */
static void
test_savings_that_are_too_small_to_tell(void)
{
    for (unsigned small = 0; small < 2; small++) {
        ml_advices *advices = NULL;
        train_late(small ? 1460 : 960, 10);
        int result = ml_advices_new(s.recording, 0, UINT64_MAX, &advices);
        CHECK_INT(result, 0);
        CHECK_UINT(advices->before.peak.allocated, (small ? 1500 : 1000) * MIB);
        CHECK((find(advices, ML_ADVICE_GRADIENTS_LATE) == NULL) == (small == 1));
        ml_advices_free(advices);
        sample_end(&s);
    }
}

/* ---- Checkpointing ---- */

/* Two layers save 20 MiB and return 10 each; then the backward pass has 10 of its own. */
static void
run_layers(const char *first, const char *second)
{
    begin();
    uint32_t stacks[] = {in_module(first), in_module(second)};
    uint64_t saved[2], returned[2];
    for (unsigned i = 0; i < 2; i++) {
        saved[i] = take(20, stacks[i], 0);
        returned[i] = take(10, stacks[i], 0);
    }
    uint64_t gradient = take(10, 0, ML_EVENT_BACKWARD);
    for (unsigned i = 2; i-- > 0;) {
        give(saved[i], 20, ML_EVENT_BACKWARD);
        give(returned[i], 10, ML_EVENT_BACKWARD);
    }
    give(gradient, 10, ML_EVENT_BACKWARD);
}

/* As it is 70 MiB, when the backward pass begins.  Checkpointed, most is there when the
 * second layer has run again: its 20, what both returned, and the pass's own. */
static void
test_layers_that_repeat(void)
{
    ml_advices *advices = NULL;
    run_layers("model.h.0", "model.h.1");
    int result = ml_advices_new(s.recording, 0, UINT64_MAX, &advices);
    CHECK_INT(result, 0);
    CHECK_UINT(advices->before.peak.allocated, 70 * MIB);
    const ml_advice *advice = find(advices, ML_ADVICE_CHECKPOINT);
    CHECK(advice != NULL);
    CHECK_STR(advice->module, "model.h.*");
    CHECK_UINT(advice->count, 2);
    CHECK_UINT(advice->bytes, 40 * MIB);
    CHECK_UINT(advice->alone.peak.allocated, 50 * MIB);
    CHECK(!advice->exact);
    /* Of one category, the layers are one part. */
    CHECK_UINT(advices->part_count, 2);
    CHECK_UINT(advices->parts[0].bytes, 60 * MIB);
    CHECK_UINT(advices->parts[0].modules, 2);
    CHECK(advices->parts[0].repeats);
    ml_advices_free(advices);
    sample_end(&s);
}

static void
test_layers_of_different_names(void)
{
    ml_advices *advices = NULL;
    run_layers("model.encoder", "model.decoder");
    int result = ml_advices_new(s.recording, 0, UINT64_MAX, &advices);
    CHECK_INT(result, 0);
    CHECK(find(advices, ML_ADVICE_CHECKPOINT) == NULL);
    ml_advices_free(advices);
    sample_end(&s);
}

/* ---- The batch ---- */

/* All 70 MiB grow with it, in segments of whole 2 MiB: 153 of 64 parts make 48 of each 20
 * and 24 of each 10, 168 in all; 154 would make 50 and 26, 178. */
static void
test_the_batch_that_fits(void)
{
    ml_advices *advices = NULL;
    run_layers("model.h.0", "model.h.1");
    int result = ml_advices_new(s.recording, 0, 175 * MIB, &advices);
    CHECK_INT(result, 0);
    const ml_batch_fit *batch = &advices->batch;
    CHECK_UINT(batch->memory_bytes, 175 * MIB);
    CHECK_UINT(batch->scaling, 70 * MIB);
    CHECK_UINT(batch->parts, 153);
    CHECK_UINT(batch->peak.reserved, 168 * MIB);
    ml_advices_free(advices);
    sample_end(&s);
}

/* ---- Modules ---- */

static void
test_modules_that_repeat(void)
{
    begin();
    static const char *const paths[] = {"h.0.mlp.1", "h.11.mlp", "norm", "0", "7.a"};
    uint32_t ids[5];
    ml_repeats repeats;
    CHECK_INT(ml_repeats_init(&repeats, s.recording), 0);
    ml_repeats_fini(&repeats);
    for (size_t i = 0; i < 5; i++) {
        ids[i] = sample_string(s.recording, paths[i]);
    }
    CHECK_INT(ml_repeats_init(&repeats, s.recording), 0);
    for (size_t i = 0; i < 5; i++) {
        CHECK_INT(ml_repeats_add(&repeats, s.recording, ids[i]), 0);
        CHECK_INT(ml_repeats_add(&repeats, s.recording, ids[i]), 0);
    }
    /* h., h.0.mlp. and those at the top. */
    CHECK_UINT(repeats.family_count, 3);
    CHECK_UINT(repeats.families[0].instances, 2);
    CHECK_UINT(repeats.families[1].instances, 1);
    CHECK_UINT(repeats.families[2].instances, 2);
    CHECK_UINT(ml_repeats_instance(&repeats, ids[0], 0), 1);
    CHECK_UINT(ml_repeats_instance(&repeats, ids[0], 1), 2);
    CHECK_UINT(ml_repeats_instance(&repeats, ids[1], 0), 3);
    CHECK_UINT(ml_repeats_instance(&repeats, ids[1], 1), 0);
    CHECK_UINT(ml_repeats_instance(&repeats, ids[2], 0), 0);
    CHECK_UINT(ml_repeats_instance(&repeats, ids[4], 2), 5);
    ml_repeats_fini(&repeats);
    sample_end(&s);
}

static void
test_numbers_of_a_path(void)
{
    size_t number = 99;
    CHECK_UINT(ml_path_number((ml_string){"a.12.b", 6}, 0, &number), 4);
    CHECK_UINT(number, 2);
    CHECK_UINT(ml_path_number((ml_string){"a.12.b", 6}, 5, &number), 0);
    CHECK_UINT(ml_path_number((ml_string){"conv1..x2", 9}, 0, &number), 0);
    CHECK_UINT(ml_path_number((ml_string){"", 0}, 0, &number), 0);
    CHECK_UINT(ml_path_number((ml_string){"a.layer_12.b", 12}, 0, &number), 10);
    CHECK_UINT(number, 8);
    CHECK_UINT(ml_path_number((ml_string){"layer_.2_b", 10}, 0, &number), 0);
}

/* ---- Memory ---- */

static void
test_each_allocation_can_fail(void)
{
    train(true);
    int result = ML_ENOMEM;
    for (long budget = 0; result < 0; budget++) {
        ml_advices *advices = NULL;
        budget_begin(budget);
        result = ml_advices_new(s.recording, 0, 64 * MIB, &advices);
        CHECK(result == 0 || (result == ML_ENOMEM && advices == NULL));
        ml_advices_free(advices);
        ml_recording_detach(s.recording);
        CHECK_INT(budget_alive, 0);
        budget_end();
    }
    sample_end(&s);
}

int
main(void)
{
    RUN(test_gradients_that_are_kept);
    RUN(test_gradients_that_are_freed);
    RUN(test_gradients_that_are_freed_late);
    RUN(test_gradients_of_no_optimizer);
    RUN(test_savings_that_are_too_small_to_tell);
    RUN(test_layers_that_repeat);
    RUN(test_layers_of_different_names);
    RUN(test_the_batch_that_fits);
    RUN(test_modules_that_repeat);
    RUN(test_numbers_of_a_path);
    RUN_LONG_IN_ONE_THREAD(test_each_allocation_can_fail);
    return TEST_RESULT();
}
