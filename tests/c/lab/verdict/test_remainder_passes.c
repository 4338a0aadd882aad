/* What a pass leaves for the next, passes of other sizes, modules that are unlike, and what a
 * checkpoint makes again: from recordings put together by hand. */
#include "lab/verdict/remainder.h"

#include "base/base.h"
#include "budget.h"
#include "remainder_samples.h"

/* What a batch of 9 does not divide does not grow with it; what it does may. */
static void
test_a_batch_divides_what_it_makes(void)
{
    begin();
    load(100);
    load(90);
    run_out(1, 90, 10);
    note(ML_NOTE_BATCH, "--batch", 9, 0);
    ml_advice_case it;
    ml_remainder little;
    find(&little, &it, ML_ASSUMED_SMALL);
    CHECK(!little.items[0].scales);
    CHECK(little.items[1].scales);
    end(&little, &it);
    sample_end(&s);
}

/* Both have the size of cuBLAS's workspace; while the second lives, another is made. */
static void
test_a_workspace_of_a_product_does_not_scale(void)
{
    begin();
    uint32_t layer = in_module(layers[0]);
    parameter(layers[0], 20);
    give(take(32, layer, 0), 32, 0);
    uint64_t other = take(32, layer, 0);
    take(12, layer, 0);
    give(other, 32, 0);
    event_in(ML_ACTION_OOM, 20 * MIB, 100 * MIB, layer);
    ml_advice_case it;
    ml_remainder little;
    find(&little, &it, ML_ASSUMED_SMALL);
    CHECK(!little.items[1].scales);
    CHECK(little.items[2].scales);
    CHECK(little.items[3].scales);
    end(&little, &it);
    sample_end(&s);
}

/* ---- Passes of other sizes ---- */

/* Three layers of 10 MiB each, forward and backward; then twice as much in each, of which the
 * third does not come. */
static void
test_a_pass_of_another_size(void)
{
    uint64_t kept[3];
    uint32_t stacks[3];
    begin();
    for (unsigned i = 0; i < 3; i++) {
        parameter(layers[i], 4);
        stacks[i] = in_module(layers[i]);
    }
    for (unsigned i = 0; i < 3; i++) {
        kept[i] = take(10, stacks[i], 0);
    }
    for (unsigned i = 3; i > 0; i--) {
        give(take(10, 0, ML_EVENT_BACKWARD), 10, ML_EVENT_BACKWARD);
        give(kept[i - 1], 10, ML_EVENT_BACKWARD);
    }
    take(20, stacks[0], 0);
    event_in(ML_ACTION_OOM, 5 * MIB, 20 * MIB, stacks[1]);
    ml_advice_case it;
    ml_remainder little;
    find(&little, &it, ML_ASSUMED_SMALL);
    CHECK_UINT(little.untold, 0);
    /* The third layer, twice as large. */
    CHECK_UINT(little.forward, 20 * MIB);
    end(&little, &it);
    /* Much: with a backward pass of three blocks as large. */
    ml_remainder much;
    find(&much, &it, ML_ASSUMED_LARGE);
    CHECK_UINT(much.forward, 80 * MIB);
    end(&much, &it);
    sample_end(&s);
}

/* Allocated bytes of the run and its remainder, with memory without end. */
static uint64_t
peak_of(const ml_remainder *remainder, const ml_advice_case *it)
{
    ml_trial_options options = it->options;
    options.memory_bytes = UINT64_MAX;
    ml_trial_result result;
    int error = ml_remainder_try(remainder, &options, 1, 1, &result);
    return error == 0 ? result.peak.allocated : 0;
}

static void
check_peaks(uint64_t little_mib, uint64_t much_mib)
{
    for (int most = 0; most < 2; most++) {
        ml_advice_case it;
        ml_remainder remainder;
        find(&remainder, &it, most != 0);
        CHECK_UINT(remainder.untold, 0);
        CHECK_UINT(peak_of(&remainder, &it) / MIB, most != 0 ? much_mib : little_mib);
        end(&remainder, &it);
    }
}

