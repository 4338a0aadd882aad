/* Causes and categories of recordings worked out by hand: several threads, numbers of
 * nodes, steps. */
#include "analysis/attribution/cause.h"

#include <stdlib.h>

#include "analysis/attribution/category.h"
#include "analysis/analysis.h"
#include "base/base.h"
#include "recording_samples.h"
#include "test.h"

#define BASE UINT64_C(0x7f0000000000)
#define MAIN 1 /* numbers of threads, autograd's */
#define SECOND 2
#define ENGINE 3 /* autograd's own */

typedef struct fixture {
    sample made;
    uint32_t type; /* string: of the nodes to come */
} fixture;

/* Without segments: a block has the bytes that its event says. */
static void
set_up(fixture *f)
{
    memset(f, 0, sizeof(*f));
    sample_begin(&f->made);
    f->made.recording->rules.has_segments = 0;
}

static void
tear_down(fixture *f)
{
    sample_end(&f->made);
}

/* One frame of FILE further in than CALLER. */
static uint32_t
add_stack(fixture *f, uint32_t caller, const char *file, int64_t line, const char *name)
{
    return sample_call(f->made.recording, caller, file, line, name, NULL);
}

static ml_event *
add(fixture *f, enum ml_action action, unsigned block, uint16_t thread,
    uint64_t sequence, uint32_t stack)
{
    ml_event *event =
        sample_event(&f->made, action, BASE + block * UINT64_C(4096), 4096, stack);
    event->block_bytes = event->size;
    event->sequence = sequence;
    event->autograd_thread = thread;
    return event;
}

static void
alloc(fixture *f, unsigned block, uint16_t thread, uint64_t next, uint32_t stack)
{
    add(f, ML_ACTION_ALLOC, block, thread, next, stack);
}

/* By node NUMBER that THREAD made. */
static void
alloc_back(fixture *f, unsigned block, uint16_t thread, uint64_t number)
{
    ml_event *event = add(f, ML_ACTION_ALLOC, block, thread, number, 0);
    event->flags = ML_EVENT_BACKWARD | ML_EVENT_NO_PYTHON;
    event->node = f->type;
}

/* Likewise, where THREAD would give its next node the number NEXT. */
static void
alloc_in_node(fixture *f, unsigned block, uint64_t number, uint16_t thread,
              uint64_t next, uint32_t stack)
{
    ml_event *event = add(f, ML_ACTION_ALLOC, block, MAIN, number, stack);
    event->flags = ML_EVENT_BACKWARD;
    event->node = f->type;
    event->next = next;
    event->next_thread = thread;
}

static void
free_block(fixture *f, unsigned block, uint16_t thread, uint8_t flags)
{
    add(f, ML_ACTION_FREE_REQUESTED, block, thread, 0, 0)->flags = flags;
    add(f, ML_ACTION_FREE_COMPLETED, block, thread, 0, 0)->flags = flags;
}

static int64_t
line_of(const fixture *f, ml_cause cause)
{
    return f->made.recording->frames[cause.frame].line;
}

/* A node's number is one less than what the first event of its operation saw; and the
 * numbers of another thread say nothing. */
static void
test_lines_of_nodes(void)
{
    static fixture f;
    ml_causes *causes;
    set_up(&f);
    f.type =
        sample_string(f.made.recording, "N5torch8autograd9generated14AddmmBackward0E");
    uint32_t ten = add_stack(&f, 0, "a.py", 10, "f");
    uint32_t twenty = add_stack(&f, 0, "a.py", 20, "f");
    uint32_t thirty = add_stack(&f, 0, "a.py", 30, "f");
    uint32_t fifty = add_stack(&f, 0, "b.py", 50, "g");
    alloc(&f, 0, MAIN, 1, ten);     /* node 0 */
    alloc(&f, 1, MAIN, 2, twenty);  /* node 1, and a second block of it: */
    alloc(&f, 2, MAIN, 2, thirty);  /* not the first event, and without a node */
    alloc(&f, 3, SECOND, 2, fifty); /* node 1 of the other thread */
    alloc(&f, 4, MAIN, 6, thirty);  /* node 5; nodes 2 to 4 left no event */
    alloc_back(&f, 5, MAIN, 5);
    alloc_back(&f, 6, MAIN, 2);
    alloc_back(&f, 7, MAIN, 1);
    alloc_back(&f, 8, SECOND, 1);
    alloc_back(&f, 9, SECOND, 7); /* made after all that was recorded of its thread */
    alloc_back(&f, 10, MAIN, UINT64_MAX);
    CHECK_INT(ml_recording_validate(f.made.recording), 0);
    CHECK_INT(ml_causes_new(f.made.recording, &causes), 0);
    static const struct {
        size_t event;
        int64_t line;
        const char *how;
        const char *reason;
    } want[] = {
        {0, 10, "frames", ""},
        {5, 30, "node", ""},
        {6, 30, "near", ""},
        {7, 20, "node", ""},
        {8, 50, "node", ""},
        {9, 0, "", "its forward was not recorded (backward)"},
        {10, 0, "", "autograd's own sum of gradients (backward)"},
    };
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        ml_cause cause = ml_causes_of(causes, 0, want[i].event);
        CHECK_INT(line_of(&f, cause), want[i].line);
        CHECK_STR(ml_how_text(cause.how), want[i].how);
        CHECK_STR(ml_no_line_text(cause.no_line), want[i].reason);
    }
    ml_cause near = ml_causes_of(causes, 0, 6);
    CHECK_INT(f.made.recording->frames[near.until].line, 30);
    ml_causes_free(causes);
    ml_causes_free(NULL);
    tear_down(&f);
}

