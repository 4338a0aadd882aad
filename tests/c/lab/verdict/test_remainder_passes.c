/* What a pass leaves for the next, passes of other sizes, modules that are unlike, and what a
 * checkpoint makes again: from recordings put together by hand. */
#include "lab/verdict/remainder.h"

#include "base/base.h"
#include "budget.h"
#include "lab/verdict/make_fit.h"
#include "recording_samples.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)

static sample s;
static uint64_t next_addr;
static const char *const layers[] = {"layers.0", "layers.1", "layers.2", "layers.3"};

/* ---- Recordings: each block has a segment of its own ---- */

static void
begin(void)
{
    sample_begin(&s);
    next_addr = UINT64_C(1) << 40;
}

static ml_event *
event_in(enum ml_action action, uint64_t addr, uint64_t size, uint32_t stack)
{
    ml_event *event = sample_event(&s, action, addr, size, stack);
    event->autograd_thread = 1;
    event->sequence = s.device.event_count;
    return event;
}

static uint64_t
take(uint64_t mib, uint32_t stack, uint8_t flags)
{
    uint64_t addr = next_addr;
    next_addr += UINT64_C(1) << 32;
    event_in(ML_ACTION_SEGMENT_ALLOC, addr, mib * MIB, stack)->flags = flags;
    event_in(ML_ACTION_ALLOC, addr, mib * MIB, stack)->flags = flags;
    return addr;
}

static void
give(uint64_t addr, uint64_t mib, uint8_t flags)
{
    event_in(ML_ACTION_FREE_REQUESTED, addr, mib * MIB, 0)->flags = flags;
    event_in(ML_ACTION_FREE_COMPLETED, addr, mib * MIB, 0)->flags = flags;
}

static uint32_t
in_function(const char *file, const char *name, const char *module)
{
    return sample_call(s.recording, 0, file, 5, name, module);
}

static uint32_t
in_module(const char *path)
{
    return in_function("/home/a/model.py", "forward", path);
}

/* Before any module's call. */
static void
load(uint64_t mib)
{
    take(mib, 0, 0);
    for (size_t i = s.device.event_count - 2; i < s.device.event_count; i++) {
        s.events[i].autograd_thread = 0;
        s.events[i].sequence = 0;
    }
}

static void
parameter(const char *module, uint64_t mib)
{
    uint64_t addr = take(mib, 0, 0);
    uint32_t stack = in_module(module);
    sample_tag(&s, addr, ML_CATEGORY_PARAMETER);
    s.tags[s.device.tag_count - 1].module = s.recording->stacks[stack].module;
}

static void
note(enum ml_note_kind kind, const char *name, uint64_t a, uint64_t b)
{
    s.notes[s.recording->note_count++] =
        (ml_note){.kind = (uint8_t)kind,
                  .time = SAMPLE_TIME(&s) + 1,
                  .device = -1,
                  .values = {a, b},
                  .name = sample_string(s.recording, name)};
}

/* Each of COUNT layers keeps MIB_EACH; then memory ends in the next, at TOTAL. */
static void
run_out(unsigned count, uint64_t mib_each, uint64_t left)
{
    for (unsigned i = 0; i < count; i++) {
        take(mib_each, in_module(layers[i]), 0);
    }
    event_in(ML_ACTION_OOM, left * MIB, mib_each * MIB, in_module(layers[count]));
}

static void
find(ml_remainder *remainder, ml_advice_case *it, bool much)
{
    CHECK_INT(ml_advice_case_init(it, s.recording, 0), 0);
    CHECK_INT(ml_remainder_init(remainder, it, much), 0);
}

static void
end(ml_remainder *remainder, ml_advice_case *it)
{
    ml_remainder_fini(remainder);
    ml_advice_case_fini(it);
}

/* ---- The loop ---- */

static void
fit_with_gradients(uint64_t live, ml_make_fit *fit)
{
    begin();
    for (unsigned i = 0; i < 4; i++) {
        parameter(layers[i], 20);
    }
    run_out(2, 100, 20);
    note(ML_NOTE_OPTIMIZER, "SGD", 0, 80 * MIB);
    note(ML_NOTE_LOOP, "", live, ML_LOOP_NO);
    CHECK_INT(ml_make_fit_of(s.recording, 0, UINT64_MAX, fit), 0);
    sample_end(&s);
}

/* Of 300 MiB parameters take 80. Gradients that live while the next forward runs take 80
 * more from its activations, with little and with much assumed. */
static void
test_gradients_that_live_take_their_part(void)
{
    ml_make_fit go, live, unknown;
    fit_with_gradients(ML_LOOP_NO, &go);
    fit_with_gradients(ML_LOOP_YES, &live);
    fit_with_gradients(ML_LOOP_UNKNOWN, &unknown);
    CHECK(live.batch_safe < go.batch_safe);
    CHECK(live.batch_most < go.batch_most);
    CHECK_UINT(unknown.batch_safe, live.batch_safe);
    CHECK_UINT(unknown.batch_most, go.batch_most);
}

/* What a batch of 9 does not divide does not grow with it; what it does may. */
static void
test_a_batch_divides_what_it_makes(void)
{
    begin();
    load(100);
    load(90);
    run_out(1, 90, 10);
    note(ML_NOTE_BATCH, "--batch", 9, 0);
    ml_advice_case it;
    ml_remainder little;
    find(&little, &it, false);
    CHECK(!little.items[0].scales);
    CHECK(little.items[1].scales);
    end(&little, &it);
    sample_end(&s);
}

/* ---- Passes of other sizes ---- */

/* Three layers of 10 MiB each, forward and backward; then twice as much in each, of which the
 * third does not come. */