static void
check_untold(uint32_t untold)
{
    ml_advice_case it;
    ml_remainder little;
    find(&little, &it, ML_ASSUMED_SMALL);
    CHECK_UINT(little.untold, untold);
    end(&little, &it);
    sample_end(&s);
}

/* ---- Several passes a step ---- */

static void
begin_two_layers(uint32_t stacks[2])
{
    begin();
    for (unsigned i = 0; i < 2; i++) {
        parameter(layers[i], 20);
        stacks[i] = in_module(layers[i]);
    }
}

/* Two layers of MIB_EACH, forward. */
static void
forward(uint64_t mib_each, const uint32_t stacks[2], uint64_t kept[2])
{
    for (unsigned i = 0; i < 2; i++) {
        kept[i] = take(mib_each, stacks[i], 0);
    }
}

/* Backward; each layer's gradient, of 20 MiB, is made where MAKES. */
static void
backward(uint64_t mib_each, const uint64_t kept[2], bool makes, uint64_t gradients[2])
{
    for (unsigned i = 2; i > 0; i--) {
        uint64_t brief = take(mib_each, 0, ML_EVENT_BACKWARD);
        if (makes) {
            gradients[i - 1] = take(20, 0, ML_EVENT_BACKWARD);
            sample_tag(&s, gradients[i - 1], ML_CATEGORY_GRADIENT);
        }
        give(brief, mib_each, ML_EVENT_BACKWARD);
        give(kept[i - 1], mib_each, ML_EVENT_BACKWARD);
    }
}

/* Two passes of 100 MiB a layer, a step, and the first pass of the next step, of 200 a layer,
 * in the second layer of which memory ends.  In its second pass, 40 MiB of gradients live. */
static void
test_gradients_are_gathered(void)
{
    uint64_t kept[2], gradients[2];
    uint32_t stacks[2];
    begin_two_layers(stacks);
    for (int pass = 0; pass < 2; pass++) {
        forward(100, stacks, kept);
        backward(100, kept, pass == 0, gradients);
    }
    uint32_t step = in_function("/torch/optim/sgd.py", "step", NULL);
    uint64_t temporary = take(1, step, 0);
    event_in(ML_ACTION_FREE_REQUESTED, temporary, MIB, step);
    event_in(ML_ACTION_FREE_COMPLETED, temporary, MIB, step);
    give(gradients[0], 20, 0);
    give(gradients[1], 20, 0);
    take(200, stacks[0], 0);
    event_in(ML_ACTION_OOM, 50 * MIB, 200 * MIB, stacks[1]);
    note(ML_NOTE_OPTIMIZER, "SGD", 0, 40 * MIB);
    note(ML_NOTE_LOOP, "", ML_LOOP_NO, ML_LOOP_NO);
    /* 40 of parameters, 40 of gradients, 400 of activations; much: 200 of the backward
     * pass, which a pass of another size may not have. */
    check_peaks(480, 680);
    sample_end(&s);
}

/* ---- What a pass returned ---- */

/* Two layers of 100 MiB and a result of 50, which a variable holds until the next pass returned
 * its own.  In the second pass memory ends, in its backward or in its forward. */
static void
return_and_run_out(bool in_backward)
{
    uint64_t kept[2], gradients[2];
    uint32_t stacks[2];
    begin_two_layers(stacks);
    uint32_t head = in_module("head");
    forward(100, stacks, kept);
    uint64_t result = take(50, head, 0);
    backward(100, kept, true, gradients);
    take(100, stacks[0], 0);
    if (in_backward) {
        take(100, stacks[1], 0);
        take(50, head, 0);
        give(result, 50, 0);
    }
    uint32_t stack = in_backward ? 0 : stacks[1];
    event_in(ML_ACTION_OOM, 50 * MIB, 100 * MIB, stack)->flags =
        in_backward ? ML_EVENT_BACKWARD : 0;
}

static void
test_a_result_that_is_replaced_is_no_growth(void)
{
    return_and_run_out(true);
    check_untold(0);
    /* In the forward it is there; the note says that it is a result. */
    return_and_run_out(false);
    check_untold(1u << ML_UNTOLD_GROWTH);
    return_and_run_out(false);
    note(ML_NOTE_LOOP, "", ML_LOOP_NO, ML_LOOP_YES);
    s.notes[s.recording->note_count - 1].values[2] = 50 * MIB;
    check_untold(0);
}