/* What the type of a node says of the first event that saw the next number. */
static void
test_types_of_nodes(void)
{
    static const struct {
        const char *type;
        int64_t line;
        const char *how;
    } want[] = {
        {"N5torch8autograd9generated11MmBackward0E", 20, "node"},
        {"N5torch8autograd9generated12SumBackward1E", 20, "node"},
        {"N5torch8autograd9generated12MulBackward0E", 20, "likely"},
        {"N5torch8autograd9generated13TanhBackward0E", 20, "likely"},
        {"N5torch8autograd9generated13ViewBackward0E", 10, "near"},
        {"N5torch8autograd9generated10TBackward0E", 10, "near"},
        {"N5torch8autograd10CopySlicesE", 10, "near"},
        {"N5torch8autograd6PyNodeE", 10, "near"}, /* not in its forward */
        {"13OtherBackward", 20, "likely"},
        {"N5torch8autograd9generated99999999999999999999MmBackward0E", 20, "likely"},
        {"N5torch8autograd9generated8BackwardE", 20, "likely"},
        {"N5torch8autograd9generated", 20, "likely"},
        {"", 20, "likely"},
    };
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        static fixture f;
        ml_causes *causes;
        set_up(&f);
        f.type = sample_string(f.made.recording, want[i].type);
        alloc(&f, 0, MAIN, 1, add_stack(&f, 0, "a.py", 10, "f"));
        alloc(&f, 1, MAIN, 2, add_stack(&f, 0, "a.py", 20, "f"));
        alloc_back(&f, 2, MAIN, 1);
        CHECK_INT(ml_causes_new(f.made.recording, &causes), 0);
        ml_cause cause = ml_causes_of(causes, 0, 2);
        CHECK_STR(ml_how_text(cause.how), want[i].how);
        CHECK_INT(line_of(&f, cause), want[i].line);
        ml_causes_free(causes);
        tear_down(&f);
    }
}

/* Of the node of a torch.autograd.Function, the first allocation after its number is by
 * line 20 of NAME, called at line 10 of f by way of NATIVE frames or not, and BY. */
static void
check_function(const char *by, const char *called, bool native, const char *name,
               const char *how)
{
    static fixture f;
    ml_causes *causes;
    set_up(&f);
    f.type = sample_string(f.made.recording, "N5torch8autograd6PyNodeE");
    uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
    uint32_t around = by == NULL ? line : add_stack(&f, line, by, 1, called);
    if (native) {
        around = add_stack(&f, around, "??", 0, "_PyObject_Call");
    }
    alloc(&f, 0, MAIN, 1, line);
    alloc(&f, 1, MAIN, 2, add_stack(&f, around, "a.py", 20, name));
    alloc_back(&f, 2, MAIN, 1);
    CHECK_INT(ml_causes_new(f.made.recording, &causes), 0);
    CHECK_STR(ml_how_text(ml_causes_of(causes, 0, 2).how), how);
    if (how[0] == 'n' && how[1] == 'o') {
        CHECK_INT(line_of(&f, ml_causes_of(causes, 0, 2)), 20);
    }
    ml_causes_free(causes);
    tear_down(&f);
}

