/* What stacks say, each worked out by hand. */
#include "analysis/attribution/stack_facts.h"

#include <stdlib.h>

#include "base/base.h"
#include "recording_samples.h"
#include "test.h"

#define TORCH "/v/site-packages/torch/"
#define ENGINE TORCH "autograd/graph.py", 9, "_engine_run_backward"

/* One frame further in than CALLER; MODULE 0: of none. */
static uint32_t
add(ml_recording *r, uint32_t caller, const char *file, int64_t line, const char *name,
    uint32_t module)
{
    ml_frame frame = {.name = sample_string(r, name),
                      .filename = sample_string(r, file),
                      .line = line};
    ml_stack stack = {.parent = caller, .module = module};
    uint32_t id = 0;
    ml_recording_add_frame(r, frame, &stack.frame);
    ml_recording_add_stack(r, stack, &id);
    return id;
}

static int64_t
line_of(const ml_recording *r, ml_standing standing)
{
    return r->frames[standing.frame].line;
}

static void
check_place(const char *file, const char *name, enum ml_frame_place place)
{
    ml_recording *r;
    CHECK_INT(ml_recording_new(&r), 0);
    uint32_t stack = add(r, 0, file, 1, name, 0);
    ml_stack_facts facts;
    CHECK_INT(ml_stack_facts_init(&facts, r), 0);
    CHECK_INT(facts.of[stack].whole.place, place);
    CHECK_INT(ml_stack_standing(r, stack).place, place);
    CHECK_INT(facts.of[0].whole.place, ML_PLACE_NONE);
    ml_stack_facts_fini(&facts);
    ml_recording_free(r);
}

static void
test_whose_code_a_frame_is(void)
{
    static const struct {
        const char *file;
        enum ml_frame_place place;
    } files[] = {
        {"/home/a/train.py", ML_PLACE_USER},
        {"<string>", ML_PLACE_USER},
        {"code/__torch__.py", ML_PLACE_USER},
        {"code/__torch__/torch/nn/modules/linear.py", ML_PLACE_LIBRARY},
        {"train.py", ML_PLACE_USER},
        {"/home/a/torch/mine.py", ML_PLACE_USER},
        {"/v/site-packages/transformers/models/llama.py", ML_PLACE_PACKAGE},
        {"/usr/lib/python3/dist-packages/numpy/core.py", ML_PLACE_PACKAGE},
        {TORCH "nn/functional.py", ML_PLACE_LIBRARY},
        {"torch/nn/functional.py", ML_PLACE_LIBRARY},
        {"/usr/lib/python3.11/contextlib.py", ML_PLACE_LIBRARY},
        {"<frozen runpy>", ML_PLACE_LIBRARY},
        {"/tmp/torchinductor_a/x4/cx4.py", ML_PLACE_LIBRARY},
        {"<eval_with_key>.1", ML_PLACE_LIBRARY},
        {"/cache/o2/co2fmiw6deohclsln5qwopnsg5fclhkjpfiu6nmrgebsk2fbluj6.py",
         ML_PLACE_LIBRARY},
        {"/cache/o3/co2fmiw6deohclsln5qwopnsg5fclhkjpfiu6nmrgebsk2fbluj6.py",
         ML_PLACE_USER},
        {"/cache/o2/co2fmiw6deohclsln5qwopnsg5fclhkjpfiu6nmrgebsk2fbl-j6.py",
         ML_PLACE_USER},
        {"/src/c10/alloc.cpp", ML_PLACE_NATIVE},
        {"??", ML_PLACE_NATIVE},
        {"/v/site-packages/torch/lib/libtorch_cpu.so", ML_PLACE_NATIVE},
        {"/lib/x86_64-linux-gnu/libc.so.6", ML_PLACE_NATIVE},
        {"/usr/bin/python3.11", ML_PLACE_NATIVE},
        {"", ML_PLACE_NATIVE},
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        check_place(files[i].file, "f", files[i].place);
    }
    check_place("train.py", "<backward op>", ML_PLACE_USER);
    check_place("<string>", "<forward op>", ML_PLACE_LIBRARY);
    check_place("<string>", "<backward op>", ML_PLACE_LIBRARY);
}

