/* Advice on wastes: what each rule finds in a recording put together by hand, and what a
 * trial of its edits saves. */
#include "advice_samples.h"

/* ---- Copies ---- */

/* Four parameters of 40 MiB, and COPIES times the same sizes from line 7; then a forward. */
static void
copy_parameters(unsigned copies)
{
    static const uint64_t mib[] = {4, 8, 12, 16};
    begin();
    for (unsigned i = 0; i < 4; i++) {
        sample_tag(&s, take(mib[i], line(3), 1), ML_CATEGORY_PARAMETER);
    }
    uint32_t stack = line(7);
    for (unsigned i = 0; i < 4 * copies; i++) {
        take(mib[i % 4], stack, 1);
    }
    take(10, in_module(9), 2);
}

static void
test_copies_of_the_parameters(void)
{
    copy_parameters(1);
    const ml_advice *advice = find(ML_ADVICE_MODEL_COPIED);
    CHECK(advice != NULL);
    CHECK_UINT(advices->before.peak.allocated, 90 * MIB);
    CHECK_UINT(advice->alone.peak.allocated, 50 * MIB);
    CHECK_UINT(advice->bytes, 40 * MIB);
    CHECK_UINT(advice->blocks, 4);
    CHECK_INT(line_of(advice), 7);
    end();
}

/* Layers of the same sizes, but more of them. */
static void
test_a_network_of_its_own_is_no_copy(void)
{
    copy_parameters(3);
    CHECK(find(ML_ADVICE_MODEL_COPIED) == NULL);
    end();
}

/* ---- Growth ---- */

/* COUNT blocks of line 4 from 4 MiB on, each BY larger; one goes when the next is there. */
static void
grow(unsigned count, unsigned by)
{
    begin();
    uint32_t stack = line(4);
    uint64_t mib = 4, last = take(mib, stack, 1);
    for (unsigned i = 1; i < count; i++) {
        uint64_t next = take(mib + by, stack, 1);
        give(last, mib, 0, NEVER_USED);
        mib += by;
        last = next;
    }
    give(last, mib, 0, NEVER_USED);
}

/* 20 MiB beside 16; in the end 20 do. */
static void
test_growth_by_copies(void)
{
    grow(5, 4);
    const ml_advice *advice = find(ML_ADVICE_GROWN);
    CHECK(advice != NULL);
    CHECK_UINT(advices->before.peak.allocated, 36 * MIB);
    CHECK_UINT(advice->alone.peak.allocated, 20 * MIB);
    CHECK_UINT(advice->bytes, 16 * MIB);
    CHECK_UINT(advice->count, 4);
    CHECK_INT(line_of(advice), 4);
    end();
}

static void
test_what_does_not_grow(void)
{
    grow(5, 0);
    CHECK(find(ML_ADVICE_GROWN) == NULL);
    end();
    grow(3, 4);
    CHECK(find(ML_ADVICE_GROWN) == NULL);
    end();
}

/* ---- Losses ---- */

#define OWN "/home/a/model.py"
#define LIBRARY "/opt/site-packages/of/model.py"

/* Logits of 32 MiB; their cast, its log-softmax and the gradients of both have 64.  FILE has the
 * forward that makes them. */
static void
cast_logits(const char *file, bool checkpointed)
{
    begin();
    uint32_t stack = sample_call(s.recording, line(11), file, 5, "forward", "net");
    uint64_t logits = take(32, stack, 2);
    uint64_t cast = take(64, stack, 3);
    give(logits, 32, 0, NEVER_USED);
    uint64_t result = take(64, stack, 4);
    give(cast, 64, 0, NEVER_USED);
    if (checkpointed) {
        give(result, 64, 0, NEVER_USED);
    }
    uint64_t of_loss = take_back(64, 4, "NllLossBackward0");
    uint64_t of_result = take_back(64, 3, "LogSoftmaxBackward0");
    give(of_loss, 64, ML_EVENT_BACKWARD, NEVER_USED);
    if (!checkpointed) {
        give(result, 64, ML_EVENT_BACKWARD, NEVER_USED);
    }
    uint64_t of_cast = take_back(32, 2, "ToCopyBackward0");
    give(of_result, 64, ML_EVENT_BACKWARD, NEVER_USED);
    give(of_cast, 32, ML_EVENT_BACKWARD, NEVER_USED);
}

