/* Stages of recordings put together by hand: training, evaluation, generation, and what is
 * too short to tell. */
#include "analysis/answers/stages.h"

#include "base/base.h"
#include "budget.h"
#include "recording_samples.h"
#include "test.h"

#define BASE UINT64_C(0x7f0000000000)

static sample s;

static void
take_bytes(uint64_t bytes, uint32_t stack, uint64_t sequence)
{
    uint64_t addr = BASE + s.device.event_count * UINT64_C(4096);
    ml_event *event = sample_event(&s, ML_ACTION_ALLOC, addr, bytes, stack);
    event->block_bytes = event->size;
    event->autograd_thread = 1;
    event->sequence = sequence;
}

static void
take(uint32_t stack, uint64_t sequence, uint8_t flags)
{
    take_bytes(4096, stack, sequence);
    s.events[s.device.event_count - 1].flags = flags;
}

/* Four allocations, the first with the number FIRST, each next one by STEP more. */
static void
take_four(uint32_t stack, uint64_t first, uint64_t step)
{
    for (uint64_t i = 0; i < 4; i++) {
        take(stack, first + i * step, 0);
    }
}

/* A parameter, a forward and its backward, then forwards that make no node: in a loop of
 * the program's, below generate(), and one of three allocations only. */
static void
train_and_look(void)
{
    sample_begin(&s);
    s.recording->rules.has_segments = 0;
    uint32_t main = sample_call(s.recording, 0, "/home/a/train.py", 9, "main", NULL);
    uint32_t layer =
        sample_call(s.recording, main, "/home/a/model.py", 5, "forward", "layer");
    uint32_t writer =
        sample_call(s.recording, main, "/home/a/train.py", 20, "generate", NULL);
    uint32_t written =
        sample_call(s.recording, writer, "/home/a/model.py", 5, "forward", "layer");
    take(main, 1, 0);
    take_four(layer, 1, 1);
    take(0, 4, ML_EVENT_BACKWARD);
    take(main, 4, 0);
    take_four(layer, 4, 0);
    take(main, 4, 0);
    take_four(written, 4, 0);
    take(main, 4, 0);
    take(layer, 4, 0);
    take(layer, 4, 0);
    take(layer, 4, 0);
}

/* Checks the stages of COUNT events from FIRST on, and ends the sample. */
static void
check_stages(size_t first, size_t count, unsigned want)
{
    const ml_analysis *analysis;
    uint8_t *stages = NULL;
    CHECK_INT(ml_analysis_of(s.recording, 0, &analysis), 0);
    CHECK_INT(ml_stages_new(analysis, &stages), 0);
    for (size_t i = first; stages != NULL && i < first + count; i++) {
        CHECK_STR(ml_stage_text(stages[i]), ml_stage_text(want));
    }
    ml_free(stages);
    sample_end(&s);
}

/* A parameter of 3000 bytes, of which autocast casts 1500. */
static uint32_t
begin_with_parameter(void)
{
    sample_begin(&s);
    s.recording->rules.has_segments = 0;
    uint32_t main = sample_call(s.recording, 0, "/home/a/train.py", 9, "main", NULL);
    take_bytes(3000, main, 1);
    sample_tag(&s, BASE, ML_CATEGORY_PARAMETER);
    return main;
}

/* A cast is a node, also without gradients; two with it are not. */
static void
test_casts_of_an_evaluation(void)
{
    for (uint64_t nodes = 1; nodes <= 2; nodes++) {
        uint32_t main = begin_with_parameter();
        uint32_t layer =
            sample_call(s.recording, main, "/home/a/model.py", 5, "forward", "layer");
        take(layer, 1, 0);
        take_bytes(1500, layer, 1 + nodes);
        take(layer, 1 + nodes, 0);
        take_bytes(1500, layer, 1 + 2 * nodes);
        check_stages(1, 4, nodes == 1 ? ML_STAGE_EVALUATION : ML_STAGE_FORWARD);
    }
}

/* Each checkpoint makes a node; with a cast at its start that are two.  In a forward that
 * trains its layer makes more. */
static void
test_checkpoints_of_an_evaluation(void)
{
    for (uint64_t more = 0; more <= 1; more++) {
        uint32_t main = begin_with_parameter();
        uint32_t model =
            sample_call(s.recording, main, "/home/a/model.py", 5, "forward", "model");
        uint32_t checkpoint = sample_call(
            s.recording, model, "/x/torch/utils/checkpoint.py", 9, "checkpoint", NULL);
        uint32_t first = sample_call(s.recording, checkpoint, "/home/a/model.py", 8,
                                     "forward", "model.0");
        uint32_t second = sample_call(s.recording, checkpoint, "/home/a/model.py", 8,
                                      "forward", "model.1");
        take(model, 1, 0);
        take(first, 2 + more, 0);
        take(first, 2 + more, 0);
        take_bytes(1500, second, 4 + more);
        check_stages(1, 4, more == 0 ? ML_STAGE_EVALUATION : ML_STAGE_FORWARD);
    }
}