/* Each pass leaves 50 MiB, beside an input of 50 that the next one replaces; memory ends in the
 * third pass. */
static void
test_what_each_pass_leaves_is_growth(void)
{
    uint64_t kept[2], gradients[2], input = 0;
    uint32_t stacks[2];
    begin_two_layers(stacks);
    uint32_t head = in_module("head");
    for (int pass = 0; pass < 3; pass++) {
        uint64_t next = take(50, head, 0);
        if (pass != 0) {
            give(input, 50, 0);
        }
        input = next;
        forward(100, stacks, kept);
        take(50, head, 0);
        if (pass != 2) {
            backward(100, kept, pass == 0, gradients);
        }
    }
    event_in(ML_ACTION_OOM, 50 * MIB, 100 * MIB, 0)->flags = ML_EVENT_BACKWARD;
    check_untold(1u << ML_UNTOLD_GROWTH);
}

/* Logits of 40 MiB in 16 bits, and memory ends at 40 more outside any module; with weights of
 * 10 cast to 5, a loss over classes asks for 80 next. */
static void
test_a_loss_in_16_bits_casts_to_float32(void)
{
    for (int classes = ML_LOSS_REDUCES; classes <= ML_LOSS_CLASSES; classes++) {
        begin();
        parameter("head", 10);
        uint32_t head = in_module("head");
        take(5, head, 0);
        take(40, head, 0);
        event_in(ML_ACTION_OOM, 10 * MIB, 40 * MIB,
                 in_function("/torch/nn/functional.py", "cross_entropy", NULL));
        note(ML_NOTE_LOOP, "", ML_LOOP_NO, ML_LOOP_NO);
        s.notes[s.recording->note_count - 1].values[3] = (uint64_t)classes;
        ml_advice_case it;
        ml_remainder little;
        find(&little, &it, ML_ASSUMED_SMALL);
        CHECK_UINT(little.untold, 0);
        uint64_t cast = 0;
        for (size_t i = little.recorded + 1; i < little.workload->count; i++) {
            const ml_remainder_item *item = &little.items[i];
            cast += item->kind == ML_REST_PASS ? little.workload->demands[i].bytes : 0;
        }
        CHECK_UINT(cast, classes == ML_LOSS_CLASSES ? 80 * MIB : 0);
        /* 10, 5, 40 and 40; with the cast 80, and its gradient; without, the result's gradient
         * and the one that it makes, of 40. */
        CHECK_UINT(peak_of(&little, &it) / MIB,
                   95 + (classes == ML_LOSS_CLASSES ? 160 : 80));
        end(&little, &it);
        sample_end(&s);
    }
}

/* The model's own forward computes the loss: logits of 40 MiB are cast to 80, and memory ends at
 * 80 more.  That is no result of which a loss is to come. */
static void
test_memory_ends_in_the_loss_of_the_model(void)
{
    begin();
    parameter("head", 10);
    uint32_t head = in_module("head");
    take(5, head, 0);
    take(40, head, 0);
    uint32_t loss = in_function("/torch/nn/functional.py", "cross_entropy", "net");
    take(80, loss, 0);
    event_in(ML_ACTION_OOM, 10 * MIB, 80 * MIB, loss);
    ml_advice_case it;
    ml_remainder little;
    find(&little, &it, ML_ASSUMED_SMALL);
    CHECK_UINT(little.untold, 0);
    for (size_t i = little.recorded + 1; i < little.workload->count; i++) {
        CHECK(little.items[i].kind != ML_REST_PASS);
    }
    end(&little, &it);
    sample_end(&s);
}

/* Three layers of 100 MiB with parameters of 20; memory ends in the second.  What the loss of the
 * last one's result takes in each case, where little and where much is assumed. */
