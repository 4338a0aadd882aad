/* The lines of stacks, of recordings worked out by hand. */
#include "analysis/answers/stack_lines.h"

#include <stdlib.h>

#include "budget.h"
#include "recording_samples.h"
#include "test.h"

#define BASE UINT64_C(0x7f0000000000)
#define TORCH "/v/site-packages/torch/"

typedef struct fixture {
    sample made;
    ml_peak *peak;
    ml_stack_lines all;
} fixture;

/* Without segments: a block has the bytes that were asked for. */
static void
set_up(fixture *f)
{
    memset(f, 0, sizeof(*f));
    sample_begin(&f->made);
    f->made.recording->rules.has_segments = 0;
}

static void
forget(fixture *f)
{
    ml_stack_lines_fini(&f->all);
    ml_peak_free(f->peak);
    f->peak = NULL;
}

static void
tear_down(fixture *f)
{
    forget(f);
    sample_end(&f->made);
}

static uint32_t
call(fixture *f, uint32_t caller, const char *file, int64_t line, const char *name)
{
    return sample_call(f->made.recording, caller, file, line, name, NULL);
}

static ml_event *
add(fixture *f, enum ml_action action, unsigned block, uint64_t size, uint32_t stack)
{
    return sample_event(&f->made, action, BASE + block * UINT64_C(65536), size, stack);
}

static void
alloc(fixture *f, unsigned block, uint64_t size, uint32_t stack)
{
    add(f, ML_ACTION_ALLOC, block, size, stack);
}

static void
free_block(fixture *f, unsigned block, uint64_t size, uint32_t stack)
{
    add(f, ML_ACTION_FREE_REQUESTED, block, size, stack);
    add(f, ML_ACTION_FREE_COMPLETED, block, size, stack);
}

/* What is left at the end, as a snapshot has it. */
static void
leave(fixture *f, unsigned block, uint64_t size, uint32_t stack)
{
    size_t at = f->made.device.block_count;
    f->made.segments[at] = (ml_segment){.addr = BASE + block * UINT64_C(65536),
                                        .total = size,
                                        .first_block = at,
                                        .block_count = 1};
    f->made.blocks[at] = (ml_block){.addr = f->made.segments[at].addr,
                                    .size = size,
                                    .requested = size,
                                    .stack = stack,
                                    .state = ML_BLOCK_ALLOCATED};
    f->made.device.block_count = f->made.device.segment_count = at + 1;
}

static void
work_out(fixture *f)
{
    forget(f);
    ml_recording_detach(f->made.recording);
    CHECK_INT(ml_recording_validate(f->made.recording), 0);
    CHECK_INT(ml_peak_new(f->made.recording, 0, &f->peak), 0);
    CHECK_INT(ml_stack_lines_init(&f->all, f->made.recording, 0, f->peak), 0);
}

/* "file:line function at_peak+backward peak allocated left allocations" of all lines. */
static const char *
told(const fixture *f)
{
    static char text[2048];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < f->all.count; i++) {
        const ml_stack_line *l = &f->all.lines[i];
        const ml_stack_line_figures *n = &l->figures;
        int length = snprintf(
            text + used, sizeof(text) - used, "%.*s:%d %.*s %d+%d %d %d %d %d\n",
            (int)l->file.length, l->file.bytes, (int)l->line, (int)l->function.length,
            l->function.bytes, (int)n->at_peak, (int)n->backward, (int)n->peak,
            (int)n->allocated, (int)n->left, (int)n->allocations);
        used += (size_t)length;
    }
    return text;
}

/* What is allocated counts at the line and at those that called it.
 *
 *   event                   allocated after it
 *   0 A 1000 in forward        1000
 *   1 B 2000 in step           3000
 *   2 C  500 in forward        3500   the peak
 *   3,4 B freed                1500
 *   5 D  700 in step           2200
 *   6 E  300 in step           2500
 *   7 E waits to be freed      2200 */
