/* Categories of recordings worked out by hand: several threads, passes. */
#include "analysis/attribution/category.h"

#include "cause_samples.h"

/* What another thread does meanwhile changes nothing. */
static void
test_threads_beside(void)
{
    static fixture f;
    set_up(&f);
    uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
    sample_tag(&f.made, 1, ML_CATEGORY_PARAMETER);
    alloc(&f, 8, SECOND, 0, line);
    alloc(&f, 0, MAIN, 0, line);   /* 1: input */
    alloc(&f, 1, SECOND, 1, line); /* 2: a temporary of the second's forward */
    alloc(&f, 2, MAIN, 1, line);   /* 3: activation */
    alloc_back(&f, 3, MAIN, 0);    /* 4: temporary of the pass */
    alloc(&f, 4, SECOND, 2, line); /* 5: the second goes on, and ends no pass */
    free_block(&f, 1, SECOND, 0);
    free_block(&f, 2, MAIN, ML_EVENT_BACKWARD);
    alloc_back(&f, 5, MAIN, 0); /* 10: gradient */
    free_block(&f, 3, MAIN, ML_EVENT_BACKWARD);
    CHECK_INT(ml_recording_validate(f.made.recording), 0);
    CHECK_STR(category(&f, 1), "other");
    CHECK_STR(category(&f, 2), "temporary");
    CHECK_STR(category(&f, 3), "activation");
    CHECK_STR(category(&f, 4), "temporary");
    CHECK_STR(category(&f, 5), "unknown"); /* no pass of its own yet */
    CHECK_STR(category(&f, 10), "gradient");
    alloc_back(&f, 7, SECOND, 1);
    CHECK_STR(category(&f, 5), "activation");
    tear_down(&f);
}

/* The graph alone held what its pass frees, also an operation's second result. */
static void
test_what_a_pass_frees(void)
{
    static fixture f;
    set_up(&f);
    uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
    alloc(&f, 0, MAIN, 0, line);
    alloc(&f, 1, MAIN, 1, line); /* 1: batch_norm()'s mean, of node 0 */
    alloc(&f, 2, MAIN, 1, line); /* 2: and its deviation */
    alloc(&f, 3, MAIN, 1, line); /* 3: a batch, which the second pass frees */
    alloc(&f, 4, MAIN, 2, line); /* 4: node 1 */
    alloc_back(&f, 5, MAIN, 1);
    free_block(&f, 1, MAIN, ML_EVENT_BACKWARD);
    free_block(&f, 2, MAIN, ML_EVENT_BACKWARD);
    alloc(&f, 6, MAIN, 3, line);
    alloc_back(&f, 7, MAIN, 2);
    free_block(&f, 3, MAIN, ML_EVENT_BACKWARD);
    CHECK_INT(ml_recording_validate(f.made.recording), 0);
    CHECK_STR(category(&f, 1), "activation");
    CHECK_STR(category(&f, 2), "activation");
    CHECK_STR(category(&f, 3), "other");
    tear_down(&f);
}

/* A forward that ran out of memory: what its finished operations keep is for the backward
 * pass; what the last one took may be anything, as may what makes no node. */
static void
test_a_forward_that_ran_out(void)
{
    static fixture f;
    set_up(&f);
    uint32_t layer =
        sample_call(f.made.recording, 0, "model.py", 5, "forward", "layer");
    alloc(&f, 0, MAIN, 1, layer);
    alloc(&f, 1, MAIN, 2, layer);
    alloc(&f, 2, SECOND, 1, layer); /* another thread's forward */
    add(&f, ML_ACTION_OOM, 3, MAIN, 2, layer);
    CHECK_STR(category(&f, 0), "activation");
    CHECK_STR(category(&f, 1), "unknown");
    CHECK_STR(category(&f, 2), "unknown");
    alloc(&f, 4, MAIN, 2, layer); /* behind it, of the same operation */
    CHECK_STR(category(&f, 4), "unknown");
    tear_down(&f);
}

/* A program that catches the errors and tries smaller batches: what each failed forward kept
 * was for a backward pass, though the error freed it and none came. */
static void
test_forwards_that_ran_out_and_were_tried_again(void)
{
    static fixture f;
    set_up(&f);
    uint32_t layer =
        sample_call(f.made.recording, 0, "model.py", 5, "forward", "layer");
    alloc(&f, 0, MAIN, 1, layer);
    alloc(&f, 1, MAIN, 1, layer); /* 1: freed before memory ran out */
    free_block(&f, 1, MAIN, 0);
    add(&f, ML_ACTION_OOM, 2, MAIN, 2, layer);
    free_block(&f, 0, MAIN, 0);
    alloc(&f, 3, MAIN, 2, layer); /* 7 */
    add(&f, ML_ACTION_OOM, 4, MAIN, 3, layer);
    free_block(&f, 3, MAIN, 0);
    alloc(&f, 5, MAIN, 3, layer); /* 11: of the batch that fits */
    alloc(&f, 6, MAIN, 4, layer); /* 12 */
    free_block(&f, 6, MAIN, 0);
    alloc_back(&f, 7, MAIN, 3);
    free_block(&f, 5, MAIN, ML_EVENT_BACKWARD);
    CHECK_INT(ml_recording_validate(f.made.recording), 0);
    CHECK_STR(category(&f, 0), "activation");
    CHECK_STR(category(&f, 1), "temporary");
    CHECK_STR(category(&f, 7), "activation");
    CHECK_STR(category(&f, 11), "activation");
    CHECK_STR(category(&f, 12), "temporary");
    tear_down(&f);
}