static void
test_a_loss_behind_the_last_layer(void)
{
    static const char linear[] = "/v/torch/nn/modules/linear.py";
    static const char own[] = "/home/a/model.py";
    static const struct {
        int loss;
        bool much;
        unsigned peak;
        const char *file; /* of the layers */
    } cases[] = {
        /* 60 and 300, the result's gradient and the one that it makes. */
        {ML_LOSS_REDUCES, false, 560, linear},
        {ML_LOSS_REDUCES_ALONE, false, 460, linear}, /* nothing saves the result */
        {ML_LOSS_REDUCES_ALONE, false, 560, own},
        {ML_LOSS_ELEMENTS, false, 560, own},
        {ML_LOSS_UNKNOWN, false, 560, own},
        {ML_LOSS_CLASSES, false, 660, own},
        {ML_LOSS_SQUARES, false, 760, own}, /* four of its backward pass */
        /* What it keeps, and four of its backward pass. */
        {ML_LOSS_UNKNOWN, true, 860, own},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin();
        for (unsigned k = 0; k < 3; k++) {
            parameter(layers[k], 20);
        }
        take(100, in_function(cases[i].file, "forward", layers[0]), 0);
        event_in(ML_ACTION_OOM, 50 * MIB, 100 * MIB,
                 in_function(cases[i].file, "forward", layers[1]));
        note(ML_NOTE_OPTIMIZER, "SGD", 0, 60 * MIB);
        note(ML_NOTE_LOOP, "", ML_LOOP_NO, ML_LOOP_NO);
        s.notes[s.recording->note_count - 1].values[3] = (uint64_t)cases[i].loss;
        ml_advice_case it;
        ml_remainder rest;
        find(&rest, &it, cases[i].much ? ML_ASSUMED_LARGE : ML_ASSUMED_SMALL);
        CHECK_UINT(rest.untold, 0);
        CHECK_UINT(peak_of(&rest, &it) / MIB, cases[i].peak);
        end(&rest, &it);
        sample_end(&s);
    }
}

/* What the pass before returned is there until the model has returned; where that makes its loss
 * itself, beside what the loss keeps, too. */
static void
test_a_result_is_replaced_after_the_loss_of_its_model(void)
{
    uint64_t peaks[2];
    for (int inside = 0; inside <= 1; inside++) {
        begin();
        parameter(layers[0], 20);
        parameter(layers[1], 20);
        take(100, in_module(layers[0]), 0);
        event_in(ML_ACTION_OOM, 50 * MIB, 100 * MIB, in_module(layers[1]));
        note(ML_NOTE_OPTIMIZER, "SGD", 0, 40 * MIB);
        note(ML_NOTE_LOOP, "", ML_LOOP_NO, inside ? ML_LOOP_YES_AND_LOSS : ML_LOOP_YES);
        s.notes[s.recording->note_count - 1].values[2] = 1000 * MIB;
        s.notes[s.recording->note_count - 1].values[3] = ML_LOSS_CLASSES;
        ml_advice_case it;
        ml_remainder rest;
        find(&rest, &it, ML_ASSUMED_SMALL);
        CHECK_UINT(rest.untold, 0);
        peaks[inside] = peak_of(&rest, &it) / MIB;
        end(&rest, &it);
        sample_end(&s);
    }
    /* The second layer's result, and what the loss keeps. */
    CHECK_UINT(peaks[1], peaks[0] + 200);
}

/* Three layers of 100 MiB with parameters of 20.  Memory ends in the loss: at the block of one
 * element by element, which its mean frees, or at the second of the backward pass of one that is
 * not known, which has four. */
static void
test_memory_ends_in_the_loss(void)
{
    for (int backward = 0; backward <= 1; backward++) {
        begin();
        for (unsigned k = 0; k < 3; k++) {
            parameter(layers[k], 20);
        }
        for (unsigned k = 0; k < 3; k++) {
            take(100, in_module(layers[k]), 0);
        }
        if (backward) {
            take(100, 0, ML_EVENT_BACKWARD);
        }
        event_in(ML_ACTION_OOM, 50 * MIB, 100 * MIB, 0)->flags =
            backward ? ML_EVENT_BACKWARD : 0;
        note(ML_NOTE_OPTIMIZER, "SGD", 0, 60 * MIB);
        note(ML_NOTE_LOOP, "", ML_LOOP_NO, ML_LOOP_NO);
        s.notes[s.recording->note_count - 1].values[3] =
            backward ? ML_LOSS_UNKNOWN : ML_LOSS_ELEMENTS;
        ml_advice_case it;
        ml_remainder rest;
        find(&rest, &it, backward != 0 ? ML_ASSUMED_LARGE : ML_ASSUMED_SMALL);
        CHECK_UINT(rest.untold, 0);
        CHECK_UINT(peak_of(&rest, &it) / MIB, backward ? 760 : 560);
        end(&rest, &it);
        sample_end(&s);
    }
}