static void
test_lines_and_what_they_call(void)
{
    static fixture f;
    set_up(&f);
    uint32_t main = call(&f, 0, "train.py", 10, "main");
    uint32_t step = call(&f, main, "train.py", 20, "step");
    uint32_t forward = call(&f, step, "model.py", 5, "forward");
    uint32_t later = call(&f, main, "train.py", 21, "step");
    alloc(&f, 0, 1000, forward);
    alloc(&f, 1, 2000, later);
    alloc(&f, 2, 500, forward);
    free_block(&f, 1, 2000, main);
    alloc(&f, 1, 700, later);
    alloc(&f, 3, 300, later);
    add(&f, ML_ACTION_FREE_REQUESTED, 3, 300, main);
    work_out(&f);
    CHECK_STR(told(&f), "model.py:5 forward 1500+0 3500 1500 1500 2\n"
                        "train.py:10 main 3500+0 3500 4500 2200 5\n"
                        "train.py:20 step 1500+0 3500 1500 1500 2\n"
                        "train.py:21 step 2000+0 3000 3000 700 3\n");
    CHECK_INT(f.all.lines[0].place, ML_PLACE_USER);
    tear_down(&f);
}

/* A line that is in a stack several times counts it once. */
static void
test_recursion(void)
{
    static fixture f;
    set_up(&f);
    uint32_t main = call(&f, 0, "train.py", 1, "main");
    uint32_t once = call(&f, main, "tree.py", 3, "walk");
    uint32_t twice = call(&f, once, "tree.py", 3, "walk");
    uint32_t leaf = call(&f, twice, "tree.py", 4, "walk");
    uint32_t visit = call(&f, once, "tree.py", 9, "visit");
    uint32_t back = call(&f, visit, "tree.py", 3, "walk");
    alloc(&f, 0, 1, once);
    alloc(&f, 1, 10, leaf);
    alloc(&f, 2, 100, back);
    alloc(&f, 3, 1000, twice);
    work_out(&f);
    CHECK_STR(told(&f), "train.py:1 main 1111+0 1111 1111 1111 4\n"
                        "tree.py:9 visit 100+0 111 100 100 1\n"
                        "tree.py:3 walk 1111+0 1111 1111 1111 4\n"
                        "tree.py:4 walk 10+0 11 10 10 1\n");
    tear_down(&f);
}

/* File, function and line together are a line; frames that say the same are one. */
static void
test_which_lines_are_one(void)
{
    static fixture f;
    set_up(&f);
    alloc(&f, 0, 1, call(&f, 0, "a.py", 5, "forward"));
    alloc(&f, 1, 10, call(&f, 0, "b.py", 5, "forward"));
    alloc(&f, 2, 100, call(&f, 0, "a.py", 5, "<lambda>"));
    alloc(&f, 3, 1000, call(&f, 0, "a.py", 5, "forward"));
    alloc(&f, 4, 10000, call(&f, 0, "a.py", 0, "forward"));
    work_out(&f);
    CHECK_STR(told(&f), "a.py:5 <lambda> 100+0 111 100 100 1\n"
                        "a.py:0 forward 10000+0 11111 10000 10000 1\n"
                        "a.py:5 forward 1001+0 1111 1001 1001 2\n"
                        "b.py:5 forward 10+0 11 10 10 1\n");
    tear_down(&f);
}

static void
test_whose_lines(void)
{
    static fixture f;
    set_up(&f);
    uint32_t mine = call(&f, 0, "train.py", 1, "main");
    uint32_t package = call(&f, mine, "/v/site-packages/transformers/m.py", 2, "call");
    uint32_t library = call(&f, package, TORCH "nn/functional.py", 3, "relu");
    alloc(&f, 0, 8, call(&f, library, "/src/c10/alloc.cpp", 4, "malloc"));
    work_out(&f);
    CHECK_UINT(f.all.count, 3);
    CHECK_INT(f.all.lines[0].place, ML_PLACE_LIBRARY);
    CHECK_INT(f.all.lines[1].place, ML_PLACE_PACKAGE);
    CHECK_INT(f.all.lines[2].place, ML_PLACE_USER);
    CHECK_UINT(f.all.lines[2].figures.allocated, 8);
    tear_down(&f);
}

/* Without stacks there are no lines; the totals behind `peak` count such events too. */
static void
test_events_without_stacks(void)
{
    static fixture f;
    set_up(&f);
    work_out(&f);
    CHECK_UINT(f.all.count, 0);
    alloc(&f, 0, 1000, 0);
    work_out(&f);
    CHECK_UINT(f.all.count, 0);
    uint32_t main = call(&f, 0, "train.py", 1, "main");
    free_block(&f, 0, 1000, main);
    work_out(&f);
    CHECK_UINT(f.all.count, 0); /* a free is no line's */
    alloc(&f, 0, 1000, 0);
    alloc(&f, 1, 10, main);
    work_out(&f);
    CHECK_STR(told(&f), "train.py:1 main 10+0 1010 10 10 1\n");
    tear_down(&f);
}

