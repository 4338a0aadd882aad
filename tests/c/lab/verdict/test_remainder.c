/* What a run that ran out of memory would have asked for next, from recordings put together
 * by hand, and what of that makes it fit. */
#include "lab/verdict/remainder.h"

#include "base/base.h"
#include "budget.h"
#include "lab/verdict/make_fit.h"
#include "recording_samples.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)

static sample s;
static uint64_t next_addr;

static ml_event *
event_in(enum ml_action action, uint64_t addr, uint64_t size, uint32_t stack)
{
    ml_event *event = sample_event(&s, action, addr, size, stack);
    event->autograd_thread = 1;
    /* Each makes a node of the graph: it trains. */
    event->sequence = s.device.event_count;
    return event;
}

/* A block in a segment of its own. */
static uint64_t
take(uint64_t mib, uint32_t stack)
{
    uint64_t addr = next_addr;
    next_addr += UINT64_C(1) << 32;
    event_in(ML_ACTION_SEGMENT_ALLOC, addr, mib * MIB, stack);
    event_in(ML_ACTION_ALLOC, addr, mib * MIB, stack);
    return addr;
}

static uint32_t
in_module(const char *path)
{
    return sample_call(s.recording, 0, "/home/a/model.py", 5, "forward", path);
}

/* Of the module of STACK. */
static void
parameter_of(uint32_t stack, uint64_t mib)
{
    uint64_t addr = take(mib, 0);
    sample_tag(&s, addr, ML_CATEGORY_PARAMETER);
    s.tags[s.device.tag_count - 1].module = s.recording->stacks[stack].module;
}

static void
parameter(const char *module, uint64_t mib)
{
    parameter_of(in_module(module), mib);
}

/* COUNT layers of 10 MiB of parameters; in the first forward each keeps 100 MiB, and a GPU of
 * 300 MiB has room for two beside those. */
static void
run_out(unsigned count)
{
    static const char *const names[] = {"layers.0", "layers.1", "layers.2",
                                        "layers.3", "layers.4", "layers.5"};
    sample_begin(&s);
    next_addr = UINT64_C(1) << 40;
    for (unsigned i = 0; i < count; i++) {
        parameter(names[i], 10);
    }
    for (unsigned i = 0; i < 2; i++) {
        take(100, in_module(names[i]));
    }
    event_in(ML_ACTION_OOM, 300 * MIB - 200 * MIB - 10 * MIB * count, 100 * MIB,
             in_module(names[2]));
}

static void
test_layers_that_were_not_reached(void)
{
    run_out(6);
    ml_advice_case it;
    CHECK_INT(ml_advice_case_init(&it, s.recording, 0), 0);
    ml_remainder remainder;
    CHECK_INT(ml_remainder_init(&remainder, &it, ML_ASSUMED_SMALL), 0);
    CHECK_UINT(remainder.untold, 0);
    CHECK_UINT(remainder.modules, 3);
    /* The third's is the request; three follow. */
    CHECK_UINT(remainder.forward, 300 * MIB);
    CHECK_UINT(remainder.activations, 600 * MIB);
    CHECK_UINT(remainder.gradients, 60 * MIB);
    /* No optimizer is known: Adam's two of each parameter. */
    CHECK_UINT(remainder.state, 120 * MIB);
    CHECK(remainder.state_assumed);
    ml_remainder_fini(&remainder);
    ml_advice_case_fini(&it);
    sample_end(&s);
}

/* Parameters, activations, and one gradient of an activation: 40 + 400 + 100 MiB at least. */
static void
test_a_batch_that_fits_holds_what_was_to_come(void)
{
    ml_make_fit fit;
    run_out(4);
    CHECK_INT(ml_make_fit_of(s.recording, 0, UINT64_MAX, &fit), 0);
    CHECK_UINT(fit.memory_bytes, 300 * MIB);
    CHECK(fit.needs_least >= 540 * MIB);
    CHECK(fit.needs_most >= fit.needs_least);
    /* Beside 40 MiB of parameters 260 are left, for 500 of the batch at least. */
    CHECK(fit.batch_safe > 0);
    CHECK(fit.batch_safe <= fit.batch_most);
    CHECK(fit.batch_most <= ML_FIT_PARTS * 260 / 500);
    CHECK(!fit.fragmented);
    sample_end(&s);
}