/* ---- A backward pass under way ---- */

/* Three layers of 100 MiB; in the backward pass, beside the loss's gradient, memory ends at that
 * of the third layer. */
static void
test_a_backward_pass_under_way(void)
{
    begin();
    for (unsigned i = 0; i < 3; i++) {
        parameter(layers[i], 20);
    }
    for (unsigned i = 0; i < 3; i++) {
        take(100, in_module(layers[i]), 0);
    }
    sample_tag(&s, take(100, 0, ML_EVENT_BACKWARD), ML_CATEGORY_TEMPORARY);
    event_in(ML_ACTION_OOM, 50 * MIB, 100 * MIB, 0)->flags = ML_EVENT_BACKWARD;
    note(ML_NOTE_OPTIMIZER, "SGD", 0, 60 * MIB);
    note(ML_NOTE_LOOP, "", ML_LOOP_NO, ML_LOOP_NO);
    s.notes[s.recording->note_count - 1].values[3] = ML_LOSS_REDUCES;
    /* 60 of parameters, 300 that wait, what came and what was asked for: when the latter
     * goes on, the others of its layer are gone.  Much: it makes one more before that, and
     * the second layer three, beside its own and the third's gradient. */
    check_peaks(560, 60 + 200 + 100 + 300 + 20);
    sample_end(&s);
}

/* In the first backward pass memory ends in a module's call: a checkpoint makes it again. */
static void
test_a_checkpoint_under_way_is_not_known(void)
{
    begin();
    for (unsigned i = 0; i < 2; i++) {
        parameter(layers[i], 20);
        take(100, in_module(layers[i]), 0);
    }
    take(100, 0, ML_EVENT_BACKWARD);
    event_in(ML_ACTION_OOM, 50 * MIB, 100 * MIB, in_module(layers[1]))->flags =
        ML_EVENT_BACKWARD;
    check_untold(1u << ML_UNTOLD_CHECKPOINT);
}

/* The request that failed is a parameter's gradient: it stays, and does not grow with the
 * batch. */
static void
test_a_gradient_that_failed_does_not_scale(void)
{
    begin();
    for (unsigned i = 0; i < 2; i++) {
        parameter(layers[i], 20);
    }
    for (unsigned i = 0; i < 2; i++) {
        take(100, in_module(layers[i]), 0);
    }
    take(100, 0, ML_EVENT_BACKWARD);
    event_in(ML_ACTION_OOM, 10 * MIB, 20 * MIB, 0)->flags = ML_EVENT_BACKWARD;
    ml_advice_case it;
    ml_remainder little;
    find(&little, &it, ML_ASSUMED_SMALL);
    CHECK(!little.items[little.recorded].scales);
    CHECK_UINT(little.items[little.recorded].kind, ML_REST_GRADIENT);
    CHECK_UINT(little.gradients, 20 * MIB);
    end(&little, &it);
    sample_end(&s);
}

/* ---- Modules ---- */

static void
test_modules_with_other_parameters_are_not_alike(void)
{
    begin();
    parameter(layers[0], 10);
    parameter(layers[1], 20);
    parameter(layers[2], 40);
    run_out(1, 90, 10);
    ml_make_fit fit;
    CHECK_INT(ml_make_fit_of(s.recording, 0, UINT64_MAX, &fit), 0);
    CHECK_UINT(fit.untold, 1u << ML_UNTOLD_MODULES);
    sample_end(&s);
}

/* ---- Checkpoints ---- */