/* Older events were overwritten: what they allocated is live at the peak, as far as the
 * memory at the end still has its stack, and counts nowhere else. */
static void
test_memory_from_before_the_events(void)
{
    static fixture f;
    set_up(&f);
    uint32_t load = call(&f, 0, "train.py", 1, "load");
    uint32_t step = call(&f, 0, "train.py", 2, "step");
    alloc(&f, 2, 50, step);
    free_block(&f, 1, 300, step);
    leave(&f, 0, 4000, load);
    leave(&f, 2, 50, step);
    f.made.events[1].origin_stack = load;
    f.made.events[2].origin_stack = load;
    f.made.device.overwritten_events = 2;
    work_out(&f);
    CHECK_UINT(f.peak->totals.allocated, 4350);
    CHECK_STR(told(&f), "train.py:1 load 4300+0 0 0 0 0\n"
                        "train.py:2 step 50+0 4350 50 50 1\n");
    tear_down(&f);
}

static ml_event *
add_of_thread(fixture *f, unsigned block, uint64_t size, uint32_t stack,
              uint64_t number, uint8_t flags)
{
    ml_event *event = add(f, ML_ACTION_ALLOC, block, size, stack);
    event->autograd_thread = 1;
    event->sequence = number;
    event->flags = flags;
    return event;
}

#define BACKWARD ((uint8_t)ML_EVENT_BACKWARD)

/* By autograd's thread, which has no frames: at the lines of the forward. */
static void
test_backward(void)
{
    static fixture f;
    set_up(&f);
    uint32_t type =
        sample_string(f.made.recording, "N5torch8autograd9generated11MmBackward0E");
    uint32_t main = call(&f, 0, "train.py", 10, "main");
    uint32_t forward = call(&f, main, "model.py", 5, "forward");
    add_of_thread(&f, 0, 1000, forward, 1, 0); /* node 0 */
    add_of_thread(&f, 1, 200, 0, 0, BACKWARD | ML_EVENT_NO_PYTHON)->node = type;
    work_out(&f);
    CHECK_STR(told(&f), "model.py:5 forward 1000+200 1000 1000 1000 1\n"
                        "train.py:10 main 1000+200 1000 1000 1000 1\n");

    /* On a thread that is in backward(): that line runs, and its caller is the
     * forward's too. */
    uint32_t loss = call(&f, main, "train.py", 30, "train");
    uint32_t engine =
        call(&f, loss, TORCH "autograd/graph.py", 1, "_engine_run_backward");
    f.made.events[1].flags = BACKWARD;
    f.made.events[1].stack = engine;
    work_out(&f);
    CHECK_STR(told(&f),
              TORCH "autograd/graph.py:1 _engine_run_backward 200+0 1200 200 200 1\n"
                    "model.py:5 forward 1000+200 1000 1000 1000 1\n"
                    "train.py:10 main 1200+200 1200 1200 1200 2\n"
                    "train.py:30 train 200+0 1200 200 200 1\n");
    tear_down(&f);
}

/* A checkpoint runs a package's module again on autograd's thread, where no line of the
 * user's runs: the one that called the module in the forward stands for it. */
static void
test_a_module_that_is_run_again(void)
{
    static fixture f;
    set_up(&f);
    uint32_t layer = sample_string(f.made.recording, "layers.0");
    uint32_t main = call(&f, 0, "train.py", 10, "main");
    uint32_t module = call(&f, main, TORCH "nn/modules/module.py", 1, "_call_impl");
    uint32_t again = call(&f, 0, TORCH "nn/modules/module.py", 1, "_call_impl");
    f.made.recording->stacks[module].module = layer;
    f.made.recording->stacks[again].module = layer;
    const char *package = "/v/site-packages/transformers/llama.py";
    alloc(&f, 0, 1000, call(&f, module, package, 7, "forward"));
    add(&f, ML_ACTION_ALLOC, 1, 200, call(&f, again, package, 7, "forward"))->flags =
        BACKWARD;
    work_out(&f);
    CHECK_STR(told(&f), "/v/site-packages/torch/nn/modules/module.py:1 _call_impl "
                        "1200+0 1200 1200 1200 2\n"
                        "/v/site-packages/transformers/llama.py:7 forward "
                        "1200+0 1200 1200 1200 2\n"
                        "train.py:10 main 1000+200 1000 1000 1000 1\n");
    tear_down(&f);
}

