/* The batch that fits, of runs put together by hand. */
#include "lab/verdict/make_fit.h"

#include "remainder_samples.h"

/* Parameters of 80 MiB, and memory that ends in the third of four layers of 100. */
static void
train_and_run_out(uint64_t live)
{
    begin();
    for (unsigned i = 0; i < 4; i++) {
        parameter(layers[i], 20);
    }
    run_out(2, 100, 20);
    note(ML_NOTE_OPTIMIZER, "SGD", 0, 80 * MIB);
    note(ML_NOTE_LOOP, "", live, ML_LOOP_NO);
    s.notes[s.recording->note_count - 1].values[3] = ML_LOSS_REDUCES;
}

static void
fit_with_gradients(uint64_t live, ml_make_fit *fit)
{
    train_and_run_out(live);
    CHECK_INT(ml_make_fit_of(s.recording, 0, UINT64_MAX, fit), 0);
    sample_end(&s);
}

/* Of 300 MiB parameters take 80. Gradients that live while the next forward runs take 80
 * more from its activations, with little and with much assumed. */
static void
test_gradients_that_live_take_their_part(void)
{
    ml_make_fit go, live, unknown;
    fit_with_gradients(ML_LOOP_NO, &go);
    fit_with_gradients(ML_LOOP_YES, &live);
    fit_with_gradients(ML_LOOP_UNKNOWN, &unknown);
    CHECK(live.batch_safe < go.batch_safe);
    CHECK(live.batch_most < go.batch_most);
    CHECK_UINT(unknown.batch_safe, live.batch_safe);
    CHECK_UINT(unknown.batch_most, go.batch_most);
}

/* Of 300 MiB parameters take 80; a batch of n of 9 takes 400 n / 9 for its activations and 100
 * n / 9 for the gradient of one at least: 247 MiB with 3, 302 with 4. */
static void
test_only_whole_samples_are_tried(void)
{
    train_and_run_out(ML_LOOP_NO);
    note(ML_NOTE_BATCH, "--batch", 9, 0);
    ml_make_fit fit;
    CHECK_INT(ml_make_fit_of(s.recording, 0, UINT64_MAX, &fit), 0);
    CHECK_UINT(ml_make_fit_whole(&fit), 9);
    CHECK_UINT(fit.batch_most, 3);
    CHECK(fit.batch_safe == 2 || fit.batch_safe == 3);
    CHECK_UINT(ml_make_fit_number(&fit), fit.batch_safe);
    CHECK(fit.batch_named);
    sample_end(&s);
}

/* A convolution takes MIB_FOR_ITSELF in the forward pass; the next module runs out of the
 * 300 MiB. */
static void
convolve_and_run_out(uint64_t mib_for_itself)
{
    begin();
    parameter(layers[0], 20);
    uint32_t convolution =
        in_function("/torch/nn/modules/conv.py", "_conv_forward", layers[0]);
    give(take(mib_for_itself, convolution, 0), mib_for_itself, 0);
    take(200, convolution, 0);
    event_in(ML_ACTION_OOM, (80 - mib_for_itself) * MIB, 100 * MIB,
             in_module(layers[0]));
}

/* Memory of 300 MiB has a margin of 4.7. */
static void
test_workspaces_of_convolutions_leave_the_batch_unknown(void)
{
    for (uint64_t mib = 4; mib <= 5; mib++) {
        convolve_and_run_out(mib);
        ml_make_fit fit;
        CHECK_INT(ml_make_fit_of(s.recording, 0, UINT64_MAX, &fit), 0);
        CHECK_UINT(fit.memory_bytes, 300 * MIB);
        CHECK_UINT(fit.untold, mib == 4 ? 0 : 1u << ML_UNTOLD_WORKSPACES);
        sample_end(&s);
    }
}

/* Parameters and gradients of 80 MiB; of 240 MiB those that Adam keeps, 160, are too much.  CACHED
 * blocks of 10 MiB, too small for the others, are released for the forward's, of MIB_KEPT. */
