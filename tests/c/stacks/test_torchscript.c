/* Frames of TorchScript: on top of Python's, known by their texts, and among C++ ones where
 * torch puts them. */
#include "stacks/torchscript.h"

#include <stdlib.h>

#include "base/base.h"
#include "stacks_samples.h"
#include "test.h"

/* What runs on this thread, the outermost first. */
static const ml_torchscript_frame *running;
static size_t running_count;

static void
tell_running(ml_torchscript_visitor visit, void *context)
{
    for (size_t i = 0; i < running_count; i++) {
        visit(context, &running[i]);
    }
}

static const ml_torchscript_frame two[] = {
    {"outer", "train.py", 5},
    {"<forward op>", "train.py", INT64_C(1) << 40},
};

/* What the last call said. */
static uint8_t flags;

static uint32_t
extend(ml_stacks *stacks, uint32_t parent, size_t count)
{
    flags = 0;
    running = two;
    running_count = count;
    return ml_torchscript_extend(stacks, parent, tell_running, &flags);
}

static void
test_a_thread_that_runs_none(void)
{
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    uint32_t python = add(stacks, 0, 0x1000, 0, "module");
    CHECK_UINT(extend(stacks, python, 0), python);
    CHECK(extend(stacks, python, 2) != python);
    CHECK_UINT(extend(stacks, ML_STACK_LOST, 0), ML_STACK_LOST);
    ml_stacks_free(stacks);
}

static void
test_frames_are_known_by_their_texts(void)
{
    ml_stacks *stacks;
    ml_recording *recording;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    uint32_t python = add(stacks, 0, 0x1000, 0, "module");
    uint32_t inner = extend(stacks, python, 2);
    uint32_t outer = extend(stacks, python, 1);
    uint32_t alone = extend(stacks, 0, 2);
    CHECK(inner != outer && outer != python && alone != inner);
    CHECK_UINT(extend(stacks, python, 2), inner);
    uint32_t count = ml_stacks_count(stacks);
    uint32_t *map = calloc(count, sizeof(*map));
    CHECK(map != NULL);
    map[inner] = map[alone] = 1;

    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_INT(ml_stacks_resolve(stacks, recording, map, count, NULL), 0);
    CHECK_INT(ml_recording_validate(recording), 0);
    /* A line that no file has is none. */
    CHECK_STR(written(recording, map[inner]), "<forward op>:0 outer:5 module:10");
    CHECK_STR(written(recording, map[alone]), "<forward op>:0 outer:5");
    ml_recording_free(recording);
    ml_stacks_free(stacks);
    free(map);
}

static void
test_a_table_that_is_full_is_told(void)
{
    static const ml_stacks_limits limits = {
        .nodes = 2, .codes = 8, .strings = 16, .objects = 1, .text_bytes = 1 << 12};
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, &limits), 0);
    uint32_t python = add(stacks, 0, 0x1000, 0, "module");
    CHECK(extend(stacks, python, 1) != ML_STACK_LOST);
    CHECK_UINT(flags, 0);
    CHECK_UINT(extend(stacks, python, 2), ML_STACK_LOST);
    CHECK_UINT(flags, ML_EVENT_STACK_LOST);
    ml_stacks_free(stacks);
}

enum {
    PC_ALLOC = 0x10,
    PC_EVAL = 0x20,
    PC_SCRIPT = 0x30
};

static int
name_pcs(void *context, const uint64_t *pcs, size_t count, ml_native_text *out)
{
    (void)context;
    for (size_t i = 0; i < count; i++) {
        out[i].filename = "native.cpp";
        out[i].name = pcs[i] == PC_ALLOC ? "alloc"
                      : pcs[i] == PC_EVAL
                          ? "_PyEval_EvalFrameDefault"
                          : "torch::jit::InterpreterStateImpl::runImpl(S&)";
    }
    return 0;
}

/* The order of torch 2.11: all of TorchScript before the innermost of its interpreters,
 * else before what is left of Python; Python as if there were none. */
static void
test_among_native_frames(void)
{
    static const uint64_t script[] = {PC_EVAL, PC_SCRIPT, PC_SCRIPT, PC_ALLOC};
    static const uint64_t back_in_python[] = {PC_EVAL, PC_SCRIPT, PC_EVAL, PC_ALLOC};
    static const struct {
        const uint64_t *pcs; /* four, outermost first; NULL: two of PC_ALLOC */
        const char *expected;
    } cases[] = {
        {script, "alloc:0 <forward op>:0 outer:5 "
                 "torch::jit::InterpreterStateImpl::runImpl(S&):0 "
                 "torch::jit::InterpreterStateImpl::runImpl(S&):0 step:11 "
                 "_PyEval_EvalFrameDefault:0 module:10"},
        {back_in_python, "alloc:0 step:11 _PyEval_EvalFrameDefault:0 <forward op>:0 "
                         "outer:5 torch::jit::InterpreterStateImpl::runImpl(S&):0 "
                         "module:10 _PyEval_EvalFrameDefault:0"},
        {NULL, "alloc:0 alloc:0 <forward op>:0 outer:5 step:11 module:10"},
    };
    ml_symbolizer symbolizer = {.symbolize = name_pcs};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ml_stacks *stacks;
        ml_recording *recording;
        CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
        uint32_t module = add(stacks, 0, 0x1000, 0, "module");
        uint32_t step = add(stacks, module, 0x2000, 2, "step");
        uint32_t stack = extend(stacks, step, 2);
        for (size_t k = 0; k < (cases[i].pcs != NULL ? 4 : 2); k++) {
            stack = ml_stacks_native(stacks, stack,
                                     cases[i].pcs != NULL ? cases[i].pcs[k] : PC_ALLOC);
        }
        uint32_t count = ml_stacks_count(stacks);
        uint32_t *map = calloc(count, sizeof(*map));
        CHECK(map != NULL);
        map[stack] = 1;
        CHECK_INT(ml_recording_new(&recording), 0);
        CHECK_INT(ml_stacks_resolve(stacks, recording, map, count, &symbolizer), 0);
        CHECK_STR(written(recording, map[stack]), cases[i].expected);
        ml_recording_free(recording);
        ml_stacks_free(stacks);
        free(map);
    }
}

int
main(void)
{
    RUN(test_a_thread_that_runs_none);
    RUN(test_frames_are_known_by_their_texts);
    RUN(test_a_table_that_is_full_is_told);
    RUN(test_among_native_frames);
    return TEST_RESULT();
}