/* Nothing is allocated between an evaluation in a function of its own and the next forward. */
static void
test_an_evaluation_right_before_a_forward(void)
{
    uint32_t main = begin_with_parameter();
    uint32_t evaluate =
        sample_call(s.recording, main, "/home/a/train.py", 20, "evaluate", NULL);
    take_four(
        sample_call(s.recording, evaluate, "/home/a/model.py", 5, "forward", "layer"),
        1, 0);
    take_four(sample_call(s.recording, main, "/home/a/model.py", 5, "forward", "layer"),
              2, 1);
    check_stages(1, 4, ML_STAGE_EVALUATION);
}

static void
test_stages_of_a_run(void)
{
    static const uint8_t want[] = {
        ML_STAGE_LOADING,    ML_STAGE_FORWARD,    ML_STAGE_FORWARD,
        ML_STAGE_FORWARD,    ML_STAGE_FORWARD,    ML_STAGE_BACKWARD,
        ML_STAGE_OTHER,      ML_STAGE_EVALUATION, ML_STAGE_EVALUATION,
        ML_STAGE_EVALUATION, ML_STAGE_EVALUATION, ML_STAGE_OTHER,
        ML_STAGE_GENERATION, ML_STAGE_GENERATION, ML_STAGE_GENERATION,
        ML_STAGE_GENERATION, ML_STAGE_OTHER,      ML_STAGE_FORWARD,
        ML_STAGE_FORWARD,    ML_STAGE_FORWARD,
    };
    train_and_look();
    const ml_analysis *analysis;
    uint8_t *stages = NULL;
    CHECK_INT(ml_analysis_of(s.recording, 0, &analysis), 0);
    CHECK_INT(ml_stages_new(analysis, &stages), 0);
    CHECK_UINT(s.device.event_count, sizeof(want));
    for (size_t i = 0; i < sizeof(want); i++) {
        CHECK_STR(ml_stage_text(stages[i]), ml_stage_text(want[i]));
    }
    ml_free(stages);
    sample_end(&s);
}

/* One block of a loss, and what the next, which fails, gives back: too short to tell. */
static void
test_a_request_that_fails_is_no_evaluation(void)
{
    sample_begin(&s);
    s.recording->rules.has_segments = 0;
    uint32_t main = sample_call(s.recording, 0, "/home/a/train.py", 9, "main", NULL);
    uint32_t layer =
        sample_call(s.recording, main, "/home/a/model.py", 5, "forward", "layer");
    take_four(layer, 1, 1);
    take(0, 4, ML_EVENT_BACKWARD);
    take(main, 4, 0);
    take(layer, 4, 0);
    static const uint8_t actions[] = {ML_ACTION_SEGMENT_FREE, ML_ACTION_OOM,
                                      ML_ACTION_FREE_REQUESTED,
                                      ML_ACTION_FREE_COMPLETED};
    for (int i = 0; i < 4; i++) {
        ml_event *event = sample_event(&s, actions[i], BASE, 4096, layer);
        event->autograd_thread = 1;
        event->sequence = 4;
    }
    check_stages(6, 5, ML_STAGE_FORWARD);
}

/* Four events with one number, all of the first layer; the request of the second, which fails, has
 * the next: its node was made. */
static void
test_a_request_that_fails_tells_of_its_node(void)
{
    for (uint64_t nodes = 0; nodes <= 1; nodes++) {
        sample_begin(&s);
        s.recording->rules.has_segments = 0;
        uint32_t layer =
            sample_call(s.recording, 0, "/home/a/model.py", 5, "forward", "layer");
        take_four(layer, 1, 0);
        ml_event *event = sample_event(&s, ML_ACTION_OOM, BASE, 4096, layer);
        event->autograd_thread = 1;
        event->sequence = 1 + nodes;
        check_stages(0, 5, nodes == 0 ? ML_STAGE_EVALUATION : ML_STAGE_FORWARD);
    }
}

static void
test_memory_failures(void)
{
    train_and_look();
    const ml_analysis *analysis;
    CHECK_INT(ml_analysis_of(s.recording, 0, &analysis), 0);
    int result = ML_ENOMEM;
    long tries = 0;
    for (; result == ML_ENOMEM && tries < 20; tries++) {
        uint8_t *stages = NULL;
        budget_begin(tries);
        result = ml_stages_new(analysis, &stages);
        ml_free(stages);
        budget_end();
        CHECK_INT(budget_alive, 0);
    }
    CHECK_INT(result, 0);
    CHECK(tries > 3);
    sample_end(&s);
}

int
main(void)
{
    RUN(test_stages_of_a_run);
    RUN(test_casts_of_an_evaluation);
    RUN(test_checkpoints_of_an_evaluation);
    RUN(test_an_evaluation_right_before_a_forward);
    RUN(test_a_request_that_fails_is_no_evaluation);
    RUN(test_a_request_that_fails_tells_of_its_node);
    RUN(test_memory_failures);
    return TEST_RESULT();
}