static void
run_out_in_the_step(unsigned cached, uint64_t mib_kept)
{
    begin();
    uint32_t step = in_function("/torch/optim/adam.py", "step", NULL);
    for (unsigned i = 0; i < 4; i++) {
        parameter(layers[i], 20);
    }
    uint64_t first = next_addr;
    for (unsigned i = 0; i < cached; i++) {
        take(10, 0, 0);
    }
    for (unsigned i = 0; i < cached; i++) {
        give(first + i * (UINT64_C(1) << 32), 10, 0);
    }
    for (unsigned i = 0; i < cached; i++) {
        event_in(ML_ACTION_SEGMENT_FREE, first + i * (UINT64_C(1) << 32), 10 * MIB, 0);
    }
    uint64_t kept = take(mib_kept, in_module(layers[0]), 0);
    for (unsigned i = 0; i < 4; i++) {
        sample_tag(&s, take(20, 0, ML_EVENT_BACKWARD), ML_CATEGORY_GRADIENT);
    }
    give(kept, mib_kept, ML_EVENT_BACKWARD);
    for (unsigned i = 0; i < 3; i++) {
        sample_tag(&s, take(20, step, 0), ML_CATEGORY_OPTIMIZER_STATE);
    }
    event_in(ML_ACTION_OOM, (20 - mib_kept) * MIB, 20 * MIB, step);
    note(ML_NOTE_OPTIMIZER, "AdamW", 160 * MIB, 80 * MIB);
    note(ML_NOTE_LOOP, "", ML_LOOP_NO, ML_LOOP_NO);
}

/* Adam's step makes 80 MiB of temporaries.  Optimizers that update one parameter at a time make
 * none: an 8-bit one takes 200 in all. */
static void
test_another_optimizer_makes_no_temporaries(void)
{
    run_out_in_the_step(0, 10);
    ml_make_fit fit;
    CHECK_INT(ml_make_fit_of(s.recording, 0, UINT64_MAX, &fit), 0);
    CHECK_UINT(fit.memory_bytes, 240 * MIB);
    const ml_remedy *remedy = ml_remedies_of(&fit.remedies, ML_REMEDY_OPTIMIZER_8BIT);
    CHECK(remedy != NULL && remedy->fits && remedy->chosen);
    CHECK(remedy != NULL && remedy->needs >= 200 * MIB);
    sample_end(&s);
}

/* Memory without end keeps what is cached, and the need with it. */
static void
test_a_remedy_that_fits_needs_no_more_than_there_is(void)
{
    run_out_in_the_step(15, 12);
    ml_make_fit fit;
    CHECK_INT(ml_make_fit_of(s.recording, 0, UINT64_MAX, &fit), 0);
    unsigned fitting = 0;
    for (size_t i = 0; i < fit.remedies.count; i++) {
        const ml_remedy *remedy = &fit.remedies.list[i];
        fitting += remedy->fits;
        CHECK(!remedy->fits || remedy->needs <= fit.memory_bytes);
        CHECK_UINT(remedy->needs + remedy->saving, fit.remedies.needs);
    }
    CHECK(fitting != 0);
    sample_end(&s);
}

/* Parameters of 40 and 24 MiB, of which autocast makes 20 and 12: bfloat16 is there already.  A
 * forward that makes 20 and 13 may compute in float32. */
