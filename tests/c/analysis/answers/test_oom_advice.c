/* What is advised where memory ran out: by what was asked for, and by what holds most. */
#include "analysis/answers/oom_advice.h"

#include "oom_samples.h"
#include "recording_samples.h"
#include "test.h"

static void
test_where_it_was_asked(void)
{
    fixture f;
    set_up(&f);
    uint32_t stack = add_frame(&f, 0, "train.py", 41, "step", NULL);
    stack =
        add_frame(&f, stack, "/lib/python3.11/site-packages/torch/nn/modules/module.py",
                  1, "_call_impl", "model.h.3.mlp");
    stack = add_frame(&f, stack, "/lib/python3.11/site-packages/torch/nn/functional.py",
                      2, "cross_entropy", NULL);
    OOM(&f, 0, 8 * MIB)->stack = stack;
    ANSWER(&f);
    CHECK_INT(f.made.recording->frames[f.oom->cause.frame].line, 41);
    ml_string module = f.made.recording->strings[f.oom->cause.module];
    CHECK_TEXT(module.bytes, module.length, "model.h.3.mlp");
    CHECK_VERDICT(&f, "too_big");
    tear_down(&f);

    set_up(&f);
    add_fragments(&f);
    stack = add_frame(&f, 0, "/lib/python3.11/site-packages/torch/nn/functional.py", 2,
                      "cross_entropy", NULL);
    OOM(&f, 0, 18 * MIB)->stack = stack;
    ANSWER(&f);
    CHECK_VERDICT(&f, "full");
    CHECK_STR(advice_text(f.oom), "logits:18 one_line:4");
    tear_down(&f);

    set_up(&f);
    add_fragments(&f);
    ml_event *event = OOM(&f, 0, 18 * MIB);
    event->flags |= ML_EVENT_BACKWARD | ML_EVENT_NO_PYTHON;
    event->node = sample_string(f.made.recording,
                                "N5torch8autograd9generated19LogSoftmaxBackward0E");
    ANSWER(&f);
    CHECK_STR(ml_phase_text(f.oom->cause.phase), "backward");
    CHECK_UINT(f.oom->cause.frame, 0);
    CHECK_INT(f.oom->cause.no_line, ML_NO_LINE_BACKWARD);
    CHECK_STR(advice_text(f.oom), "logits:18 one_line:4");
    tear_down(&f);
}

/* A function of the program may have the word in its name. */
static void
test_no_loss_asked(void)
{
    fixture f;
    set_up(&f);
    add_fragments(&f);
    OOM(&f, 0, 18 * MIB)->stack =
        add_frame(&f, 0, "train.py", 3, "train_with_cross_entropy", NULL);
    ANSWER(&f);
    CHECK_STR(advice_text(f.oom), "one_line:4");
    tear_down(&f);
}

/* Parameters 12, optimizer state 12, gradients 4, the rest 2 MiB of line 8. */
static void
test_what_takes_the_memory(void)
{
    fixture f;
    set_up(&f);
    add(&f, ML_ACTION_SEGMENT_ALLOC, BASE, 30 * MIB);
    add_alloc(&f, BASE, 12 * MIB, user_line(&f, 1));
    sample_tag(&f.made, BASE, ML_CATEGORY_PARAMETER);
    add_alloc(&f, BASE + 12 * MIB, 12 * MIB, user_line(&f, 2));
    sample_tag(&f.made, BASE + 12 * MIB, ML_CATEGORY_OPTIMIZER_STATE);
    add_alloc(&f, BASE + 24 * MIB, 4 * MIB, user_line(&f, 3));
    sample_tag(&f.made, BASE + 24 * MIB, ML_CATEGORY_GRADIENT);
    add_alloc(&f, BASE + 28 * MIB, 2 * MIB, user_line(&f, 8));
    OOM(&f, 0, 12 * MIB);
    ANSWER(&f);
    CHECK_VERDICT(&f, "full");
    CHECK_STR(advice_text(f.oom), "optimizer_state:12 parameters:12");
    CHECK_UINT(f.oom->state->line_count, 4);
    tear_down(&f);
}

int
main(void)
{
    RUN(test_where_it_was_asked);
    RUN(test_no_loss_asked);
    RUN(test_what_takes_the_memory);
    return TEST_RESULT();
}