/* Three blocks of 64 MiB at once; of 32 without the cast, of 8 in eight parts. */
static void
test_logits_in_float32(void)
{
    cast_logits(OWN, false);
    const ml_advice *advice = find(ML_ADVICE_LOGITS_FLOAT32);
    CHECK(advice != NULL);
    CHECK_UINT(advices->before.peak.allocated, 192 * MIB);
    CHECK_UINT(advice->alone.peak.allocated, 96 * MIB);
    CHECK_UINT(advice->bytes, 192 * MIB);
    advice = find(ML_ADVICE_LOSS_WHOLE);
    CHECK(advice != NULL);
    CHECK_UINT(advice->alone.peak.allocated, 24 * MIB);
    end();
}

/* The program's line leads to the library's, where the loss is to be changed. */
static void
test_a_loss_in_a_library(void)
{
    static const char *const files[] = {OWN, LIBRARY};
    for (unsigned i = 0; i < 2; i++) {
        cast_logits(files[i], false);
        const ml_advice *advice = find(ML_ADVICE_LOSS_WHOLE);
        CHECK(advice != NULL);
        CHECK_INT(advice == NULL ? 0 : line_of(advice), i == 0 ? 5 : 11);
        uint32_t model = advice == NULL ? 0 : advice->model;
        CHECK_INT(s.recording->frames[model].line, i == 0 ? 0 : 5);
        end();
    }
}

/* Its log-softmax is not saved: a checkpoint makes it anew. */
static void
test_a_loss_that_is_checkpointed(void)
{
    cast_logits(OWN, true);
    CHECK(find(ML_ADVICE_LOGITS_FLOAT32) == NULL);
    CHECK(find(ML_ADVICE_LOSS_WHOLE) == NULL);
    end();
}

/* ---- Graphs ---- */

/* A forward, line 8, of which node 1 made 20 MiB and node 2 made 30; both go behind the
 * pass, if there is one, and neither is used after its successor is made. */
static void
forward(bool pass, uint8_t flags)
{
    begin();
    uint32_t stack = in_module(8);
    take(1, line(2), 1);
    uint64_t first = take(20, stack, 2);
    uint64_t second = take(30, stack, 3);
    uint64_t third = take(40, stack, 4);
    if (pass) {
        take_back(2, 3, "MulBackward0");
        take_back(2, 1, "MulBackward0");
    }
    uint32_t since_third = pass ? 5 : 1;
    give(third, 40, 0, since_third);
    /* Last used before the segment of the next but one came. */
    give(second, 30, flags, since_third + 2);
    give(first, 20, flags, since_third + 6);
}

/* 1, 20, 30 and 40 MiB; without a graph the 20 are gone when the 40 come.  No variable
 * holds them that could be deleted. */
static void
test_a_graph_that_no_pass_runs(void)
{
    forward(false, 0);
    const ml_advice *advice = find(ML_ADVICE_GRAPH_UNUSED);
    CHECK(advice != NULL);
    CHECK_UINT(advices->before.peak.allocated, 91 * MIB);
    CHECK_UINT(advice->alone.peak.allocated, 71 * MIB);
    CHECK_INT(line_of(advice), 8);
    CHECK(find(ML_ADVICE_GRAPH_RETAINED) == NULL);
    CHECK(find(ML_ADVICE_LATE_FREES) == NULL);
    /* A variable of the forward may hold the 20 as long. */
    CHECK(advice->most && !advice->exact);
    end();
}

/* 20 and 30 MiB of a call that is over when 60 come: no variable of it holds them. */
static void
test_a_graph_that_outlives_its_call(void)
{
    begin();
    uint32_t stack = in_module(8);
    take(1, line(2), 1);
    uint64_t first = take(20, stack, 2);
    uint64_t second = take(30, stack, 3);
    uint64_t outside = take(60, line(9), 4);
    give(outside, 60, 0, 1);
    give(second, 30, 0, 5);
    give(first, 20, 0, 8);
    const ml_advice *advice = find(ML_ADVICE_GRAPH_UNUSED);
    CHECK(advice != NULL && !advice->most && advice->exact);
    CHECK_UINT(advices->before.peak.allocated, 111 * MIB);
    CHECK_UINT(advice->alone.peak.allocated, 61 * MIB);
    end();
}