static void
test_autocast_is_not_named_where_it_runs(void)
{
    for (uint64_t second = 12; second <= 13; second++) {
        begin();
        parameter(layers[0], 40);
        parameter(layers[0], 24);
        parameter(layers[1], 40);
        parameter(layers[1], 24);
        take(20, in_module(layers[0]), 0);
        take(second, in_module(layers[0]), 0);
        take(200, in_module(layers[0]), 0);
        event_in(ML_ACTION_OOM, 50 * MIB, 200 * MIB, in_module(layers[1]));
        note(ML_NOTE_OPTIMIZER, "SGD", 0, 128 * MIB);
        note(ML_NOTE_LOOP, "", ML_LOOP_NO, ML_LOOP_NO);
        ml_make_fit fit;
        CHECK_INT(ml_make_fit_of(s.recording, 0, UINT64_MAX, &fit), 0);
        bool named = ml_remedies_of(&fit.remedies, ML_REMEDY_BFLOAT16) != NULL;
        CHECK_INT(named, second == 13);
        sample_end(&s);
    }
}

/* Of five sizes of parameters autocast casts the two of a linear layer: all that it could. */
static void
test_of_products_autocast_casts_all(void)
{
    static const char *const files[] = {"/home/a/model.py",
                                        "/torch/nn/modules/linear.py"};
    for (int linear = 0; linear <= 1; linear++) {
        begin();
        parameter("embedding", 7);
        parameter("position", 9);
        parameter("norm", 11);
        uint32_t stack = sample_call(s.recording, in_module(layers[0]), files[linear],
                                     7, "forward", layers[0]);
        for (unsigned mib = 40; mib >= 24; mib -= 16) {
            parameter(layers[0], mib);
            /* Of a run, one string. */
            s.tags[s.device.tag_count - 1].module = s.recording->stacks[stack].module;
            parameter(layers[1], mib);
        }
        take(20, stack, 0);
        take(12, stack, 0);
        take(200, stack, 0);
        event_in(ML_ACTION_OOM, 50 * MIB, 200 * MIB, in_module(layers[1]));
        note(ML_NOTE_OPTIMIZER, "SGD", 0, 128 * MIB);
        note(ML_NOTE_LOOP, "", ML_LOOP_NO, ML_LOOP_NO);
        ml_make_fit fit;
        CHECK_INT(ml_make_fit_of(s.recording, 0, UINT64_MAX, &fit), 0);
        bool named = ml_remedies_of(&fit.remedies, ML_REMEDY_BFLOAT16) != NULL;
        CHECK_INT(named, !linear);
        sample_end(&s);
    }
}

/* A library's model has a switch. */
static void
test_a_switch_checkpoints(void)
{
    begin();
    const char *file = "/site-packages/timm/models/vision_transformer.py";
    for (unsigned i = 0; i < 4; i++) {
        parameter(layers[i], 1);
    }
    for (unsigned i = 0; i < 3; i++) {
        take(100, in_function(file, "forward", layers[i]), 0);
    }
    event_in(ML_ACTION_OOM, 50 * MIB, 100 * MIB,
             in_function(file, "forward", layers[3]));
    ml_make_fit fit;
    CHECK_INT(ml_make_fit_of(s.recording, 0, UINT64_MAX, &fit), 0);
    for (size_t i = 0; i < fit.remedies.count; i++) {
        const ml_remedy *remedy = &fit.remedies.list[i];
        bool its = remedy->kind == ML_REMEDY_CHECKPOINT;
        CHECK_STR(remedy->library_switch != NULL ? remedy->library_switch : "",
                  its ? "model.set_grad_checkpointing()" : "");
    }
    CHECK(ml_remedies_of(&fit.remedies, ML_REMEDY_CHECKPOINT) != NULL);
    sample_end(&s);
}

int
main(void)
{
    RUN(test_gradients_that_live_take_their_part);
    RUN(test_only_whole_samples_are_tried);
    RUN(test_workspaces_of_convolutions_leave_the_batch_unknown);
    RUN(test_another_optimizer_makes_no_temporaries);
    RUN(test_a_remedy_that_fits_needs_no_more_than_there_is);
    RUN(test_autocast_is_not_named_where_it_runs);
    RUN(test_of_products_autocast_casts_all);
    RUN(test_a_switch_checkpoints);
    return TEST_RESULT();
}