/* What a module was given is a batch where no module and no autograd made it. */
static void
test_what_was_given(void)
{
    static fixture f;
    set_up(&f);
    uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
    uint32_t call = add_stack(&f, line, "torch/nn/modules/module.py", 1, "_call_impl");
    uint32_t step = add_stack(&f, line, "torch/optim/sgd.py", 1, "step");
    alloc(&f, 0, MAIN, 0, line); /* a batch */
    alloc(&f, 1, MAIN, 0, line); /* an average of weights */
    alloc(&f, 2, MAIN, 0, call); /* a module's result, given to the next */
    alloc(&f, 3, MAIN, 0, line); /* owned, and given to a function's module */
    alloc(&f, 4, MAIN, 0, step);
    alloc(&f, 5, MAIN, 1, line); /* a batch, behind a node of a view */
    sample_tag(&f.made, BASE + UINT64_C(4096) * 0, ML_CATEGORY_INPUT);
    sample_tag(&f.made, BASE + UINT64_C(4096) * 2, ML_CATEGORY_INPUT);
    sample_tag(&f.made, BASE + UINT64_C(4096) * 3, ML_CATEGORY_BUFFER);
    sample_tag(&f.made, BASE + UINT64_C(4096) * 3, ML_CATEGORY_INPUT);
    sample_tag(&f.made, BASE + UINT64_C(4096) * 4, ML_CATEGORY_INPUT);
    sample_tag(&f.made, BASE + UINT64_C(4096) * 5, ML_CATEGORY_INPUT);
    free_block(&f, 2, MAIN, 0);
    free_block(&f, 5, MAIN, 0);
    CHECK_INT(ml_recording_validate(f.made.recording), 0);
    CHECK_STR(category(&f, 0), "input");
    CHECK_STR(category(&f, 1), "other");
    CHECK_STR(category(&f, 2), "temporary");
    CHECK_STR(category(&f, 3), "buffer");
    CHECK_STR(category(&f, 4), "optimizer_state");
    CHECK_STR(category(&f, 5), "input");
    tear_down(&f);
}

/* Nodes that a checkpoint makes on autograd's own thread, which does nothing else. */
static void
test_the_thread_of_the_engine(void)
{
    static fixture f;
    set_up(&f);
    uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
    alloc(&f, 0, MAIN, 1, line);
    alloc_back(&f, 1, MAIN, 0);
    alloc_back(&f, 2, ENGINE, 0);
    free_block(&f, 2, ENGINE, ML_EVENT_BACKWARD);
    alloc_back(&f, 3, ENGINE, 1); /* 5: outlives its pass */
    alloc(&f, 4, MAIN, 2, line);
    alloc_back(&f, 5, ENGINE, 2);
    free_block(&f, 3, ENGINE, ML_EVENT_BACKWARD);
    CHECK_STR(category(&f, 2), "temporary");
    CHECK_STR(category(&f, 5), "unknown"); /* no owners */
    tear_down(&f);
}

/* backward() makes the gradient that it begins with before any node runs. */
static void
test_the_first_gradient(void)
{
    static fixture f;
    ml_causes *causes;
    set_up(&f);
    uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
    uint32_t seed = add_stack(&f, line, "torch/autograd/__init__.py", 1, "_make_grads");
    uint32_t user = add_stack(&f, line, "a.py", 1, "_make_grads");
    alloc(&f, 0, MAIN, 1, line);
    alloc(&f, 1, MAIN, 1, seed);
    alloc(&f, 2, MAIN, 1, user);
    alloc_back(&f, 3, MAIN, 0);
    free_block(&f, 1, MAIN, 0);
    CHECK_INT(ml_causes_new(f.made.recording, &causes), 0);
    CHECK_STR(ml_phase_text(ml_causes_phase(causes, 0, 1)), "backward");
    CHECK_INT(line_of(&f, ml_causes_of(causes, 0, 1)), 10);
    CHECK_STR(ml_phase_text(ml_causes_phase(causes, 0, 2)), "other");
    ml_causes_free(causes);
    CHECK_STR(category(&f, 1), "temporary");
    tear_down(&f);

    /* loss.retain_grad() */
    set_up(&f);
    line = add_stack(&f, 0, "a.py", 10, "f");
    seed = add_stack(&f, line, "torch/autograd/__init__.py", 1, "_make_grads");
    alloc(&f, 1, MAIN, 1, seed);
    alloc_back(&f, 3, MAIN, 0);
    CHECK_STR(category(&f, 0), "gradient");
    tear_down(&f);
}

int
main(void)
{
    RUN(test_threads_beside);
    RUN(test_what_a_pass_frees);
    RUN(test_a_forward_that_ran_out);
    RUN(test_forwards_that_ran_out_and_were_tried_again);
    RUN(test_what_was_given);
    RUN(test_the_thread_of_the_engine);
    RUN(test_the_first_gradient);
    return TEST_RESULT();
}
