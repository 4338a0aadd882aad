/* Advice on what is held too long, without last uses: by a variable until it is set again, by
 * the graphs of losses that are summed. */
#include "advice_samples.h"

static void
note(enum ml_note_kind kind, const char *name, uint64_t a, uint64_t b)
{
    s.notes[s.recording->note_count++] =
        (ml_note){.kind = (uint8_t)kind,
                  .name = sample_string(s.recording, name),
                  .time = SAMPLE_TIME(&s),
                  .values = {a, b}};
}

/* Each of four steps makes a batch of 32 MiB at line 13 while that of the step before it is
 * there.  After the second step the search said by whom the batch was held. */
static void
hold_batches(const char *holder, uint64_t set_again)
{
    begin();
    sample_tag(&s, take(4, line(3), 1), ML_CATEGORY_PARAMETER);
    uint32_t stack = line(13);
    uint32_t module = in_module(14);
    uint64_t last = 0;
    for (uint64_t step = 0; step < 4; step++) {
        uint64_t batch = take(32, stack, 1);
        if (last != 0) {
            give(last, 32, 0, NEVER_USED);
        }
        give(take(8, module, 2), 8, 0, NEVER_USED);
        note(ML_NOTE_STEP, "", step, 0);
        if (step == 1) {
            note(ML_NOTE_HOLDER, holder, batch, set_again);
        }
        last = batch;
    }
}

static void
test_a_variable_until_it_is_set_again(void)
{
    hold_batches("batch of main", 13);
    const ml_advice *advice = find(ML_ADVICE_LATE_FREES);
    CHECK(advice != NULL && !advice->exact);
    CHECK_UINT(advices->before.peak.allocated, (4 + 32 + 32) * MIB);
    CHECK_UINT(advice->alone.peak.allocated, (4 + 32 + 8) * MIB);
    /* That of the last step too, which may go with it. */
    CHECK_UINT(advice->count, 4);
    CHECK_INT(line_of(advice), 13);
    ml_string said = s.recording->strings[advice->name];
    CHECK_INT(ml_string_compare(said, (ml_string){"batch of main", 13}), 0);
    end();
}

/* What a list holds may be read by anyone. */
static void
test_a_holder_that_is_no_variable(void)
{
    hold_batches("global `batches[...]`", 0);
    CHECK(find(ML_ADVICE_LATE_FREES) == NULL);
    end();
}

/* Each of eight steps leaves 20 MiB in a list, which goes right after the last step, from its end:
 * a variable holds that of the last step longer. */
static void
test_a_list_that_goes_after_the_last_step(void)
{
    begin();
    uint32_t stack = in_module(8);
    uint64_t kept[8];
    for (uint64_t step = 0; step < 8; step++) {
        kept[step] = take(20, stack, 2 * step + 2);
        give(take(8, stack, 2 * step + 3), 8, 0, NEVER_USED);
        note(ML_NOTE_STEP, "", step, 0);
    }
    for (size_t i = 7; i > 0; i--) {
        give(kept[i - 1], 20, 0, NEVER_USED);
    }
    give(kept[7], 20, 0, NEVER_USED);
    const ml_advice *advice = find(ML_ADVICE_STEPS_KEPT);
    CHECK(advice != NULL && !advice->exact);
    CHECK_UINT(advice->blocks, 7);
    CHECK_UINT(advices->before.peak.allocated - advice->alone.peak.allocated,
               7 * 20 * MIB);
    end();
}

/* Three lines of a module make 20, 30 and 40 MiB that no pass frees, and something else 50, before
 * they go one after the other; APART: not the last of them, which another block precedes.
 * TRAINED: the same lines once had a pass. */
