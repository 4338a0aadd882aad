/* The head that a pass did not reach, as ML_NOTE_HEAD tells it: from recordings put together by
 * hand. */
#include "lab/verdict/remainder.h"

#include "remainder_samples.h"

/* Two layers, each with a wide block of 400 MiB, which is gone, and a result of 100; the second
 * asks for its wide block in vain.  Their smallest parameter is an eighth of the result's width.
 * HEAD: MiB of the head's own parameter; 0: none. */
static void
run_out_before_head(uint64_t head, uint64_t takes, uint64_t makes, uint64_t shared)
{
    begin();
    for (unsigned i = 0; i < 2; i++) {
        parameter(layers[i], 8);
        parameter(layers[i], 1);
    }
    if (head != 0) {
        parameter("head", head);
    }
    uint32_t stack = in_module(layers[0]);
    give(take(400, stack, 0), 400, 0);
    take(100, stack, 0);
    event_in(ML_ACTION_OOM, 50 * MIB, 400 * MIB, in_module(layers[1]));
    note(ML_NOTE_LOOP, "", ML_LOOP_NO, ML_LOOP_NO);
    s.notes[s.recording->note_count - 1].values[3] = ML_LOSS_REDUCES;
    if (takes != 0) {
        note(ML_NOTE_HEAD, "", takes, makes);
        s.notes[s.recording->note_count - 1].values[2] = (uint64_t)16 * MIB;
        s.notes[s.recording->note_count - 1].values[3] = shared;
    }
}

/* A layer's line keeps a block of 100 MiB, another of WIDER, and a last one of LAST. */
static void
run_out_after_line(const char *file, uint64_t wider, uint64_t last)
{
    begin();
    for (unsigned i = 0; i < 2; i++) {
        parameter(layers[i], 8);
        parameter(layers[i], 1);
    }
    parameter("head", 16);
    uint32_t stack = in_function(file, "forward", layers[0]);
    take(100, in_module(layers[0]), 0);
    take(wider, stack, 0);
    take(last, stack, 0);
    event_in(ML_ACTION_OOM, 50 * MIB, 400 * MIB, in_module(layers[1]));
    note(ML_NOTE_HEAD, "", 1 << 20, 3 << 20);
    s.notes[s.recording->note_count - 1].values[2] = (uint64_t)16 * MIB;
}

/* The largest demand to come that is of a head, of no module's family. */
static uint64_t
head_to_come(void)
{
    ml_advice_case it;
    ml_remainder rest;
    uint64_t most = 0;
    find(&rest, &it, ML_ASSUMED_SMALL);
    for (size_t i = rest.recorded; i < rest.workload->count; i++) {
        uint64_t bytes = rest.workload->demands[i].bytes;
        most = rest.items[i].apart && bytes > most ? bytes : most;
    }
    end(&rest, &it);
    sample_end(&s);
    return most;
}

static void
test_a_head_with_the_weight_of_an_embedding_follows(void)
{
    run_out_before_head(0, 1 << 20, 3 << 20, ML_LOOP_YES);
    CHECK_UINT(head_to_come(), 300 * MIB);
    /* One of its own would be among the parameters. */
    run_out_before_head(0, 1 << 20, 3 << 20, ML_LOOP_NO);
    CHECK_UINT(head_to_come(), 0);
    run_out_before_head(0, 0, 0, 0);
    CHECK_UINT(head_to_come(), 0);
}

static void
test_a_head_makes_of_a_result_what_its_features_say(void)
{
    run_out_before_head(16, 1 << 20, 3 << 20, ML_LOOP_NO);
    CHECK_UINT(head_to_come(), 300 * MIB);
}

static void
test_a_head_takes_a_result_not_the_sums_beside_it(void)
{
    /* A LayerNorm asks for sums by row after its result. */
    run_out_after_line("/v/torch/nn/functional.py", 100, 2);
    CHECK_UINT(head_to_come(), 300 * MIB);
}

/* As in x + self.down(gelu(self.up(x))). */
static void
test_a_head_takes_the_last_of_a_line_of_the_program(void)
{
    run_out_after_line("/home/a/model.py", 400, 100);
    CHECK_UINT(head_to_come(), 300 * MIB);
}