static unsigned
count_brief(const ml_remainder *remainder, uint64_t mib)
{
    unsigned count = 0;
    for (size_t i = remainder->recorded; i < remainder->workload->count; i++) {
        count += remainder->items[i].kind == ML_REST_BRIEF &&
                 remainder->workload->demands[i].bytes == mib * MIB;
    }
    return count;
}

/* A checkpointed layer: linear (70 MiB), relu (60), dropout (50), linear (20), of which it
 * keeps the last.  Made again, relu keeps its result and the second linear its input; nobody
 * keeps what the relu reads. */
static void
checkpointed(void)
{
    static const char *const files[] = {
        "/torch/nn/modules/linear.py", "/torch/nn/functional.py",
        "/torch/nn/functional.py", "/torch/nn/modules/linear.py"};
    static const char *const names[] = {"forward", "relu", "dropout", "forward"};
    static const char *const modules[] = {"layers.0.first", "layers.0", "layers.0.drop",
                                          "layers.0.second"};
    static const uint64_t sizes[] = {70, 60, 50, 20};
    uint64_t addr[4];
    begin();
    parameter(layers[0], 4);
    parameter(layers[1], 4);
    for (unsigned i = 0; i < 4; i++) {
        addr[i] = take(sizes[i], in_function(files[i], names[i], modules[i]), 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        give(addr[i], sizes[i], 0);
    }
    event_in(ML_ACTION_OOM, 5 * MIB, 64 * MIB,
             in_function(files[0], names[0], "layers.1.first"));
}

static void
test_a_checkpoint_makes_again_what_is_kept(void)
{
    checkpointed();
    ml_advice_case it;
    ml_remainder much;
    find(&much, &it, ML_ASSUMED_LARGE);
    CHECK_UINT(much.untold, 0);
    /* In the next pass's forward alone; the others in two layers', and as often as a
     * backward pass makes them again. */
    CHECK_UINT(count_brief(&much, 70), 1);
    CHECK_UINT(count_brief(&much, 60), 4);
    CHECK_UINT(count_brief(&much, 50), 4);
    end(&much, &it);
    /* Little: half of what is perhaps kept. */
    ml_remainder little;
    find(&little, &it, ML_ASSUMED_SMALL);
    CHECK_UINT(count_brief(&little, 60), 4);
    CHECK_UINT(count_brief(&little, 10), 2);
    end(&little, &it);
    sample_end(&s);
}

static void
test_each_allocation_can_fail(void)
{
    checkpointed();
    int result = ML_ENOMEM;
    for (long budget = 0; result < 0; budget += BUDGET_STEP) {
        ml_make_fit fit;
        budget_begin(budget);
        result = ml_make_fit_of(s.recording, 0, UINT64_MAX, &fit);
        CHECK(result == 0 || result == ML_ENOMEM);
        ml_recording_detach(s.recording);
        CHECK_INT(budget_alive, 0);
        budget_end();
    }
    sample_end(&s);
}

int
main(void)
{
    RUN(test_a_batch_divides_what_it_makes);
    RUN(test_a_workspace_of_a_product_does_not_scale);
    RUN(test_gradients_are_gathered);
    RUN(test_a_result_that_is_replaced_is_no_growth);
    RUN(test_what_each_pass_leaves_is_growth);
    RUN(test_a_loss_in_16_bits_casts_to_float32);
    RUN(test_memory_ends_in_the_loss_of_the_model);
    RUN(test_a_loss_behind_the_last_layer);
    RUN(test_a_result_is_replaced_after_the_loss_of_its_model);
    RUN(test_memory_ends_in_the_loss);
    RUN(test_a_backward_pass_under_way);
    RUN(test_a_checkpoint_under_way_is_not_known);
    RUN(test_a_gradient_that_failed_does_not_scale);
    RUN(test_a_pass_of_another_size);
    RUN(test_modules_with_other_parameters_are_not_alike);
    RUN(test_a_checkpoint_makes_again_what_is_kept);
    RUN_LONG_IN_ONE_THREAD(test_each_allocation_can_fail);
    return TEST_RESULT();
}