static void
leave_a_graph(bool apart, bool trained)
{
    begin();
    take(1, line(2), 1);
    uint32_t stacks[3] = {in_module(8), in_module(9), in_module(10)};
    uint64_t node = 2;
    if (trained) {
        uint64_t first = take(20, stacks[0], node++);
        take(1, stacks[1], node++);
        give(take_back(2, 1, "MulBackward0"), 2, ML_EVENT_BACKWARD, NEVER_USED);
        give(first, 20, ML_EVENT_BACKWARD, NEVER_USED);
    }
    uint64_t first = take(20, stacks[0], node);
    uint64_t second = take(30, stacks[1], node + 1);
    uint64_t third = take(40, stacks[2], node + 2);
    /* No node of the graph. */
    give(take(50, line(12), node + 2), 50, 0, NEVER_USED);
    give(second, 30, 0, NEVER_USED);
    give(first, 20, 0, NEVER_USED);
    if (apart) {
        take(1, line(13), node + 2);
    }
    give(third, 40, 0, NEVER_USED);
}

static uint64_t
saved_by(const ml_advice *advice)
{
    return advice == NULL
               ? 0
               : advices->before.peak.allocated - advice->alone.peak.allocated;
}

/* Of what goes at once the last was the program's own, and a graph held the others. */
static void
test_a_graph_without_last_uses(void)
{
    leave_a_graph(false, false);
    const ml_advice *advice = find(ML_ADVICE_GRAPH_UNUSED);
    CHECK(advice != NULL && !advice->exact);
    CHECK_UINT(saved_by(advice), 50 * MIB);
    CHECK_INT(line_of(advice), 10);
    end();
    leave_a_graph(true, false);
    CHECK_UINT(saved_by(find(ML_ADVICE_GRAPH_UNUSED)), 30 * MIB);
    end();
}

/* Without a graph the training could not be: something holds the one of a step. */
static void
test_a_graph_of_the_training(void)
{
    leave_a_graph(false, true);
    CHECK(find(ML_ADVICE_GRAPH_UNUSED) == NULL);
    CHECK_UINT(saved_by(find(ML_ADVICE_LATE_FREES)), 50 * MIB);
    end();
}

/* A pass runs the nodes of three lines and frees nothing of theirs; OLDEST_FIRST: they go as the
 * variables of a function do. */
static void
retain_a_graph(bool oldest_first)
{
    begin();
    take(1, line(2), 1);
    uint64_t first = take(20, in_module(8), 2);
    uint64_t second = take(30, in_module(9), 3);
    uint64_t third = take(40, in_module(10), 4);
    give(take_back(2, 3, "MulBackward0"), 2, ML_EVENT_BACKWARD, NEVER_USED);
    give(take_back(2, 1, "MulBackward0"), 2, ML_EVENT_BACKWARD, NEVER_USED);
    give(take(50, line(12), 4), 50, 0, NEVER_USED);
    give(oldest_first ? first : second, oldest_first ? 20 : 30, 0, NEVER_USED);
    give(oldest_first ? second : first, oldest_first ? 30 : 20, 0, NEVER_USED);
    give(third, 40, 0, NEVER_USED);
}

static void
test_a_retained_graph_without_last_uses(void)
{
    retain_a_graph(false);
    const ml_advice *advice = find(ML_ADVICE_GRAPH_RETAINED);
    CHECK(advice != NULL && !advice->exact);
    /* In the pass 20, 30, 40 and 3 are there; behind it without the two first 91 are the most. */
    CHECK_UINT(saved_by(advice), (141 - 93) * MIB);
    end();
    retain_a_graph(true);
    CHECK(find(ML_ADVICE_GRAPH_RETAINED) == NULL);
    end();
}

/* A value of a loss, which one line makes. */
static uint64_t
take_loss(uint32_t stack, uint64_t next)
{
    uint64_t addr = next_addr;
    next_addr += UINT64_C(1) << 30;
    event_in(ML_ACTION_SEGMENT_ALLOC, addr, 2 * MIB, stack)->sequence = next;
    event_in(ML_ACTION_ALLOC, addr, 8, stack)->sequence = next;
    return addr;
}

/* How calls depend on each other. */
enum dependence {
    APART,
    BY_GRADIENT,
    BY_SAVED,
    BY_VALUE
};

/* Three micro-batches of 4 MiB, whose calls of a module save 64 MiB each; one backward pass,
 * which frees the last call's first.  INPUTS: each batch is made anew, and is no slice. */