/* An optimizer that was noted is not assumed: of 60 MiB no state. */
static void
test_an_optimizer_that_was_noted(void)
{
    run_out(6);
    s.notes[s.recording->note_count++] =
        (ml_note){.kind = ML_NOTE_OPTIMIZER,
                  .time = SAMPLE_TIME(&s) + 1,
                  .device = -1,
                  .values = {0, 60 * MIB},
                  .name = sample_string(s.recording, "SGD")};
    ml_advice_case it;
    CHECK_INT(ml_advice_case_init(&it, s.recording, 0), 0);
    ml_remainder remainder;
    CHECK_INT(ml_remainder_init(&remainder, &it, ML_ASSUMED_LARGE), 0);
    CHECK(!remainder.state_assumed);
    CHECK_UINT(remainder.state, 0);
    CHECK_UINT(remainder.gradients, 60 * MIB);
    ml_remainder_fini(&remainder);
    ml_advice_case_fini(&it);
    sample_end(&s);
}

/* Beside parameters, gradients, Adam's state and a temporary of each, 5 times 60 MiB, no
 * batch is certain to fit. */
static void
test_no_batch_is_named_where_the_rest_is_too_much(void)
{
    ml_make_fit fit;
    run_out(6);
    CHECK_INT(ml_make_fit_of(s.recording, 0, UINT64_MAX, &fit), 0);
    CHECK_UINT(fit.batch_safe, 0);
    CHECK(fit.batch_most > 0);
    CHECK(!fit.batch_named);
    sample_end(&s);
}

/* ATTENTION is not called, but an attention's own request needs its parameters; a DECODER has others
 * that the pass did not reach. */
static void
check_the_head(const char *attention, const char *decoder, unsigned untold)
{
    sample_begin(&s);
    next_addr = UINT64_C(1) << 40;
    uint32_t encoder = in_module("encoder.attention");
    parameter_of(encoder, 10);
    parameter(attention, 10);
    if (decoder != NULL) {
        parameter(decoder, 10);
    }
    take(100, encoder);
    event_in(ML_ACTION_OOM, 0, 100 * MIB, in_module("head"));
    ml_make_fit fit;
    CHECK_INT(ml_make_fit_of(s.recording, 0, UINT64_MAX, &fit), 0);
    CHECK_UINT(fit.untold, untold);
    CHECK(untold == 0 || !fit.batch_named);
    sample_end(&s);
}

static void
test_what_a_module_needs_within_it_was_run_with_it(void)
{
    unsigned untold = 1u << ML_UNTOLD_MODULES;
    check_the_head("encoder.attention.product", NULL, 0);
    check_the_head("encoder.attention.product", "decoder", untold);
    check_the_head("encoder.attention_product", NULL, untold);
    check_the_head("head.product", NULL, untold); /* the head is under way */
}

/* Of the remedies that fit alone the first is the set; its need is within the memory. */
static void
test_the_smallest_set_fits(void)
{
    ml_make_fit fit;
    run_out(3);
    CHECK_INT(ml_make_fit_of(s.recording, 0, UINT64_MAX, &fit), 0);
    unsigned chosen = 0;
    for (size_t i = 0; i < fit.remedies.count; i++) {
        const ml_remedy *remedy = &fit.remedies.list[i];
        chosen += remedy->chosen;
        CHECK(remedy->saving + remedy->needs == fit.remedies.needs);
        CHECK(!remedy->fits || remedy->needs <= fit.memory_bytes);
    }
    CHECK(chosen >= 1);
    CHECK(fit.remedies.together <= fit.memory_bytes);
    sample_end(&s);
}

static void
test_each_allocation_can_fail(void)
{
    run_out(4);
    int result = ML_ENOMEM;
    for (long budget = 0; result < 0; budget += BUDGET_STEP) {
        ml_make_fit fit;
        budget_begin(budget);
        result = ml_make_fit_of(s.recording, 0, UINT64_MAX, &fit);
        CHECK(result == 0 || result == ML_ENOMEM);
        ml_recording_detach(s.recording);
        CHECK_INT(budget_alive, 0);
        budget_end();
    }
    sample_end(&s);
}

int
main(void)
{
    RUN(test_layers_that_were_not_reached);
    RUN(test_a_batch_that_fits_holds_what_was_to_come);
    RUN(test_an_optimizer_that_was_noted);
    RUN(test_no_batch_is_named_where_the_rest_is_too_much);
    RUN(test_what_a_module_needs_within_it_was_run_with_it);
    RUN(test_the_smallest_set_fits);
    RUN_LONG_IN_ONE_THREAD(test_each_allocation_can_fail);
    return TEST_RESULT();
}