static void
test_modules_and_scopes(void)
{
    ml_recording *r;
    CHECK_INT(ml_recording_new(&r), 0);
    uint32_t net = sample_string(r, "Net");
    uint32_t fc = sample_string(r, "h.0.fc");
    uint32_t main = add(r, 0, "train.py", 10, "main", 0);
    uint32_t call = add(r, main, TORCH "nn/modules/module.py", 1, "_wrapped_call", net);
    uint32_t body = add(r, call, "model.py", 20, "forward", 0);
    uint32_t inner = add(r, body, TORCH "nn/modules/module.py", 1, "_call", fc);
    uint32_t linear = add(r, inner, TORCH "nn/modules/linear.py", 5, "forward", 0);
    uint32_t unnamed =
        add(r, main, TORCH "nn/modules/module.py", 1, "_wrapped_call_impl", 0);
    uint32_t step = add(r, main, TORCH "optim/optimizer.py", 1, "wrapper", 0);
    uint32_t sgd = add(r, step, TORCH "optim/sgd.py", 2, "sgd", 0);
    uint32_t own = add(r, step, "lion.py", 3, "step", 0);
    uint32_t updated = add(r, own, "lion.py", 4, "update", 0);
    uint32_t torchs = add(r, step, TORCH "optim/sgd.py", 5, "step", 0);
    uint32_t enabled =
        add(r, torchs, TORCH "utils/_contextlib.py", 6, "decorate_context", 0);
    uint32_t closure = add(r, torchs, "train.py", 11, "closure", 0);
    uint32_t loss = add(r, closure, TORCH "nn/functional.py", 7, "relu", 0);
    uint32_t nccl = add(r, main, TORCH "distributed/c10d.py", 3, "all_reduce", 0);
    uint32_t within = add(r, nccl, TORCH "nn/modules/module.py", 1, "_call_impl", net);
    uint32_t tensor = add(r, main, TORCH "distributed/tensor/_dispatch.py", 1, "d", 0);
    uint32_t pieces =
        add(r, tensor, TORCH "distributed/tensor/_redistribute.py", 2, "r", 0);
    uint32_t hook =
        add(r, body, TORCH "distributed/fsdp/_fully_shard/_fsdp_state.py", 1, "h", 0);
    uint32_t hooked = add(r, hook, TORCH "distributed/tensor/_dispatch.py", 1, "d", 0);
    ml_stack_facts facts;
    CHECK_INT(ml_stack_facts_init(&facts, r), 0);

    CHECK_INT(facts.of[main].scope, ML_SCOPE_NONE);
    CHECK_INT(facts.of[main].module, 0);
    CHECK_INT(facts.of[linear].scope, ML_SCOPE_MODULE);
    CHECK_INT(facts.of[linear].module, fc);
    CHECK_INT(facts.of[linear].outer_module, net);
    CHECK_INT(line_of(r, ml_stack_facts_line(&facts, linear)), 20);
    CHECK_INT(facts.of[unnamed].scope, ML_SCOPE_MODULE);
    CHECK_INT(facts.of[unnamed].module, 0);
    CHECK_INT(facts.of[sgd].scope, ML_SCOPE_OPTIMIZER);
    CHECK_INT(line_of(r, ml_stack_facts_line(&facts, sgd)), 10);
    /* A user's optimizer calls its own functions, torch's only a closure. */
    CHECK_INT(facts.of[updated].scope, ML_SCOPE_OPTIMIZER);
    CHECK_INT(facts.of[enabled].scope, ML_SCOPE_OPTIMIZER);
    CHECK_INT(facts.of[loss].scope, ML_SCOPE_NONE);
    CHECK(facts.of[nccl].communication);
    CHECK(!facts.of[within].communication);
    CHECK(!facts.of[tensor].communication);
    CHECK(facts.of[pieces].communication);
    CHECK(facts.of[hooked].communication);
    ml_stack_facts_fini(&facts);
    ml_recording_free(r);
}