/* As deep as a file can make it: one walk, whatever the depth. */
static void
test_a_tower_of_calls(void)
{
    enum {
        DEPTH = 100000
    };
    static fixture f;
    set_up(&f);
    ml_event *events = calloc(DEPTH, sizeof(ml_event));
    f.made.device.events.plain = events;
    f.made.device.event_count = DEPTH;
    uint32_t strings[2] = {sample_string(f.made.recording, "walk"),
                           sample_string(f.made.recording, "tower.py")};
    ml_stack stack = {0};
    for (size_t i = 0; i < DEPTH; i++) {
        ml_frame frame = {
            .name = strings[0], .filename = strings[1], .line = (int64_t)(i % 2)};
        ml_recording_add_frame(f.made.recording, frame, &stack.frame);
        ml_recording_add_stack(f.made.recording, stack, &stack.parent);
        events[i] = (ml_event){.addr = BASE + i * 512,
                               .size = 1,
                               .stack = stack.parent,
                               .action = ML_ACTION_ALLOC};
    }
    work_out(&f);
    /* All, and all but the first. */
    CHECK_STR(told(&f), "tower.py:0 walk 100000+0 100000 100000 100000 100000\n"
                        "tower.py:1 walk 99999+0 100000 99999 99999 99999\n");
    tear_down(&f);
    free(events);
}

static uint64_t
next_number(uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *random >> 33;
}

/* Events and memory without sense: at the peak, a line that all stacks begin with still
 * has what has a stack. */
static void
test_nonsense(void)
{
    static fixture f;
    uint64_t random = 1;
    for (int round = 0; round < 300; round++) {
        set_up(&f);
        f.made.recording->rules.has_segments = round % 5 != 0;
        uint32_t main = call(&f, 0, "a.py", 1, "main");
        uint32_t stacks[3] = {main, call(&f, main, "b.py", 2, "g"),
                              call(&f, main, "a.py", 1, "main")};
        for (size_t i = 0; i < 40; i++) {
            ml_event *event =
                add(&f, (enum ml_action)(next_number(&random) % ML_ACTION_COUNT),
                    (unsigned)(next_number(&random) % 8), next_number(&random) % 9000,
                    stacks[next_number(&random) % 3]);
            event->flags = (uint8_t)next_number(&random);
            event->block_bytes = next_number(&random) % 2 ? event->size : UINT64_MAX;
        }
        work_out(&f);
        uint64_t with_stack = 0;
        for (size_t i = 0; i < f.peak->block_count; i++) {
            const ml_peak_block *block = &f.peak->blocks[i];
            with_stack +=
                block->event >= 0 || block->cause.stack != 0 ? block->size : 0;
        }
        CHECK_UINT(f.all.count != 0 ? f.all.lines[0].figures.at_peak : 0, with_stack);
        tear_down(&f);
    }
}

static void
test_no_memory(void)
{
    static fixture f;
    set_up(&f);
    uint32_t main = call(&f, 0, "train.py", 1, "main");
    alloc(&f, 0, 1000, call(&f, main, "model.py", 2, "forward"));
    work_out(&f);
    ml_stack_lines_fini(&f.all);
    ml_recording_detach(f.made.recording);
    int result = ML_ENOMEM;
    long tries = 0;
    for (; result == ML_ENOMEM && tries < 99; tries++) {
        budget_begin(tries);
        result = ml_stack_lines_init(&f.all, f.made.recording, 0, f.peak);
        if (result == 0) {
            CHECK_UINT(f.all.count, 2);
            ml_stack_lines_fini(&f.all);
        }
        ml_recording_detach(f.made.recording);
        CHECK_INT(budget_alive, 0);
        budget_end();
    }
    CHECK_INT(result, 0);
    CHECK(tries > 10);
    tear_down(&f);
}

int
main(void)
{
    RUN(test_lines_and_what_they_call);
    RUN(test_recursion);
    RUN(test_which_lines_are_one);
    RUN(test_whose_lines);
    RUN(test_events_without_stacks);
    RUN(test_memory_from_before_the_events);
    RUN(test_backward);
    RUN(test_a_module_that_is_run_again);
    RUN(test_a_tower_of_calls);
    RUN(test_nonsense);
    RUN(test_no_memory);
    return TEST_RESULT();
}
