/* Estimated categories of torch's own snapshots, worked out by hand: events with frames and
 * nothing of autograd. */
#include "analysis/analysis.h"
#include "base/base.h"
#include "budget.h"
#include "recording_samples.h"
#include "test.h"

#define BASE UINT64_C(0x7f0000000000)
#define MODULE "site-packages/torch/nn/modules/module.py"

typedef struct fixture {
    sample made;
    uint32_t bare, native; /* without any frame, and without a Python frame */
    uint32_t parameter, buffer, batch, forward, loss, step, zero, recompute;
} fixture;

static uint32_t
call(fixture *f, uint32_t caller, const char *file, int64_t line, const char *name)
{
    return sample_call(f->made.recording, caller, file, line, name, NULL);
}

static void
set_up(fixture *f)
{
    memset(f, 0, sizeof(*f));
    sample_begin(&f->made);
    f->made.recording->rules.has_segments = 0;
    f->made.recording->foreign = 1;
    uint32_t whole = call(f, 0, "train.py", 1, "<module>");
    uint32_t inner = call(f, whole, MODULE, 930, "_apply"); /* calls itself from here */
    f->parameter =
        call(f, call(f, inner, MODULE, 957, "_apply"), MODULE, 1300, "convert");
    f->buffer = call(f, call(f, inner, MODULE, 991, "_apply"), MODULE, 1300, "convert");
    f->batch = call(f, 0, "train.py", 10, "<module>");
    uint32_t called = call(f, whole, MODULE, 1790, "_call_impl");
    f->forward = call(f, called, "model.py", 20, "forward");
    f->loss = call(f, 0, "train.py", 12, "<module>");
    f->step = call(f, whole, "site-packages/torch/optim/adam.py", 240, "step");
    f->zero =
        call(f, whole, "site-packages/torch/optim/optimizer.py", 900, "zero_grad");
    /* On a thread of autograd's, where nobody's main program is. */
    uint32_t hook =
        call(f, 0, "site-packages/torch/utils/checkpoint.py", 1100, "unpack");
    f->recompute =
        call(f, call(f, hook, MODULE, 1790, "_call_impl"), "model.py", 21, "forward");
    f->native = call(f, 0, "??", 0, "torch::autograd::Engine::thread_main()");
}

static size_t
alloc(fixture *f, unsigned block, uint64_t size, uint32_t stack)
{
    ml_event *event = sample_event(&f->made, ML_ACTION_ALLOC,
                                   BASE + block * UINT64_C(0x10000000), size, stack);
    event->block_bytes = size;
    return f->made.device.event_count - 1;
}

static void
release(fixture *f, unsigned block, uint64_t size, uint32_t stack)
{
    uint64_t addr = BASE + block * UINT64_C(0x10000000);
    sample_event(&f->made, ML_ACTION_FREE_REQUESTED, addr, size, stack);
    sample_event(&f->made, ML_ACTION_FREE_COMPLETED, addr, size, stack);
}

/* What event INDEX allocated; "exact" where that is told as exact and known. */
static const char *
category(const fixture *f, size_t index)
{
    const ml_analysis *of;
    if (ml_analysis_of(f->made.recording, 0, &of) != 0) {
        return "no memory";
    }
    ml_verdict verdict = ml_explain(of, 0, index, 0).verdict;
    bool exact = verdict.exact && verdict.category != ML_CATEGORY_UNKNOWN;
    return exact ? "exact" : ml_category_text(verdict.category);
}

enum {
    PARAMETER,
    BUFFER,
    BATCH,
    SAVED,
    BRIEF,
    LOSS,
    GRADIENT,
    WITHIN,
    AGAIN,
    STATE,
    DEVICE,
    BLOCKS
};

/* Events of the last allocation of each block. */
static void
build_step(fixture *f, bool first, uint32_t backward, size_t at[BLOCKS])
{
    at[BATCH] = alloc(f, BATCH, 3000, f->batch);
    at[SAVED] = alloc(f, SAVED, 9000, f->forward);
    at[BRIEF] = alloc(f, BRIEF, 9000, f->forward);
    release(f, BRIEF, 9000, f->forward);
    at[LOSS] = alloc(f, LOSS, 500, f->loss);
    at[WITHIN] = alloc(f, WITHIN, 700, backward);
    at[AGAIN] = alloc(f, AGAIN, 800, f->recompute);
    at[GRADIENT] = alloc(f, GRADIENT, 4096, backward);
    release(f, SAVED, 9000, backward);
    release(f, AGAIN, 800, backward);
    release(f, WITHIN, 700, backward);
    release(f, LOSS, 500, backward);
    release(f, BATCH, 3000, f->loss);
    if (first) {
        at[STATE] = alloc(f, STATE, 4096, f->step);
    }
    at[DEVICE] = alloc(f, DEVICE, 100, f->step);
    release(f, DEVICE, 100, f->step);
    release(f, GRADIENT, 4096, f->zero);
}