static void
test_a_pass_of_another_size(void)
{
    uint64_t kept[3];
    uint32_t stacks[3];
    begin();
    for (unsigned i = 0; i < 3; i++) {
        parameter(layers[i], 4);
        stacks[i] = in_module(layers[i]);
    }
    for (unsigned i = 0; i < 3; i++) {
        kept[i] = take(10, stacks[i], 0);
    }
    for (unsigned i = 3; i > 0; i--) {
        give(take(10, 0, ML_EVENT_BACKWARD), 10, ML_EVENT_BACKWARD);
        give(kept[i - 1], 10, ML_EVENT_BACKWARD);
    }
    take(20, stacks[0], 0);
    event_in(ML_ACTION_OOM, 5 * MIB, 20 * MIB, stacks[1]);
    ml_advice_case it;
    ml_remainder little;
    find(&little, &it, false);
    CHECK_UINT(little.untold, 0);
    /* The third layer, twice as large. */
    CHECK_UINT(little.forward, 20 * MIB);
    end(&little, &it);
    /* Much: with a backward pass of three blocks as large. */
    ml_remainder much;
    find(&much, &it, true);
    CHECK_UINT(much.forward, 80 * MIB);
    end(&much, &it);
    sample_end(&s);
}

/* The same in other modules is no pass of another size. */
static void
test_a_pass_of_other_modules(void)
{
    uint64_t kept[2];
    begin();
    parameter(layers[0], 4);
    for (unsigned i = 0; i < 2; i++) {
        kept[i] = take(10, in_module(layers[i]), 0);
    }
    for (unsigned i = 2; i > 0; i--) {
        give(take(10, 0, ML_EVENT_BACKWARD), 10, ML_EVENT_BACKWARD);
        give(kept[i - 1], 10, ML_EVENT_BACKWARD);
    }
    take(20, in_module("head"), 0);
    event_in(ML_ACTION_OOM, 5 * MIB, 20 * MIB, in_module("tail"));
    ml_advice_case it;
    ml_remainder little;
    find(&little, &it, false);
    CHECK_UINT(little.untold, 1u << ML_UNTOLD_SIZES);
    end(&little, &it);
    sample_end(&s);
}

/* ---- Modules ---- */

static void
test_modules_with_other_parameters_are_not_alike(void)
{
    begin();
    parameter(layers[0], 10);
    parameter(layers[1], 20);
    parameter(layers[2], 40);
    run_out(1, 90, 10);
    ml_make_fit fit;
    CHECK_INT(ml_make_fit_of(s.recording, 0, UINT64_MAX, &fit), 0);
    CHECK_UINT(fit.untold, 1u << ML_UNTOLD_MODULES);
    sample_end(&s);
}

/* ---- Checkpoints ---- */

static unsigned
count_brief(const ml_remainder *remainder, uint64_t mib)
{
    unsigned count = 0;
    for (size_t i = remainder->recorded; i < remainder->workload->count; i++) {
        count += remainder->items[i].kind == ML_REST_BRIEF &&
                 remainder->workload->demands[i].bytes == mib * MIB;
    }
    return count;
}

/* A checkpointed layer: linear (70 MiB), relu (60), dropout (50), linear (20), of which it
 * keeps the last.  Made again, relu keeps its result and the second linear its input; nobody
 * keeps what the relu reads. */
static void
checkpointed(void)
{
    static const char *const files[] = {
        "/torch/nn/modules/linear.py", "/torch/nn/functional.py",
        "/torch/nn/functional.py", "/torch/nn/modules/linear.py"};
    static const char *const names[] = {"forward", "relu", "dropout", "forward"};
    static const char *const modules[] = {"layers.0.first", "layers.0", "layers.0.drop",
                                          "layers.0.second"};
    static const uint64_t sizes[] = {70, 60, 50, 20};
    uint64_t addr[4];
    begin();
    parameter(layers[0], 4);
    parameter(layers[1], 4);
    for (unsigned i = 0; i < 4; i++) {
        addr[i] = take(sizes[i], in_function(files[i], names[i], modules[i]), 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        give(addr[i], sizes[i], 0);
    }
    event_in(ML_ACTION_OOM, 5 * MIB, 64 * MIB,
             in_function(files[0], names[0], "layers.1.first"));
}

static void
test_a_checkpoint_makes_again_what_is_kept(void)
{
    checkpointed();
    ml_advice_case it;
    ml_remainder much;
    find(&much, &it, true);
    CHECK_UINT(much.untold, 0);
    /* In the next pass's forward alone; the others in two layers', and as often as a
     * backward pass makes them again. */
    CHECK_UINT(count_brief(&much, 70), 1);
    CHECK_UINT(count_brief(&much, 60), 4);
    CHECK_UINT(count_brief(&much, 50), 4);
    end(&much, &it);
    /* Little: half of what is perhaps kept. */
    ml_remainder little;
    find(&little, &it, false);
    CHECK_UINT(count_brief(&little, 60), 4);
    CHECK_UINT(count_brief(&little, 10), 2);
    end(&little, &it);
    sample_end(&s);
}

static void
test_each_allocation_can_fail(void)
{
    checkpointed();
    int result = ML_ENOMEM;
    for (long budget = 0; result < 0; budget++) {
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
    RUN(test_gradients_that_live_take_their_part);
    RUN(test_a_batch_divides_what_it_makes);
    RUN(test_a_pass_of_another_size);
    RUN(test_a_pass_of_other_modules);
    RUN(test_modules_with_other_parameters_are_not_alike);
    RUN(test_a_checkpoint_makes_again_what_is_kept);
    RUN_LONG_IN_ONE_THREAD(test_each_allocation_can_fail);
    return TEST_RESULT();
}