/* 20 MiB go one block after their last use, while their call makes more: a variable's. */
static void
test_what_goes_within_its_call_is_no_graph(void)
{
    begin();
    uint32_t stack = in_module(8);
    uint32_t part =
        sample_call(s.recording, stack, "/home/a/model.py", 9, "part", NULL);
    take(1, line(2), 1);
    uint64_t first = take(20, stack, 2);
    uint64_t second = take(60, part, 3);
    give(first, 20, 0, 3);
    uint64_t third = take(5, part, 4);
    give(third, 5, 0, 1);
    give(second, 60, 0, 1);
    CHECK(find(ML_ADVICE_GRAPH_UNUSED) == NULL);
    end();
}

/* Another line calls the same module and trains it. */
static void
test_a_graph_is_of_the_line_that_called(void)
{
    begin();
    uint32_t stack = in_module(20);
    take(1, line(2), 1);
    uint64_t first = take(20, stack, 2);
    uint64_t second = take(30, stack, 3);
    uint64_t outside = take(60, line(9), 4);
    give(outside, 60, 0, 1);
    give(second, 30, 0, 5);
    give(first, 20, 0, 8);
    uint32_t training = in_module(30);
    s.recording->stacks[training].module = s.recording->stacks[stack].module;
    uint64_t trained = take(1, training, 5);
    take_back(1, 4, "MulBackward0");
    give(trained, 1, 0, 1);
    const ml_advice *advice = find(ML_ADVICE_GRAPH_UNUSED);
    CHECK(advice != NULL);
    CHECK_INT(advice == NULL ? 0 : line_of(advice), 20);
    end();
}

static void
test_a_graph_that_a_pass_retains(void)
{
    forward(true, 0);
    CHECK(find(ML_ADVICE_GRAPH_RETAINED) != NULL);
    CHECK(find(ML_ADVICE_GRAPH_UNUSED) == NULL);
    end();
}

/* Each of eight steps leaves 20 MiB of line 8, and its pass has nothing to free: a list keeps
 * what it would have freed, until the program ends. */
static void
test_a_list_is_no_graph(void)
{
    begin();
    uint32_t stack = in_module(8);
    uint32_t of_loss = line(9);
    uint64_t kept[8];
    size_t used[8];
    for (uint64_t i = 0; i < 8; i++) {
        kept[i] = take(20, stack, 2 * i + 2);
        uint64_t loss = take(1, of_loss, 2 * i + 3);
        used[i] = s.device.event_count;
        uint64_t gradient = take_back(2, 2 * i + 2, "MulBackward0");
        give(gradient, 2, ML_EVENT_BACKWARD, 1);
        give(loss, 1, 0, 1);
    }
    for (size_t i = 0; i < 8; i++) {
        uint64_t since = s.device.event_count - used[i] + 1;
        give(kept[i], 20, 0, (uint32_t)since);
    }
    CHECK(find(ML_ADVICE_GRAPH_RETAINED) == NULL);
    CHECK(find(ML_ADVICE_GRAPH_UNUSED) == NULL);
    /* The peak is in the last backward pass: there each was used for the last time before, that
     * of the step itself too. */
    const ml_advice *left = find(ML_ADVICE_STEPS_KEPT);
    CHECK(left != NULL && left->exact);
    CHECK_INT(line_of(left), 5);
    CHECK_INT(left->count, 8);
    CHECK_INT(left->blocks, 8);
    CHECK(find(ML_ADVICE_LATE_FREES) == NULL);
    end();
}

/* The same without last uses: each ends with its step. */
static void
test_a_list_without_last_uses(void)
{
    begin();
    uint32_t stack = in_module(8);
    uint32_t of_loss = line(9);
    for (uint64_t i = 0; i < 8; i++) {
        take(20, stack, 2 * i + 2);
        uint64_t loss = take(1, of_loss, 2 * i + 3);
        uint64_t gradient = take_back(2, 2 * i + 2, "MulBackward0");
        give(gradient, 2, ML_EVENT_BACKWARD, 0);
        give(loss, 1, 0, 0);
    }
    const ml_advice *left = find(ML_ADVICE_STEPS_KEPT);
    CHECK(left != NULL && !left->exact);
    CHECK_INT(line_of(left), 5);
    CHECK_INT(left->blocks, 7);
    CHECK(find(ML_ADVICE_LATE_FREES) == NULL);
    end();
}

static void
test_a_graph_that_a_pass_frees(void)
{
    forward(true, ML_EVENT_BACKWARD);
    CHECK(find(ML_ADVICE_GRAPH_RETAINED) == NULL);
    CHECK(find(ML_ADVICE_GRAPH_UNUSED) == NULL);
    /* The program frees the third. */
    const ml_advice *late = find(ML_ADVICE_LATE_FREES);
    CHECK(late != NULL && late->count == 1);
    end();
}

