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
}

int
main(void)
{
    RUN(test_a_variable_until_it_is_set_again);
    RUN(test_a_holder_that_is_no_variable);
    RUN(test_losses_that_are_summed);
    RUN(test_slices_of_one_input);
    RUN(test_calls_that_depend_on_each_other);
    RUN_LONG_IN_ONE_THREAD(test_allocations_can_fail);
    return TEST_RESULT();
}