/* Frames below the engine's run say who called it, not what a node does. */
static void
test_the_engine_ends_what_callers_say(void)
{
    ml_recording *r;
    CHECK_INT(ml_recording_new(&r), 0);
    uint32_t net = sample_string(r, "Net");
    uint32_t main = add(r, 0, "train.py", 10, "main", 0);
    uint32_t call = add(r, main, TORCH "nn/modules/module.py", 1, "_call_impl", net);
    uint32_t engine = add(r, call, ENGINE, 0);
    uint32_t custom = add(r, engine, "swish.py", 30, "backward", 0);
    uint32_t other = add(r, 0, "mine/graph.py", 9, "_engine_run_backward", 0);
    ml_stack_facts facts;
    CHECK_INT(ml_stack_facts_init(&facts, r), 0);

    CHECK(facts.of[engine].engine && !facts.of[call].engine);
    CHECK_INT(facts.of[engine].inner.place, ML_PLACE_NONE);
    CHECK_INT(facts.of[engine].module, 0);
    CHECK_INT(facts.of[engine].scope, ML_SCOPE_NONE);
    CHECK_INT(line_of(r, facts.of[engine].whole), 10);
    CHECK_INT(line_of(r, ml_stack_facts_line(&facts, engine)), 10);
    CHECK_INT(line_of(r, ml_stack_facts_line(&facts, custom)), 30);
    CHECK(facts.of[custom].engine);
    CHECK(!facts.of[other].engine);
    ml_stack_facts_fini(&facts);
    ml_recording_free(r);
}

/* A checkpoint recomputes a package's module below the engine: the user's line is the
 * one that called that module in the forward. */
static void
test_the_caller_of_a_module(void)
{
    ml_recording *r;
    CHECK_INT(ml_recording_new(&r), 0);
    const char *package = "/v/site-packages/transformers/llama.py";
    uint32_t layer = sample_string(r, "layers.0");
    uint32_t main = add(r, 0, "train.py", 10, "main", 0);
    add(r, main, TORCH "nn/modules/module.py", 1, "_call_impl", layer);
    uint32_t engine = add(r, main, ENGINE, 0);
    uint32_t again =
        add(r, engine, TORCH "nn/modules/module.py", 1, "_call_impl", layer);
    uint32_t forward = add(r, again, package, 7, "forward", 0);
    ml_stack_facts facts;
    CHECK_INT(ml_stack_facts_init(&facts, r), 0);
    CHECK_INT(facts.of[forward].inner.place, ML_PLACE_PACKAGE);
    CHECK_INT(line_of(r, facts.of[forward].inner), 7);
    CHECK_INT(line_of(r, ml_stack_facts_line(&facts, forward)), 10);
    ml_stack_facts_fini(&facts);
    ml_recording_free(r);
}

static long budget; /* allocations that still succeed */
static long live;

static void *
counting_realloc(void *pointer, size_t bytes)
{
    if (bytes == 0) {
        live -= pointer != NULL;
        free(pointer);
        return NULL;
    }
    if (budget == 0) {
        return NULL;
    }
    budget--;
    live += pointer == NULL;
    return realloc(pointer, bytes);
}

static void
test_no_memory(void)
{
    ml_recording *r;
    CHECK_INT(ml_recording_new(&r), 0);
    add(r, 0, "train.py", 10, "main", 0);
    ml_set_realloc(counting_realloc);
    int result = ML_ENOMEM;
    long tries = 0;
    for (; result == ML_ENOMEM && live == 0 && tries < 9; tries++) {
        ml_stack_facts facts = {0};
        budget = tries;
        result = ml_stack_facts_init(&facts, r);
        if (result == 0) {
            ml_stack_facts_fini(&facts);
        }
    }
    ml_set_realloc(NULL);
    CHECK_INT(live, 0);
    CHECK_INT(result, 0);
    CHECK_INT(tries, 4); /* three arrays */
    ml_recording_free(r);
}

int
main(void)
{
    RUN(test_whose_code_a_frame_is);
    RUN(test_modules_and_scopes);
    RUN(test_the_engine_ends_what_callers_say);
    RUN(test_the_caller_of_a_module);
    RUN(test_no_memory);
    return TEST_RESULT();
}