/* A forward whose last request fails: no pass is missing, and a call that is over could
 * be run again. */
static void
test_a_forward_that_runs_out_of_memory(void)
{
    begin();
    take(1, line(2), 1);
    uint32_t stacks[2];
    for (unsigned i = 0; i < 2; i++) {
        stacks[i] = sample_call(s.recording, line(8), "/home/a/model.py", 5, "forward",
                                i == 0 ? "layers.0" : "layers.1");
    }
    uint64_t saved = take(20, stacks[0], 2);
    take(30, stacks[0], 3);
    take(10, stacks[1], 4);
    event_in(ML_ACTION_OOM, 0, 40 * MIB, stacks[1])->sequence = 5;
    give(saved, 20, 0, 6);
    const ml_advice *advice = find(ML_ADVICE_CHECKPOINT);
    CHECK(advice != NULL && advices->failed);
    CHECK_UINT(advices->before.peak.allocated, 101 * MIB);
    CHECK_UINT(advice->alone.peak.allocated, 81 * MIB);
    CHECK(find(ML_ADVICE_GRAPH_UNUSED) == NULL);
    CHECK(find(ML_ADVICE_LATE_FREES) == NULL);
    end();
}

/* ---- Fragmentation ---- */

/* Five times 40 MiB come and go, and 21 MiB of STACK come to stay in their place. */
static void
stay_between(uint32_t stack)
{
    for (unsigned i = 0; i < 5; i++) {
        uint64_t addr = take(40, 0, 1);
        give(addr, 40, 0, NEVER_USED);
        event_in(ML_ACTION_ALLOC, addr, 21 * MIB, stack)->sequence = 1;
    }
}

static void
test_lines_that_keep_segments(void)
{
    begin();
    stay_between(line(7));
    const ml_advice *advice = find(ML_ADVICE_FRAGMENTATION);
    CHECK(advice != NULL);
    CHECK_INT(line_of(advice), 7);
    end();
}

/* Its sizes and its moment are those of its inputs. */
static void
test_a_module_makes_its_outputs_when_it_is_called(void)
{
    begin();
    stay_between(in_module(7));
    CHECK(find(ML_ADVICE_FRAGMENTATION) == NULL);
    end();
}

/* ---- Memory ---- */

/* Something for every rule. */
static void
waste_everything(void)
{
    cast_logits(OWN, false);
    sample_tag(&s, take(4, line(3), 9), ML_CATEGORY_PARAMETER);
    uint32_t stack = line(7);
    uint64_t last = take(8, stack, 9);
    for (uint64_t mib = 9; mib < 14; mib++) {
        uint64_t next = take(mib, stack, 9);
        give(last, mib - 1, 0, NEVER_USED);
        last = next;
    }
    uint64_t held = take(90, in_module(8), 20);
    take(90, in_module(8), 21);
    give(held, 90, 0, 3);
    uint32_t step = sample_call(s.recording, line(12), "/x/torch/optim/adam.py", 99,
                                "_multi_tensor_adam", NULL);
    give(take(50, step, 22), 50, 0, NEVER_USED);
}

static void
test_each_allocation_can_fail(void)
{
    waste_everything();
    check_that_allocations_can_fail();
    sample_end(&s);
}

int
main(void)
{
    RUN(test_copies_of_the_parameters);
    RUN(test_a_network_of_its_own_is_no_copy);
    RUN(test_growth_by_copies);
    RUN(test_what_does_not_grow);
    RUN(test_logits_in_float32);
    RUN(test_a_loss_in_a_library);
    RUN(test_a_loss_that_is_checkpointed);
    RUN(test_a_graph_that_no_pass_runs);
    RUN(test_a_graph_that_outlives_its_call);
    RUN(test_what_goes_within_its_call_is_no_graph);
    RUN(test_a_graph_is_of_the_line_that_called);
    RUN(test_a_graph_that_a_pass_retains);
    RUN(test_a_list_is_no_graph);
    RUN(test_a_list_without_last_uses);
    RUN(test_a_graph_that_a_pass_frees);
    RUN(test_a_forward_that_runs_out_of_memory);
    RUN(test_lines_that_keep_segments);
    RUN(test_a_module_makes_its_outputs_when_it_is_called);
    RUN_LONG_IN_ONE_THREAD(test_each_allocation_can_fail);
    return TEST_RESULT();
}