/* A head of 16 bits whose result the program casts to float32: the cast and what the loss keeps
 * are twice the logits of 800 MiB, else the loss's as large as these. */
static void
test_a_loss_in_float32_of_16_bits(void)
{
    for (int loss = ML_LOSS_CLASSES; loss <= ML_LOSS_CLASSES_FLOAT32; loss += 5) {
        run_out_before_head(16, 1 << 10, 1 << 13, ML_LOOP_NO);
        s.notes[s.recording->note_count - 2].values[3] = (uint64_t)loss;
        CHECK_UINT(head_to_come(),
                   (loss == ML_LOSS_CLASSES ? 800 : UINT64_C(1600)) * MIB);
    }
    /* The weight of as many bytes is of float32. */
    run_out_before_head(16, 1 << 10, 1 << 12, ML_LOOP_NO);
    s.notes[s.recording->note_count - 2].values[3] = ML_LOSS_CLASSES_FLOAT32;
    CHECK_UINT(head_to_come(), 400 * MIB);
}

/* Memory ends at the cast of logits of 800 MiB: they go, and a loss keeps as much as the cast. */
static void
test_memory_ends_at_the_cast_to_float32(void)
{
    begin();
    uint32_t model = in_module("model");
    parameter("model", 16);
    s.tags[s.device.tag_count - 1].module = s.recording->stacks[model].module;
    take(100, in_function("/v/torch/nn/modules/linear.py", "forward", "head"), 0);
    take(800, in_function("/v/torch/nn/modules/linear.py", "forward", "head"), 0);
    event_in(ML_ACTION_OOM, 50 * MIB, 1600 * MIB, model);
    note(ML_NOTE_LOOP, "", ML_LOOP_NO, ML_LOOP_NO);
    s.notes[s.recording->note_count - 1].values[3] = ML_LOSS_CLASSES;
    note(ML_NOTE_HEAD, "", 1 << 10, 1 << 13);
    s.notes[s.recording->note_count - 1].values[2] = (uint64_t)16 * MIB;
    ml_advice_case it;
    ml_remainder rest;
    find(&rest, &it, ML_ASSUMED_SMALL);
    CHECK_UINT(rest.untold, 0);
    const ml_demand *demands = rest.workload->demands;
    CHECK_UINT(demands[rest.recorded + 1].bytes, 1600 * MIB);
    CHECK_UINT(demands[rest.recorded - 1].bytes, 800 * MIB);
    CHECK(demands[rest.recorded - 1].freed <= demands[rest.recorded + 1].born);
    end(&rest, &it);
    sample_end(&s);
}

/* In parts it makes nothing that lasts. */
static void
test_a_head_in_parts_makes_nothing(void)
{
    run_out_before_head(16, 1 << 20, 0, ML_LOOP_NO);
    CHECK_UINT(head_to_come(), 0);
    run_out_before_head(0, 1 << 20, 0, ML_LOOP_YES);
    CHECK_UINT(head_to_come(), 0);
}

/* What its features do not divide is not what it takes. */
static void
test_a_head_of_other_features_is_guessed(void)
{
    run_out_before_head(16, 7, 3, ML_LOOP_NO);
    CHECK(head_to_come() != 0);
    run_out_before_head(0, 7, 3, ML_LOOP_YES);
    CHECK_UINT(head_to_come(), 0);
}

int
main(void)
{
    RUN(test_a_head_with_the_weight_of_an_embedding_follows);
    RUN(test_a_head_makes_of_a_result_what_its_features_say);
    RUN(test_a_head_takes_a_result_not_the_sums_beside_it);
    RUN(test_a_head_takes_the_last_of_a_line_of_the_program);
    RUN(test_a_loss_in_float32_of_16_bits);
    RUN(test_memory_ends_at_the_cast_to_float32);
    RUN(test_a_head_in_parts_makes_nothing);
    RUN(test_a_head_of_other_features_is_guessed);
    return TEST_RESULT();
}
