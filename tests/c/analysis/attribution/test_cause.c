/* Causes of recordings worked out by hand: several threads, numbers of nodes, steps. */
#include "analysis/attribution/cause.h"

#include "cause_samples.h"

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
 * line 20 of NAME, called at line 10 of f by way of NATIVE frames or not, and BY.
 * CODE: what is known of NAME, whose file was read for functions if it has a first line;
 * without a qualified name: no code is recorded. */
typedef struct known_code {
    const char *qualname;
    int64_t first;
    uint8_t forward;
} known_code;

static void
check_known_function(const char *by, const char *called, bool native, const char *name,
                     known_code known, const char *how)
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
    uint32_t own = add_stack(&f, around, "a.py", 20, name);
    alloc(&f, 1, MAIN, 2, own);
    alloc_back(&f, 2, MAIN, 1);
    if (known.qualname != NULL) {
        ml_frame frame = f.made.recording->frames[f.made.recording->stacks[own].frame];
        ml_code_line code = {.filename = frame.filename,
                             .name = frame.name,
                             .line = 20,
                             .qualname =
                                 sample_string(f.made.recording, known.qualname),
                             .first_line = known.first,
                             .forward = known.forward};
        CHECK_INT(ml_recording_add_code_line(f.made.recording, code), 0);
    }
    CHECK_INT(ml_causes_new(f.made.recording, &causes), 0);
    CHECK_STR(ml_how_text(ml_causes_of(causes, 0, 2).how), how);
    if (how[0] == 'n' && how[1] == 'o') {
        CHECK_INT(line_of(&f, ml_causes_of(causes, 0, 2)), 20);
    }
    ml_causes_free(causes);
    tear_down(&f);
}

static void
check_function(const char *by, const char *called, bool native, const char *name,
               const char *how)
{
    check_known_function(by, called, native, name, (known_code){0}, how);
}

static void
check_named_function(const char *name, const char *qualname, int64_t first,
                     const char *how)
{
    check_known_function(NULL, NULL, false, name, (known_code){qualname, first, 0},
                         how);
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
    /* A method, and functions that only have its name. */
    check_named_function("forward", "Square.forward", 19, "node");
    check_named_function("forward", "f.<locals>.Square.forward", 19, "node");
    check_named_function("forward", "forward", 19, "near");
    check_named_function("forward", "f.<locals>.forward", 19, "near");
    /* Of a file that was not read for functions, the bare name tells nothing. */
    check_named_function("forward", "forward", 0, "node");
}

/* The recording knows the forwards of the program's Functions: whatever their names, and
 * whoever calls them. */
static void
test_a_known_forward(void)
{
    static const char module[] = "torch/nn/modules/module.py";
    const known_code none = {"Net.forward", 19, ML_CODE_FORWARD_NONE};
    const known_code functions = {"forward", 19, ML_CODE_FORWARD_FUNCTIONS};
    const known_code unread = {"forward", 0, ML_CODE_FORWARD_NONE};
    check_known_function(NULL, NULL, false, "forward", none, "near");
    check_known_function(NULL, NULL, false, "forward", unread, "near");
    check_known_function(NULL, NULL, false, "forward", functions, "node");
    check_known_function(module, "_call_impl", false, "forward", functions, "node");
    check_known_function(module, "_call_impl", false, "forward", none, "near");
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

static const char *
phase_at(const ml_causes *causes, size_t event)
{
    return ml_phase_text(ml_causes_phase(causes, 0, event));
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
        CHECK_STR(phase_at(causes, i), phases[i]);
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
    CHECK_STR(phase_at(causes, 2), "forward");
    CHECK_STR(phase_at(causes, 5), "forward");
    CHECK_STR(phase_at(causes, 6), "other");
    CHECK_STR(phase_at(causes, 10), "other");
    ml_causes_free(causes);
    tear_down(&f);
}

/* Of an operation that asks twice, as mse_loss() does, the second request may fail. */
static void
test_a_request_that_fails_is_of_the_operation_before_it(void)
{
    static fixture f;
    ml_causes *causes;
    set_up(&f);
    uint32_t line = add_stack(&f, 0, "a.py", 10, "f");
    uint32_t next = add_stack(&f, 0, "a.py", 11, "f");
    alloc(&f, 0, MAIN, 1, line);
    alloc(&f, 1, MAIN, 2, line); /* 1: of a node */
    add(&f, ML_ACTION_OOM, 8, MAIN, 2, line);
    add(&f, ML_ACTION_OOM, 8, MAIN, 2, next);
    alloc(&f, 2, MAIN, 2, line); /* 4: of none, with what comes after it */
    add(&f, ML_ACTION_OOM, 8, MAIN, 2, line);
    CHECK_INT(ml_causes_new(f.made.recording, &causes), 0);
    CHECK_STR(phase_at(causes, 2), "forward");
    CHECK_STR(phase_at(causes, 3), "other");
    CHECK_STR(phase_at(causes, 4), "other");
    CHECK_STR(phase_at(causes, 5), "other");
    ml_causes_free(causes);
    tear_down(&f);
}

int
main(void)
{
    RUN(test_lines_of_nodes);
    RUN(test_types_of_nodes);
    RUN(test_a_function_of_the_program);
    RUN(test_a_known_forward);
    RUN(test_bounds);
    RUN(test_nodes_that_nodes_make);
    RUN(test_phases_and_steps);
    RUN(test_many_steps);
    RUN(test_segments_and_frees_before_a_result);
    RUN(test_a_request_that_fails_is_of_the_operation_before_it);
    return TEST_RESULT();
}
