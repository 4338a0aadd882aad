/* Finds a library by the files of a stack.  See library_switches.h. */
#include "lab/advice/library_switches.h"

#include <stddef.h>

#include "analysis/attribution/stack_facts.h"

/* Of transformers, whose Trainer sets up the model. */
#define TRAINER "/transformers/trainer.py"
/* Its trainers, which are Trainers, have arguments of their own. */
#define TRL "/trl/trainer/"
#define LOSSES "/transformers/loss/"

static bool
comes_through(const ml_recording *recording, uint32_t stack, const char *files)
{
    for (; stack != 0; stack = recording->stacks[stack].parent) {
        if (ml_string_holds(ml_stack_file(recording, stack), files)) {
            return true;
        }
    }
    return false;
}

const char *
ml_switch_of_checkpoint(const ml_recording *recording, uint32_t stack)
{
    static const char *const switches[][2] = {
        {"/diffusers/models/", "model.enable_gradient_checkpointing()"},
        {"/timm/models/", "model.set_grad_checkpointing()"},
    };
    /* The call of its layers that have the switch; its other models raise at it. */
    if (comes_through(recording, stack, "/transformers/modeling_layers.py")) {
        return !comes_through(recording, stack, TRAINER)
                   ? "model.gradient_checkpointing_enable()"
               : comes_through(recording, stack, TRL)
                   ? "gradient_checkpointing=True in the trainer's args, such as "
                     "SFTConfig"
                   : "TrainingArguments(..., gradient_checkpointing=True)";
    }
    for (size_t i = 0; i < sizeof(switches) / sizeof(*switches); i++) {
        if (comes_through(recording, stack, switches[i][0])) {
            return switches[i][1];
        }
    }
    return NULL;
}

bool
ml_is_loss_of_library(const ml_recording *recording, uint32_t stack)
{
    return comes_through(recording, stack, LOSSES);
}

const char *
ml_switch_of_loss(const ml_recording *recording, uint32_t stack)
{
    return ml_is_loss_of_library(recording, stack) &&
                   comes_through(recording, stack, TRAINER)
               ? "TrainingArguments(..., use_liger_kernel=True)"
               : NULL;
}

/* Lightning's own zero_grad() comes after the forward pass.  For the LightningModule. */
const char *
ml_switch_of_late_gradients(const ml_recording *recording, uint32_t stack)
{
    for (; stack != 0; stack = recording->stacks[stack].parent) {
        uint32_t frame = recording->stacks[stack].frame;
        enum ml_frame_place place = ml_frame_place_of(recording, frame);
        ml_string file = ml_frame_file(recording, frame);
        if (place == ML_PLACE_USER || place == ML_PLACE_PACKAGE) {
            bool its = place == ML_PLACE_PACKAGE &&
                       (ml_string_holds(file, "/lightning/pytorch/") ||
                        ml_string_holds(file, "/pytorch_lightning/"));
            return its ? "def optimizer_step(self, *a): super().optimizer_step(*a); "
                         "a[2].zero_grad()"
                       : NULL;
        }
    }
    return NULL;
}