static void
test_a_function_of_the_program(void)
{
    static const char module[] = "torch/nn/modules/module.py";
    check_function("torch/autograd/function.py", "apply", false, "forward", "node");
    /* As torch 2.15 calls it. */
    check_function(NULL, NULL, false, "forward", "node");
    check_function(NULL, NULL, true, "forward", "node");
    /* What followed a function that allocates nothing. */
    check_function(NULL, NULL, false, "g", "near");
    check_function(module, "_call_impl", false, "forward", "near");
    check_function(module, "_call_impl", true, "forward", "near");
}

/* A free tells when, but not of what; what was seen after a node ran is no bound. */
static void
test_bounds(void)
{
    static fixture f;
    ml_causes *causes;
    set_up(&f);
    f.type =
        sample_string(f.made.recording, "N5torch8autograd9generated11MmBackward0E");
    uint32_t caller = add_stack(&f, 0, "a.py", 5, "main");
    uint32_t other = add_stack(&f, 0, "a.py", 6, "main");
    alloc(&f, 0, MAIN, 1, add_stack(&f, caller, "a.py", 30, "f"));
    add(&f, ML_ACTION_FREE_REQUESTED, 0, MAIN, 2,
        add_stack(&f, caller, "a.py", 20, "f"));
    alloc(&f, 1, MAIN, 3, add_stack(&f, other, "a.py", 40, "g"));
    alloc_back(&f, 2, MAIN, 1); /* around a loop, from line 30 of f to its line 20 */
    alloc_back(&f, 3, MAIN, 3);
    alloc(&f, 4, MAIN, 4, other);
    alloc_back(&f, 5, MAIN, 3);
    CHECK_INT(ml_causes_new(f.made.recording, &causes), 0);
    ml_cause cause = ml_causes_of(causes, 0, 3);
    CHECK_STR(ml_how_text(cause.how), "near");
    CHECK_INT(line_of(&f, cause), 30);
    CHECK_INT(f.made.recording->frames[cause.until].line, 20);
    CHECK_STR(ml_how_text(ml_causes_of(causes, 0, 4).how), "");
    CHECK_STR(ml_how_text(ml_causes_of(causes, 0, 6).how), "node");
    CHECK_INT(line_of(&f, ml_causes_of(causes, 0, 6)), 6);
    ml_causes_free(causes);
    tear_down(&f);
}

/* What a backward pass makes nodes for: by Python code, as a recomputation, it has lines
 * of its own; without, it has that of the node that ran. */
static void
test_nodes_that_nodes_make(void)
{
    static fixture f;
    ml_causes *causes;
    set_up(&f);
    f.type =
        sample_string(f.made.recording, "N5torch8autograd9generated11MmBackward0E");
    uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
    uint32_t engine =
        add_stack(&f, line, "torch/autograd/graph.py", 1, "_engine_run_backward");
    alloc(&f, 0, MAIN, 1, line);           /* node 0 */
    alloc_in_node(&f, 1, 0, ENGINE, 7, 0); /* its node 6, without Python */
    alloc_in_node(&f, 2, 0, ENGINE, 8, add_stack(&f, engine, "a.py", 20, "g"));
    alloc_in_node(&f, 3, 0, ENGINE, 9, engine); /* its node 8 */
    for (unsigned i = 0; i < 3; i++) {
        alloc_back(&f, 4 + i, ENGINE, 6 + i);
    }
    static const int64_t lines[] = {10, 20, 10};
    CHECK_INT(ml_recording_validate(f.made.recording), 0);
    CHECK_INT(ml_causes_new(f.made.recording, &causes), 0);
    for (size_t i = 0; i < 3; i++) {
        ml_cause cause = ml_causes_of(causes, 0, 4 + i);
        CHECK_STR(ml_how_text(cause.how), "node");
        CHECK_INT(line_of(&f, cause), lines[i]);
    }
    ml_causes_free(causes);

    /* A file may say that a node made itself. */
    f.made.events[1].sequence = 6;
    f.made.events[1].autograd_thread = ENGINE;
    CHECK_INT(ml_causes_new(f.made.recording, &causes), 0);
    CHECK_STR(ml_how_text(ml_causes_of(causes, 0, 4).how), "");
    ml_causes_free(causes);
    tear_down(&f);
}

