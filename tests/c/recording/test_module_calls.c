/* Names of modules' calls, by frames alone. */
#include "recording/module_calls.h"

#include "base/base.h"
#include "budget.h"
#include "recording_samples.h"
#include "test.h"

#define NN "site-packages/torch/nn/modules/"

static uint32_t
enter(ml_recording *recording, uint32_t caller)
{
    caller = sample_call(recording, caller, NN "module.py", 1779, "_wrapped_call_impl",
                         NULL);
    return sample_call(recording, caller, NN "module.py", 1790, "_call_impl", NULL);
}

static uint32_t
forward(ml_recording *recording, uint32_t caller, const char *file, int64_t line)
{
    return sample_call(recording, enter(recording, caller), file, line, "forward",
                       NULL);
}

#define CHECK_MODULE(stack, want) \
    do { \
        ml_string name = recording->strings[recording->stacks[stack].module]; \
        CHECK_INT(name.length, strlen(want)); \
        CHECK(memcmp(name.bytes, want, name.length) == 0); \
    } while (0)

static void
test_names(void)
{
    ml_recording *recording;
    CHECK_INT(ml_recording_new(&recording), 0);
    uint32_t whole =
        sample_call(recording, 0, "/home/a/train.py", 21, "<module>", NULL);
    /* The forward is wrapped by another file's function. */
    uint32_t wrapped = enter(recording, whole);
    wrapped = sample_call(recording, wrapped, "utils/generic.py", 939, "wrapper", NULL);
    uint32_t model =
        sample_call(recording, wrapped, "a/gpt.v2.py", 50, "forward", NULL);
    /* So is the call of a block, and a method of the model's stands between. */
    uint32_t method = sample_call(recording, model, "a/gpt.v2.py", 40, "run", NULL);
    uint32_t layer =
        sample_call(recording, method, "utils/layers.py", 109, "__call__", NULL);
    uint32_t block = forward(recording, layer, "a/gpt.v2.py", 30);
    uint32_t linear = forward(recording, block, NN "linear.py", 134);
    uint32_t inside =
        sample_call(recording, linear, "torch/nn/functional.py", 9, "linear", NULL);
    uint32_t list = forward(recording, block, NN "container.py", 253);
    uint32_t child = forward(recording, list, NN "activation.py", 144);
    uint32_t again = forward(recording, block, NN "linear.py", 134);
    CHECK_INT(ml_module_calls_name(recording), 0);
    CHECK_INT(ml_recording_validate(recording), 0);
    CHECK_MODULE(whole, "");
    CHECK_MODULE(wrapped, "");
    CHECK_MODULE(model, "gpt_v2@21");
    CHECK_MODULE(block, "gpt_v2@21.@40");
    CHECK_MODULE(linear, "gpt_v2@21.@40.linear@30");
    CHECK_MODULE(inside, "");
    CHECK_MODULE(list, "gpt_v2@21.@40.container@30");
    CHECK_MODULE(child, "gpt_v2@21.@40.container@30.activation");
    CHECK_UINT(recording->stacks[again].module, recording->stacks[linear].module);
    ml_recording_free(recording);
}

/* A name does not grow with every level of a recursion. */
static void
test_recursion(void)
{
    ml_recording *recording;
    CHECK_INT(ml_recording_new(&recording), 0);
    uint32_t stack = 0;
    for (int i = 0; i < 1000; i++) {
        stack = forward(recording, stack, "deep.py", 1);
    }
    CHECK_INT(ml_module_calls_name(recording), 0);
    CHECK(recording->strings[recording->stacks[stack].module].length < 600);
    ml_recording_free(recording);
}

static void
test_no_memory(void)
{
    int error = ML_ENOMEM;
    for (long budget = 0; error != 0; budget++) {
        ml_recording *recording;
        CHECK_INT(ml_recording_new(&recording), 0);
        forward(recording, forward(recording, 0, "a.py", 1), "b.py", 2);
        budget_begin(budget);
        error = ml_module_calls_name(recording);
        budget_end();
        CHECK(error == 0 || error == ML_ENOMEM);
        ml_recording_free(recording);
    }
}

int
main(void)
{
    RUN(test_names);
    RUN(test_recursion);
    RUN(test_no_memory);
    return TEST_RESULT();
}