/* Two steps, of which torch wrote no frames of Python for the backward passes, or frames of
 * C++ alone. */
static void
test_training(void)
{
    static fixture f;
    for (int native = 0; native < 2; native++) {
        size_t at[BLOCKS];
        set_up(&f);
        uint32_t backward = native ? f.native : f.bare;
        at[PARAMETER] = alloc(&f, PARAMETER, 4096, f.parameter);
        at[BUFFER] = alloc(&f, BUFFER, 512, f.buffer);
        build_step(&f, true, backward, at);
        build_step(&f, false, backward, at);
        CHECK_INT(ml_recording_validate(f.made.recording), 0);
        CHECK_STR(category(&f, at[PARAMETER]), "parameter");
        CHECK_STR(category(&f, at[BUFFER]), "buffer");
        CHECK_STR(category(&f, at[BATCH]), "input");
        CHECK_STR(category(&f, at[SAVED]), "activation");
        CHECK_STR(category(&f, at[BRIEF]), "temporary");
        CHECK_STR(category(&f, at[LOSS]), "activation");
        CHECK_STR(category(&f, at[GRADIENT]), "gradient");
        CHECK_STR(category(&f, at[WITHIN]), "temporary");
        CHECK_STR(category(&f, at[AGAIN]), "activation");
        CHECK_STR(category(&f, at[STATE]), "optimizer_state");
        CHECK_STR(category(&f, at[DEVICE]), "temporary");
        sample_end(&f.made);
    }
}

/* Tensors that nothing but their size tells from others: made before the training, they are
 * parameters where gradients have their size, else what models are given. */
static void
test_by_size(void)
{
    static fixture f;
    size_t at[BLOCKS];
    set_up(&f);
    size_t weight = alloc(&f, 20, 4096, f.batch);
    size_t data = alloc(&f, 21, 5000, f.loss);
    build_step(&f, true, f.bare, at);
    build_step(&f, false, f.bare, at);
    CHECK_STR(category(&f, weight), "parameter");
    CHECK_STR(category(&f, data), "input");
    /* Made between steps, and kept. */
    size_t copy = alloc(&f, 22, 6000, f.zero);
    build_step(&f, false, f.bare, at);
    build_step(&f, false, f.bare, at);
    ml_recording_detach(f.made.recording);
    CHECK_STR(category(&f, copy), "other");
    sample_end(&f.made);
}

/* With context="alloc" torch gives frees the stacks of the allocations. */
static void
test_frees_without_stacks(void)
{
    static fixture f;
    set_up(&f);
    size_t saved = alloc(&f, 0, 9000, f.forward);
    size_t other = alloc(&f, 1, 9000, f.forward);
    alloc(&f, 2, 4096, f.bare);
    release(&f, 0, 9000, f.forward);
    alloc(&f, 3, 4096, f.bare);
    release(&f, 1, 9000, f.forward);
    alloc(&f, 4, 4096, f.bare);
    CHECK_STR(category(&f, saved), "activation");
    CHECK_STR(category(&f, other), "activation");
    sample_end(&f.made);
}

/* What a forward pass that runs out of memory has kept is for the pass that would follow. */
static void
test_out_of_memory(void)
{
    static fixture f;
    set_up(&f);
    size_t saved = alloc(&f, 0, 9000, f.forward);
    CHECK_STR(category(&f, saved), "unknown");
    size_t brief = alloc(&f, 1, 9000, f.forward);
    release(&f, 1, 9000, f.forward);
    sample_event(&f.made, ML_ACTION_OOM, 0, 9000, f.forward);
    CHECK_STR(category(&f, saved), "activation");
    CHECK_STR(category(&f, brief), "temporary");
    /* The program goes on without it. */
    release(&f, 0, 9000, f.loss);
    CHECK_STR(category(&f, saved), "activation");
    sample_end(&f.made);
}

/* Without any frame there is nothing to go by, nor with frames of blocks alone, as torch keeps
 * them with context="state"; and what memlab recorded has no need. */
static void
test_no_estimates(void)
{
    static fixture f;
    set_up(&f);
    size_t first = alloc(&f, 0, 9000, f.bare);
    CHECK_STR(category(&f, first),
              "unknown"); /* the other stacks are of no allocation */
    alloc(&f, 1, 9000, f.batch);
    ml_recording_detach(f.made.recording);
    CHECK_STR(category(&f, first), "gradient");
    sample_end(&f.made);

    set_up(&f);
    f.made.recording->stack_count = 1;
    first = alloc(&f, 0, 9000, 0);
    CHECK_STR(category(&f, first), "unknown");
    sample_end(&f.made);

    set_up(&f);
    f.made.recording->foreign = 0;
    first = alloc(&f, 0, 9000, f.forward);
    size_t second = alloc(&f, 1, 9000, f.bare);
    release(&f, 0, 9000, f.bare);
    CHECK_STR(category(&f, first), "exact"); /* freed before any pass */
    CHECK_STR(category(&f, second), "unknown");
    sample_end(&f.made);
}