static void
test_phases_and_steps(void)
{
    static fixture f;
    ml_causes *causes;
    set_up(&f);
    uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
    uint32_t optimizer = add_stack(&f, line, "torch/optim/sgd.py", 1, "step");
    alloc(&f, 0, MAIN, 0, line); /* nothing before it tells of a node */
    alloc(&f, 1, MAIN, 1, line); /* made a node */
    alloc(&f, 2, MAIN, 1, line); /* made none */
    alloc_back(&f, 3, MAIN, 0);
    alloc(&f, 4, MAIN, 1, optimizer);
    alloc(&f, 5, MAIN, 2, line); /* the next step */
    static const char *const phases[] = {"other",    "forward",   "other",
                                         "backward", "optimizer", "forward"};
    CHECK_INT(ml_causes_new(f.made.recording, &causes), 0);
    for (size_t i = 0; i < 6; i++) {
        CHECK_STR(ml_phase_text(ml_causes_phase(causes, 0, i)), phases[i]);
        CHECK_INT(ml_causes_of(causes, 0, i).step, i == 5);
    }
    ml_causes_free(causes);

    /* Marks say more: step 7 ended after the second event. */
    f.made.notes[0] = (ml_note){.time = 2500000, .values = {7}, .kind = ML_NOTE_STEP};
    f.made.recording->note_count = 1;
    CHECK_INT(ml_causes_new(f.made.recording, &causes), 0);
    for (size_t i = 0; i < 6; i++) {
        CHECK_INT(ml_causes_of(causes, 0, i).step, i < 2 ? 7 : 8);
    }
    ml_causes_free(causes);
    tear_down(&f);
}

/* Steps that begin anywhere: close together, or none for long. */
static void
test_many_steps(void)
{
    static const size_t begins[] = {1, 3, 1022, 1024, 1026, 2048, 4095, 4097, 5000};
    static const size_t changes = sizeof(begins) / sizeof(*begins);
    static ml_event events[5003];
    const size_t count = sizeof(events) / sizeof(*events);
    static fixture f;
    ml_causes *causes;
    set_up(&f);
    uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
    uint32_t optimizer = add_stack(&f, line, "torch/optim/sgd.py", 1, "step");
    for (size_t i = 0, next = 0; i < count; i++) {
        bool last = next < changes && i + 1 == begins[next];
        events[i] = (ml_event){.addr = BASE,
                               .size = 4096,
                               .stack = last ? optimizer : line,
                               .action = ML_ACTION_ALLOC};
        next += last;
    }
    f.made.device.events.plain = events;
    f.made.device.event_count = count;
    CHECK_INT(ml_causes_new(f.made.recording, &causes), 0);
    for (size_t i = 0, step = 0; i < count; i++) {
        step += step < changes && i == begins[step];
        CHECK_INT(ml_causes_step(causes, 0, i), step);
    }
    ml_causes_free(causes);
    tear_down(&f);
}

/* The number that an operation's node took shows at its result, whatever came first. */
static void
test_segments_and_frees_before_a_result(void)
{
    static fixture f;
    ml_causes *causes;
    set_up(&f);
    uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
    alloc(&f, 0, MAIN, 1, line);
    add(&f, ML_ACTION_SEGMENT_ALLOC, 64, MAIN, 2, line);
    alloc(&f, 64, MAIN, 2, line); /* 2: log_softmax(), in the new segment */
    add(&f, ML_ACTION_FREE_REQUESTED, 0, MAIN, 3, line);
    add(&f, ML_ACTION_FREE_COMPLETED, 0, MAIN, 3, line);
    alloc(&f, 1, MAIN, 3, line); /* 5: mean() */
    alloc(&f, 2, MAIN, 3, line); /* 6: made no node */
    alloc_back(&f, 3, MAIN, 3);  /* of a view, say, that made the node */
    add(&f, ML_ACTION_FREE_REQUESTED, 1, MAIN, 4, line);
    add(&f, ML_ACTION_FREE_COMPLETED, 1, MAIN, 4, line);
    alloc(&f, 4, MAIN, 4, line); /* 10: the next batch */
    CHECK_INT(ml_causes_new(f.made.recording, &causes), 0);
    CHECK_STR(ml_phase_text(ml_causes_phase(causes, 0, 2)), "forward");
    CHECK_STR(ml_phase_text(ml_causes_phase(causes, 0, 5)), "forward");
    CHECK_STR(ml_phase_text(ml_causes_phase(causes, 0, 6)), "other");
    CHECK_STR(ml_phase_text(ml_causes_phase(causes, 0, 10)), "other");
    ml_causes_free(causes);
    tear_down(&f);
}