static void
sum_losses(bool inputs, enum dependence dependence)
{
    begin();
    sample_tag(&s, take(4, line(3), 1), ML_CATEGORY_PARAMETER);
    uint32_t input = line(20), loss = line(22);
    uint32_t module = in_module(21);
    uint64_t saved[3];
    for (uint64_t i = 0; i < 3; i++) {
        if (inputs) {
            sample_tag(&s, take(4, input, 3 * i + 2), ML_CATEGORY_INPUT);
        }
        saved[i] = take(64, module, 3 * i + 3);
        take_loss(loss, 3 * i + 4);
    }
    uint64_t value = dependence == BY_VALUE ? take_loss(line(24), 14) : 0;
    uint64_t behind = 0;
    for (size_t i = 3; i > 0; i--) {
        uint64_t gradient = take_back(1, 3 * i, "AddmmBackward0");
        if (i == 3 && value != 0) {
            give(value, 0, ML_EVENT_BACKWARD, NEVER_USED);
        }
        if (i == 3 && dependence == BY_SAVED) {
            give(saved[0], 64, ML_EVENT_BACKWARD, NEVER_USED);
        }
        if (i > 1 || dependence != BY_SAVED) {
            give(saved[i - 1], 64, ML_EVENT_BACKWARD, NEVER_USED);
        }
        if (behind != 0) {
            give(behind, 1, ML_EVENT_BACKWARD, NEVER_USED);
        }
        behind = dependence == BY_GRADIENT ? gradient : 0;
        if (behind == 0) {
            give(gradient, 1, ML_EVENT_BACKWARD, NEVER_USED);
        }
    }
}

static void
test_losses_that_are_summed(void)
{
    sum_losses(true, APART);
    const ml_advice *advice = find(ML_ADVICE_LOSSES_SUMMED);
    CHECK(advice != NULL && !advice->exact);
    CHECK_UINT(advice->count, 3);
    CHECK_UINT(advice->blocks, 2);
    CHECK_UINT(advice->bytes, 128 * MIB);
    CHECK_UINT(advices->before.peak.allocated - advice->alone.peak.allocated,
               128 * MIB);
    end();
}

static void
test_slices_of_one_input(void)
{
    sum_losses(false, APART);
    const ml_advice *advice = find(ML_ADVICE_LOSSES_SUMMED);
    CHECK(advice != NULL && advice->count == 3);
    end();
}

/* The gradient of a state that goes from call to call; what a common loss saved of a call, or
 * of the losses. */
static void
test_calls_that_depend_on_each_other(void)
{
    static const enum dependence by[] = {BY_GRADIENT, BY_SAVED, BY_VALUE};
    for (unsigned i = 0; i < 3; i++) {
        sum_losses(true, by[i]);
        CHECK(find(ML_ADVICE_LOSSES_SUMMED) == NULL);
        CHECK(advices != NULL);
        end();
    }
}

static void
test_allocations_can_fail(void)
{
    hold_batches("batch of main", 13);
    check_that_allocations_can_fail();
    sample_end(&s);
    sum_losses(true, APART);
    check_that_allocations_can_fail();
    sample_end(&s);
    leave_a_graph(false, true);
    check_that_allocations_can_fail();
    sample_end(&s);
    retain_a_graph(false);
    check_that_allocations_can_fail();
    sample_end(&s);
}

int
main(void)
{
    RUN(test_a_variable_until_it_is_set_again);
    RUN(test_a_holder_that_is_no_variable);
    RUN(test_a_list_that_goes_after_the_last_step);
    RUN(test_a_graph_without_last_uses);
    RUN(test_a_graph_of_the_training);
    RUN(test_a_retained_graph_without_last_uses);
    RUN(test_losses_that_are_summed);
    RUN(test_slices_of_one_input);
    RUN(test_calls_that_depend_on_each_other);
    RUN_LONG_IN_ONE_THREAD(test_allocations_can_fail);
    return TEST_RESULT();
}