/* From the middle of training: the blocks that were there have neither events nor frames.  Of
 * each size as many as there are gradients are parameters, those in the oldest place, the
 * rest of such sets state; others that stay are not trained. */
static void
check_blocks_from_before(uint64_t scale)
{
    const struct {
        uint64_t bytes;
        const char *category;
    } blocks[] = {{4096, "parameter"},
                  {8192, "parameter"},
                  {8192, "parameter"},
                  {4096, "optimizer_state"},
                  {4096, "optimizer_state"},
                  {8192, "optimizer_state"},
                  {8192, "optimizer_state"},
                  {8192, "optimizer_state"},
                  {8192, "optimizer_state"},
                  {1024, "parameter"},
                  {8192, scale == 1 ? "parameter" : "workspace"}};
    enum {
        COUNT = sizeof(blocks) / sizeof(blocks[0])
    };
    static fixture f;
    uint64_t addr = BASE;
    set_up(&f);
    f.made.recording->rules.has_segments = 1;
    f.made.segments[0] =
        (ml_segment){.addr = BASE, .total = 2097152 * scale, .small = scale == 1};
    for (size_t i = 0; i < COUNT; i++) {
        f.made.blocks[i] = (ml_block){.addr = addr,
                                      .size = blocks[i].bytes * scale,
                                      .requested = blocks[i].bytes * scale,
                                      .state = ML_BLOCK_ALLOCATED};
        addr += blocks[i].bytes * scale;
    }
    f.made.blocks[COUNT] =
        (ml_block){.addr = addr, .size = BASE + 2097152 * scale - addr};
    f.made.segments[0].block_count = f.made.device.block_count = COUNT + 1;
    f.made.device.segment_count = 1;
    const uint64_t sizes[] = {9216 * scale, 4096 * scale, 8192 * scale, 8192 * scale};
    uint64_t places[4];
    for (size_t i = 0; i < 4; i++) {
        places[i] = addr;
        sample_event(&f.made, ML_ACTION_ALLOC, addr, sizes[i],
                     i == 0 ? f.forward : f.bare);
        addr += sizes[i];
    }
    for (size_t i = 0; i < 4; i++) {
        uint32_t stack = i == 0 ? f.bare : f.zero;
        sample_event(&f.made, ML_ACTION_FREE_REQUESTED, places[i], sizes[i], stack);
        sample_event(&f.made, ML_ACTION_FREE_COMPLETED, places[i], sizes[i], stack);
    }
    CHECK_INT(ml_recording_validate(f.made.recording), 0);
    const ml_analysis *of;
    CHECK_INT(ml_analysis_of(f.made.recording, 0, &of), 0);
    for (size_t i = 0; i < COUNT; i++) {
        ml_explained it = ml_explain(of, f.made.blocks[i].addr, ML_BEFORE_EVENTS, 0);
        CHECK_STR(ml_category_text(it.verdict.category), blocks[i].category);
        CHECK(!it.verdict.exact);
        CHECK_STR(ml_phase_text(it.cause.phase), "before_recording");
    }
    CHECK_STR(category(&f, 1), "gradient");
    sample_end(&f.made);
}

static void
test_blocks_from_before(void)
{
    check_blocks_from_before(1);
}

/* Gradients of 32 MiB, as large as cuBLAS's workspaces. */
static void
test_blocks_of_a_workspaces_size(void)
{
    check_blocks_from_before(4096);
}

static void
test_no_memory(void)
{
    static fixture f;
    size_t at[BLOCKS];
    set_up(&f);
    build_step(&f, true, f.bare, at);
    const ml_analysis *of;
    int error = ML_ENOMEM;
    for (long budget = 0; error != 0; budget++) {
        ml_recording_detach(f.made.recording);
        budget_begin(budget);
        error = ml_analysis_of(f.made.recording, 0, &of);
        if (error != 0) {
            CHECK_INT(error, ML_ENOMEM);
            ml_recording_detach(f.made.recording);
            CHECK_INT(budget_alive, 0);
        }
        budget_end();
    }
    CHECK_STR(category(&f, at[SAVED]), "activation");
    sample_end(&f.made);
}

int
main(void)
{
    RUN(test_training);
    RUN(test_by_size);
    RUN(test_frees_without_stacks);
    RUN(test_out_of_memory);
    RUN(test_no_estimates);
    RUN(test_blocks_from_before);
    RUN(test_blocks_of_a_workspaces_size);
    RUN(test_no_memory);
    return TEST_RESULT();
}