/* The category of the block that event INDEX allocated. */
static const char *
category(const fixture *f, size_t index)
{
    const ml_analysis *of;
    ml_recording_detach(f->made.recording);
    if (ml_analysis_of(f->made.recording, 0, &of) != 0) {
        return "no memory";
    }
    return ml_category_text(ml_explain(of, 0, index, 0).verdict.category);
}

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

/* One pass tells a workspace of a size that no tensor has. */
static void
test_workspaces(void)
{
    static const struct {
        uint64_t bytes;
        const char *category;
    } want[] = {
        {8519680, "workspace"}, {33554432, "activation"}, {33554433, "activation"}};
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        static fixture f;
        set_up(&f);
        uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
        sample_tag(&f.made, 1, ML_CATEGORY_PARAMETER);
        alloc(&f, 0, MAIN, 1, line);
        ml_event *event = add(&f, ML_ACTION_ALLOC, 1, MAIN, 2, line);
        event->size = event->block_bytes = want[i].bytes;
        alloc_back(&f, 100000, MAIN, 0);
        CHECK_STR(category(&f, 1), want[i].category);
        tear_down(&f);
    }
}

/* The first of its stream is cuBLASLt's; a list that grows by 1 MiB is none. */
static void
test_the_light_workspace(void)
{
    static fixture f;
    set_up(&f);
    uint32_t user = add_stack(&f, 0, "a.py", 10, "f");
    uint32_t line = add_stack(&f, user, "torch/nn/modules/module.py", 1, "_call_impl");
    sample_tag(&f.made, 1, ML_CATEGORY_PARAMETER);
    for (unsigned i = 0; i < 5; i++) {
        ml_event *event = add(&f, ML_ACTION_ALLOC, 1000 * (i + 1), MAIN, 2, line);
        event->size = event->block_bytes = 1048576 + (i == 0);
        event->stream = i == 4;
        if (i == 1) {
            free_block(&f, 1000 * (i + 1), MAIN, 0);
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        alloc_back(&f, 100000 + i, MAIN, 0);
        alloc(&f, 200000 + i, MAIN, 3, line);
    }
    CHECK_STR(category(&f, 0), "unknown");
    CHECK_STR(category(&f, 1), "temporary");
    CHECK_STR(category(&f, 4), "workspace");
    CHECK_STR(category(&f, 5), "unknown");
    CHECK_STR(category(&f, 6), "workspace");
    tear_down(&f);
}

/* What cuDNN's dropout keeps: by its size, in a recurrent network. */
static void
test_the_generators(void)
{
    static fixture f;
    set_up(&f);
    uint32_t user = add_stack(&f, 0, "a.py", 10, "f");
    uint32_t call = add_stack(&f, user, "torch/nn/modules/module.py", 1, "_call_impl");
    uint32_t net = add_stack(&f, call, "torch/nn/modules/rnn.py", 1, "forward");
    uint32_t own = add_stack(&f, call, "b.py", 1, "forward");
    sample_tag(&f.made, 1, ML_CATEGORY_PARAMETER);
    const uint64_t bytes = UINT64_C(132) * 2048 * 24;
    add(&f, ML_ACTION_ALLOC, 10000, MAIN, 2, net)->size = bytes;
    add(&f, ML_ACTION_ALLOC, 20000, MAIN, 2, net)->size = bytes + 512;
    add(&f, ML_ACTION_ALLOC, 30000, MAIN, 2, own)->size = bytes;
    for (unsigned i = 0; i < 2; i++) {
        alloc_back(&f, 100000 + i, MAIN, 0);
        alloc(&f, 200000 + i, MAIN, 3, call);
    }
    CHECK_STR(category(&f, 0), "workspace");
    CHECK_STR(category(&f, 1), "unknown");
    CHECK_STR(category(&f, 2), "unknown");
    tear_down(&f);
}

int
main(void)
{
    RUN(test_lines_of_nodes);
    RUN(test_types_of_nodes);
    RUN(test_a_function_of_the_program);
    RUN(test_bounds);
    RUN(test_nodes_that_nodes_make);
    RUN(test_phases_and_steps);
    RUN(test_many_steps);
    RUN(test_segments_and_frees_before_a_result);
    RUN(test_threads_beside);
    RUN(test_what_a_pass_frees);
    RUN(test_a_forward_that_ran_out);
    RUN(test_what_was_given);
    RUN(test_the_thread_of_the_engine);
    RUN(test_the_first_gradient);
    RUN(test_workspaces);
    RUN(test_the_light_workspace);
    RUN(test_the_generators);
    return TEST_RESULT();
}
