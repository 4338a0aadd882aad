/* What to write for a change of a library's own model, loss or loop. */
#include "lab/advice/library_switches.h"

#include <string.h>

#include "recording_samples.h"
#include "test.h"

#define PACKAGES "/venv/lib/python3.11/site-packages/"

/* A stack through FILES, the outermost first; NULL: no more. */
static uint32_t
through(ml_recording *recording, const char *const *files)
{
    uint32_t stack = 0;
    for (int line = 1; *files != NULL; files++, line++) {
        stack = sample_call(recording, stack, *files, line, "call", NULL);
    }
    return stack;
}

#define THROUGH(...) through(recording, (const char *const[]){__VA_ARGS__, NULL})
/* FOUND is EXPECTED; "": none. */
static void
check_switch(const char *found, const char *expected)
{
    CHECK_STR(found != NULL ? found : "", expected);
}

static void
test_models(void)
{
    sample s;
    sample_begin(&s);
    ml_recording *recording = s.recording;
    const struct {
        uint32_t stack;
        const char *checkpoint;
    } cases[] = {
        {0, ""},
        {THROUGH("train.py", PACKAGES "torch/nn/modules/linear.py"), ""},
        {THROUGH("train.py", PACKAGES "transformers/modeling_layers.py",
                 PACKAGES "transformers/models/llama/modeling_llama.py",
                 PACKAGES "torch/nn/functional.py"),
         "model.gradient_checkpointing_enable()"},
        {THROUGH("train.py", PACKAGES "transformers/trainer.py",
                 PACKAGES "transformers/modeling_layers.py",
                 PACKAGES "transformers/models/llama/modeling_llama.py"),
         "TrainingArguments(..., gradient_checkpointing=True)"},
        {THROUGH("train.py", PACKAGES "transformers/trainer.py",
                 PACKAGES "trl/trainer/sft_trainer.py",
                 PACKAGES "transformers/modeling_layers.py"),
         "gradient_checkpointing=True in the trainer's args, such as SFTConfig"},
        /* Its models without such layers raise at the switch. */
        {THROUGH("train.py", PACKAGES "transformers/trainer.py",
                 PACKAGES "transformers/models/mobilenet_v2/modeling_mobilenet_v2.py"),
         ""},
        /* Another's model in the Trainer has no such switch. */
        {THROUGH("train.py", PACKAGES "transformers/trainer.py", "model.py"), ""},
        {THROUGH("train.py", PACKAGES "diffusers/models/unets/unet_2d.py"),
         "model.enable_gradient_checkpointing()"},
        {THROUGH("train.py", PACKAGES "timm/models/vision_transformer.py"),
         "model.set_grad_checkpointing()"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        check_switch(ml_switch_of_checkpoint(recording, cases[i].stack),
                     cases[i].checkpoint);
    }
    sample_end(&s);
}

static void
test_loss(void)
{
    sample s;
    sample_begin(&s);
    ml_recording *recording = s.recording;
    const char *loss = PACKAGES "transformers/loss/loss_utils.py";
    check_switch(ml_switch_of_loss(recording, THROUGH("train.py", loss)), "");
    CHECK(ml_is_loss_of_library(recording, THROUGH("train.py", loss)));
    CHECK(!ml_is_loss_of_library(recording, THROUGH("train.py")));
    check_switch(
        ml_switch_of_loss(
            recording, THROUGH("train.py", PACKAGES "transformers/trainer.py", loss)),
        "TrainingArguments(..., use_liger_kernel=True)");
    check_switch(ml_switch_of_loss(
                     recording, THROUGH("train.py", PACKAGES "transformers/trainer.py",
                                        PACKAGES "torch/nn/functional.py")),
                 "");
    sample_end(&s);
}

static void
test_late_gradients(void)
{
    sample s;
    sample_begin(&s);
    ml_recording *recording = s.recording;
    const char *loop = PACKAGES "lightning/pytorch/loops/optimization/automatic.py";
    const char *optimizer = PACKAGES "torch/optim/optimizer.py";
    CHECK(ml_switch_of_late_gradients(recording,
                                      THROUGH("train.py", loop, optimizer)) != NULL);
    check_switch(ml_switch_of_late_gradients(recording, THROUGH("train.py", optimizer)),
                 "");
    /* The program's own line, which Lightning calls. */
    check_switch(ml_switch_of_late_gradients(
                     recording, THROUGH("train.py", loop, "module.py", optimizer)),
                 "");
    sample_end(&s);
}

int
main(void)
{
    RUN(test_models);
    RUN(test_loss);
    RUN(test_late_gradients);
    return TEST_RESULT();
}
