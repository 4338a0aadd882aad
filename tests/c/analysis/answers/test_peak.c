/* The peak of recordings worked out by hand. */
#include "analysis/answers/peak.h"

#include <stdlib.h>

#include "budget.h"
#include "recording_samples.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)
#define BASE UINT64_C(0x7f0000000000)

/* FRAMES are "file|line|function", innermost first. */
static uint32_t
add_stack(sample *f, const char *const *frames, size_t count)
{
    uint32_t parent = 0;
    for (size_t i = count; i-- > 0;) {
        char text[256];
        snprintf(text, sizeof(text), "%s", frames[i]);
        char *line = strchr(text, '|');
        char *name = strchr(line + 1, '|');
        *line++ = *name++ = '\0';
        ml_frame frame = {.name = sample_string(f->recording, name),
                          .filename = sample_string(f->recording, text),
                          .line = atoi(line)};
        ml_stack stack = {.parent = parent};
        ml_recording_add_frame(f->recording, frame, &stack.frame);
        ml_recording_add_stack(f->recording, stack, &parent);
    }
    return parent;
}

#define STACK(f, ...) \
    add_stack(f, (const char *const[]){__VA_ARGS__}, \
              sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

static ml_event *
add_event(sample *f, enum ml_action action, uint64_t addr, uint64_t size, uint8_t flags,
          uint32_t stack)
{
    ml_event *event = sample_event(f, action, addr, size, stack);
    event->flags = flags;
    /* As if every allocation outside of a backward pass were an operation's. */
    if (!(flags & ML_EVENT_BACKWARD) && action != ML_ACTION_OOM) {
        event->autograd_thread = 1;
        event->sequence = f->device.event_count;
    }
    return event;
}

static void
add_free(sample *f, uint64_t addr, uint64_t size, uint8_t flags)
{
    add_event(f, ML_ACTION_FREE_REQUESTED, addr, size, flags, 0);
    add_event(f, ML_ACTION_FREE_COMPLETED, addr, size, flags, 0);
}

#define ALLOC(f, addr, size, flags, stack) \
    add_event(f, ML_ACTION_ALLOC, addr, size, flags, stack)
#define BACK ((uint8_t)ML_EVENT_BACKWARD)
#define BACK_BARE ((uint8_t)(ML_EVENT_BACKWARD | ML_EVENT_NO_PYTHON))

#define CHECK_LINE(peak, i, file_, line_, function_, bytes_, blocks_, phase_) \
    do { \
        const ml_peak_line *l_ = &(peak)->lines[i]; \
        CHECK_TEXT(l_->file.bytes, l_->file.length, file_); \
        CHECK_INT(l_->line, line_); \
        CHECK_TEXT(l_->function.bytes, l_->function.length, function_); \
        CHECK_UINT(l_->bytes, bytes_); \
        CHECK_UINT(l_->blocks, blocks_); \
        CHECK_STR(ml_phase_text(l_->phase), phase_); \
    } while (0)

/* One step: two parameters, an activation, a gradient made in backward.
 *
 *   event                           allocated after it
 *   0 segment of 2 MiB                  0
 *   1 W 4096, line 10                4096
 *   2 A 8192, line 20               12288
 *   3 T  512, line 20               12800
 *   4,5 T freed                     12288
 *   6 G 4096 in backward            16384   the peak
 *   7,8 A freed by backward          8192
 */
static void
build_step(sample *f)
{
    uint32_t init =
        STACK(f, "/venv/lib/python3.11/site-packages/torch/nn/linear.py|5|f",
              "train.py|10|main");
    uint32_t step = STACK(f, "torch/nn/functional.py|99|relu", "model.py|20|forward",
                          "train.py|30|main");
    add_event(f, ML_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, 0, init);
    ALLOC(f, BASE, 4000, 0, init);
    sample_tag(f, BASE + 100, ML_CATEGORY_PARAMETER);
    ALLOC(f, BASE + 4096, 8192, 0, step);
    ALLOC(f, BASE + 12288, 512, 0, step);
    add_free(f, BASE + 12288, 512, 0);
    ALLOC(f, BASE + 12288, 4096, BACK_BARE, 0);
    add_free(f, BASE + 4096, 8192, BACK);
    f->segments[0] =
        (ml_segment){.addr = BASE, .total = 2 * MIB, .small = 1, .block_count = 4};
    f->blocks[0] = (ml_block){
        .addr = BASE, .size = 4096, .requested = 4000, .state = ML_BLOCK_ALLOCATED};
    f->blocks[1] = (ml_block){.addr = BASE + 4096, .size = 8192};
    f->blocks[2] = (ml_block){.addr = BASE + 12288,
                              .size = 4096,
                              .requested = 4096,
                              .state = ML_BLOCK_ALLOCATED};
    f->blocks[3] = (ml_block){.addr = BASE + 16384, .size = 2 * MIB - 16384};
    f->device.segment_count = 1;
    f->device.block_count = 4;
}

static void
test_step(void)
{
    static sample f;
    ml_peak *peak;
    sample_begin(&f);
    build_step(&f);
    CHECK_INT(ml_recording_validate(f.recording), 0);
    CHECK_INT(ml_peak_new(f.recording, 1, &peak), ML_EINVALID);
    CHECK_INT(ml_peak_new(f.recording, 0, &peak), 0);
    CHECK_UINT(peak->position, 7);
    CHECK_UINT(peak->time, 7000000);
    CHECK_UINT(peak->totals.allocated, 16384);
    CHECK_UINT(peak->totals.requested, 16288);
    CHECK_UINT(peak->totals.reserved, 2 * MIB);
    CHECK_UINT(peak->window_peaks.allocated, 16384);
    CHECK(!peak->earlier);
    CHECK_UINT(peak->replay.misfits, 0);
    CHECK_UINT(peak->replay.mismatched_blocks, 0);

    CHECK_UINT(peak->block_count, 3);
    CHECK_UINT(peak->blocks[0].addr, BASE);
    CHECK_INT(peak->blocks[0].event, 1);
    CHECK_UINT(peak->blocks[0].requested, 4000);
    CHECK_STR(ml_category_text(peak->blocks[0].verdict.category), "parameter");
    CHECK_STR(ml_category_text(peak->blocks[1].verdict.category), "activation");
    CHECK_STR(ml_category_text(peak->blocks[2].verdict.category), "gradient");
    CHECK(!peak->blocks[2].verdict.exact);
    CHECK_INT(peak->blocks[2].event, 6);
    CHECK_INT(peak->blocks[2].line, 1);

    CHECK_UINT(peak->line_count, 3);
    CHECK_LINE(peak, 0, "model.py", 20, "forward", 8192, 1, "forward");
    CHECK_LINE(peak, 1, "", 0, "", 4096, 1, "backward");
    CHECK_STR(ml_no_line_text(peak->lines[1].no_line),
              "no Python frames on the thread (backward)");
    CHECK_LINE(peak, 2, "train.py", 10, "main", 4096, 1, "forward");
    CHECK_UINT(peak->unattributed, 4096);
    CHECK_UINT(peak->stack_count, 3);
    CHECK_UINT(peak->stacks[0].bytes, 8192);
    CHECK_UINT(peak->categories[ML_CATEGORY_PARAMETER].bytes, 4096);
    CHECK_UINT(peak->categories[ML_CATEGORY_ACTIVATION].bytes, 8192);
    CHECK_UINT(peak->categories[ML_CATEGORY_GRADIENT].blocks, 1);
    CHECK_UINT(peak->inexact, 4096);

    CHECK_UINT(peak->overhead.inactive, 2 * MIB - 16384);
    CHECK_UINT(peak->overhead.slack, 96);
    CHECK_UINT(peak->overhead.largest_free, 2 * MIB - 16384);
    CHECK_UINT(peak->overhead.free_blocks, 1);
    CHECK_UINT(peak->overhead.segments, 1);
    CHECK(peak->overhead.fragmentation == 0.0);
    ml_peak_free(peak);

    /* At another instant: T is there, and freed before the backward pass. */
    CHECK_INT(ml_peak_new_at(f.recording, 0, 4, &peak), 0);
    CHECK_UINT(peak->position, 4);
    CHECK_UINT(peak->totals.allocated, 12800);
    CHECK_UINT(peak->window_peaks.allocated, 16384);
    CHECK_UINT(peak->block_count, 3);
    CHECK_STR(ml_category_text(peak->blocks[2].verdict.category), "temporary");
    CHECK_LINE(peak, 0, "model.py", 20, "forward", 8704, 2, "forward");
    ml_peak_free(peak);

    /* At the end two free blocks of 8192 and 2 MiB - 16384: the larger is what one
     * request can have of 2 MiB - 8192. */
    CHECK_INT(ml_peak_new_at(f.recording, 0, 9, &peak), 0);
    CHECK_UINT(peak->overhead.inactive, 2 * MIB - 8192);
    CHECK_UINT(peak->overhead.largest_free, 2 * MIB - 16384);
    CHECK(peak->overhead.fragmentation == 8192.0 / (double)(2 * MIB - 8192));
    ml_peak_free(peak);
    CHECK_INT(ml_peak_new_at(f.recording, 0, 10, &peak), ML_EINVALID);

    /* The recorder saw more before the oldest event that it kept. */
    f.device.peak.allocated = 20000;
    CHECK_INT(ml_peak_new(f.recording, 0, &peak), 0);
    CHECK(peak->earlier);
    CHECK_UINT(peak->known_peaks.allocated, 20000);
    CHECK_UINT(peak->totals.allocated, 16384);
    ml_peak_free(peak);
    sample_end(&f);
}

/* A foreign snapshot says nothing of backward passes, and without frames nothing is
 * estimated. */
static void
test_foreign(void)
{
    static sample f;
    ml_peak *peak;
    sample_begin(&f);
    build_step(&f);
    f.recording->foreign = 1;
    ml_recording_detach(f.recording);
    f.device.tag_count = 0;
    for (size_t i = 0; i < f.device.event_count; i++) {
        f.events[i].flags = ML_EVENT_CONTEXT;
        f.events[i].autograd_thread = 0;
        f.events[i].stack = 0;
    }
    f.recording->stack_count = 1;
    CHECK_INT(ml_peak_new(f.recording, 0, &peak), 0);
    CHECK_UINT(peak->categories[ML_CATEGORY_UNKNOWN].bytes, 16384);
    CHECK_LINE(peak, 0, "", 0, "", 16384, 3, "unknown");
    CHECK_STR(ml_no_line_text(peak->lines[0].no_line), "recorded without frames");
    ml_peak_free(peak);
    for (size_t i = 0; i < f.device.event_count; i++) {
        f.events[i].flags = 0;
    }
    CHECK_INT(ml_peak_new(f.recording, 0, &peak), 0);
    CHECK_STR(ml_no_line_text(peak->lines[0].no_line), "stacks not recorded");
    ml_peak_free(peak);

    /* What lived before the window. */
    ml_recording_detach(f.recording);
    f.device.events.plain += 3;
    f.device.event_count -= 3;
    CHECK_INT(ml_peak_new(f.recording, 0, &peak), 0);
    CHECK_UINT(peak->totals.allocated, 16384);
    CHECK_UINT(peak->categories[ML_CATEGORY_BEFORE_RECORDING].bytes, 12288);
    CHECK_UINT(peak->categories[ML_CATEGORY_UNKNOWN].bytes, 4096);
    CHECK_LINE(peak, 0, "", 0, "", 12288, 2, "before_recording");
    CHECK_STR(ml_no_line_text(peak->lines[0].no_line), "before recording");
    CHECK_INT(peak->blocks[0].event, -1);
    ml_peak_free(peak);
    sample_end(&f);
}

/* Every rule of the header, a block each.  Two backward passes. */
static void
test_categories(void)
{
    static sample f;
    ml_peak *peak;
    sample_begin(&f);
    uint64_t at[10];
    for (size_t i = 0; i < 10; i++) {
        at[i] = BASE + i * 512;
    }
    add_event(&f, ML_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, 0, 0);
    ALLOC(&f, at[0], 512, 0, 0); /* lives through both passes */
    ALLOC(&f, at[1], 512, 0, 0); /* freed by the first pass */
    ALLOC(&f, at[2], 512, 0, 0); /* freed after the first pass */
    ALLOC(&f, at[3], 512, 0, 0); /* tagged as input, then as buffer */
    ALLOC(&f, at[4], 512, 0, 0); /* tagged as parameter, then as input */
    sample_tag(&f, at[3], ML_CATEGORY_INPUT);
    sample_tag(&f, at[4] + 511, ML_CATEGORY_PARAMETER);
    ALLOC(&f, at[5], 512, BACK, 0); /* freed by the same pass */
    ALLOC(&f, at[6], 512, BACK, 0); /* freed by the next pass */
    ALLOC(&f, at[7], 512, BACK, 0); /* freed after it */
    uint64_t instant = f.device.event_count;
    add_free(&f, at[5], 512, BACK);
    add_free(&f, at[1], 512, BACK);
    add_free(&f, at[2], 512, 0);
    add_free(&f, at[7], 512, 0);
    sample_tag(&f, at[3], ML_CATEGORY_BUFFER);
    sample_tag(&f, at[4], ML_CATEGORY_INPUT);
    /* A later block at the address of a dead one: its tag is not the dead one's. */
    ALLOC(&f, at[1], 512, 0, 0);
    sample_tag(&f, at[1], ML_CATEGORY_WORKSPACE);
    ALLOC(&f, at[2], 512, BACK, 0);
    add_free(&f, at[6], 512, BACK);
    CHECK_INT(ml_peak_new_at(f.recording, 0, instant, &peak), 0);
    CHECK_UINT(peak->block_count, 8);
    static const char *const want[] = {
        "unknown",   "activation", "activation", "buffer",
        "parameter", "temporary",  "gradient",   "gradient",
    };
    for (size_t i = 0; i < 8; i++) {
        CHECK_STR(ml_category_text(peak->blocks[i].verdict.category), want[i]);
    }
    CHECK_UINT(peak->categories[ML_CATEGORY_ACTIVATION].bytes, 1024);
    ml_peak_free(peak);

    /* Without tagged parameters, what outlived the pass could be one. */
    ml_recording_detach(f.recording);
    f.device.tag_count = 0;
    CHECK_INT(ml_peak_new_at(f.recording, 0, instant, &peak), 0);
    CHECK_STR(ml_category_text(peak->blocks[1].verdict.category), "activation");
    CHECK_STR(ml_category_text(peak->blocks[2].verdict.category), "unknown");
    CHECK_STR(ml_category_text(peak->blocks[6].verdict.category), "unknown");
    CHECK_STR(ml_why_text(peak->blocks[6].verdict.why),
              "made by a backward pass that it outlives");
    ml_peak_free(peak);
    sample_end(&f);
}

/* Out of memory in the middle of a backward pass: activations are still there. */
static void
test_activation_at_the_end(void)
{
    static sample f;
    ml_peak *peak;
    sample_begin(&f);
    add_event(&f, ML_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, 0, 0);
    ALLOC(&f, BASE, 512, 0, 0);
    CHECK_INT(ml_peak_new(f.recording, 0, &peak), 0);
    /* No pass yet: whether one would have needed it is not known. */
    CHECK_UINT(peak->categories[ML_CATEGORY_UNKNOWN].blocks, 1);
    ml_peak_free(peak);
    /* Of what the pass made, one has the size of a parameter, one is of a module's call in
     * it, which a checkpoint repeats, and one it would have freed. */
    uint32_t again = sample_call(f.recording, 0, "model.py", 5, "forward", "layers.0");
    ALLOC(&f, BASE + 512, 1024, 0, 0);
    sample_tag(&f, BASE + 512, ML_CATEGORY_PARAMETER);
    ALLOC(&f, BASE + 2048, 1024, BACK, 0);
    ALLOC(&f, BASE + 4096, 2048, BACK, again);
    ALLOC(&f, BASE + 8192, 4096, BACK, 0);
    add_event(&f, ML_ACTION_OOM, 0, 512, BACK, 0);
    CHECK_INT(ml_peak_new(f.recording, 0, &peak), 0);
    CHECK_UINT(peak->categories[ML_CATEGORY_PARAMETER].bytes, 1024);
    CHECK_UINT(peak->categories[ML_CATEGORY_ACTIVATION].bytes, 512 + 2048);
    CHECK_UINT(peak->categories[ML_CATEGORY_GRADIENT].bytes, 1024);
    CHECK_UINT(peak->categories[ML_CATEGORY_TEMPORARY].bytes, 4096);
    ml_peak_free(peak);
    sample_end(&f);
}

/* Which frame of a stack is shown, and that equal lines under two ids are one group. */
static void
test_lines(void)
{
    static sample f;
    ml_peak *peak;
    sample_begin(&f);
    uint32_t stacks[] = {
        STACK(&f, "/usr/lib/python3.11/contextlib.py|1|inner",
              "/home/a/train.py|7|step", "/home/a/train.py|9|main"),
        STACK(&f, "/tmp/torchinductor_a/x4/cx4.py|8|call",
              "<eval_with_key>.1|5|forward", "<frozen importlib._bootstrap>|2|load",
              "/opt/lib/python3/dist-packages/numpy/core.py|3|dot",
              "/home/a/train.py|7|step"),
        STACK(&f, "/home/a/train.py|7|other"),
        /* No code of the user: the innermost Python frame. */
        STACK(&f, "??|0|at::empty", "/src/c10/core/x.cpp|5|alloc",
              "/v/site-packages/torch/nn/a.py|11|call",
              "/v/site-packages/torch/nn/b.py|12|run"),
        /* No Python at all: no line. */
        STACK(&f, "/src/c10/core/x.cpp|5|alloc", "??|0|start"),
    };
    add_event(&f, ML_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, 0, 0);
    for (size_t i = 0; i < 5; i++) {
        ALLOC(&f, BASE + i * 4096, 4096, 0, stacks[i]);
    }
    ALLOC(&f, BASE + 5 * 4096, 4096, ML_EVENT_STACK_LOST, 0);
    ALLOC(&f, BASE + 6 * 4096, 2048, ML_EVENT_NO_PYTHON, 0);
    CHECK_INT(ml_peak_new(f.recording, 0, &peak), 0);
    CHECK_UINT(peak->line_count, 5);
    CHECK_LINE(peak, 0, "/home/a/train.py", 7, "step", 8192, 2, "forward");
    CHECK_LINE(peak, 1, "", 0, "", 4096 + 2048, 2, "forward");
    CHECK_STR(ml_no_line_text(peak->lines[1].no_line),
              "no Python frames on the thread");
    CHECK_LINE(peak, 2, "", 0, "", 4096, 1, "forward");
    CHECK_STR(ml_no_line_text(peak->lines[2].no_line), "stack table full");
    CHECK_LINE(peak, 3, "/home/a/train.py", 7, "other", 4096, 1, "forward");
    CHECK_LINE(peak, 4, "/v/site-packages/torch/nn/a.py", 11, "call", 4096, 1,
               "forward");
    CHECK_UINT(peak->unattributed, 4096 + 4096 + 2048);
    CHECK_UINT(peak->blocks[0].line, 0);
    CHECK_UINT(peak->blocks[1].line, 0);
    CHECK_UINT(peak->blocks[3].line, 4);
    CHECK_UINT(peak->stack_count, 7);
    ml_peak_free(peak);
    sample_end(&f);
}

/* The most may be there before the first event; and a recording may be empty. */
static void
test_peak_at_the_start(void)
{
    static sample f;
    ml_peak *peak;
    sample_begin(&f);
    add_free(&f, BASE, 512, 0);
    CHECK_INT(ml_peak_new(f.recording, 0, &peak), 0);
    CHECK_UINT(peak->position, 0);
    CHECK_UINT(peak->time, 1000000);
    CHECK_UINT(peak->totals.allocated, 512);
    CHECK_UINT(peak->block_count, 1);
    ml_peak_free(peak);
    ml_recording_detach(f.recording);
    f.device.event_count = 0;
    CHECK_INT(ml_peak_new(f.recording, 0, &peak), 0);
    CHECK_UINT(peak->totals.allocated, 0);
    CHECK_UINT(peak->block_count, 0);
    CHECK_UINT(peak->line_count, 0);
    CHECK_UINT(peak->time, 0);
    ml_peak_free(peak);
    ml_peak_free(NULL);
    sample_end(&f);
}

/* Events, tags and memory without sense: the sums still are those of the blocks. */
static void
test_nonsense(void)
{
    static sample f;
    uint64_t random = 1;
    for (int round = 0; round < 300; round++) {
        sample_begin(&f);
        uint32_t stack = STACK(&f, "a.py|1|f", "b.py|2|g");
        f.recording->rules.has_segments = round % 5 != 0;
        f.recording->foreign = round % 3 == 0;
        uint64_t numbers[6];
        for (size_t i = 0; i < 40; i++) {
            for (size_t j = 0; j < 6; j++) {
                random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
                numbers[j] = random >> 33;
            }
            ml_event *event =
                add_event(&f, (enum ml_action)(numbers[0] % ML_ACTION_COUNT),
                          BASE + numbers[1] % 16 * (numbers[2] % 2 ? 512 : MIB),
                          numbers[3] % 8 * (numbers[2] % 3 ? 700 : MIB),
                          (uint8_t)numbers[4], numbers[5] % 2 ? stack : 0);
            event->block_bytes = numbers[5] % 3 ? event->size : UINT64_MAX - numbers[1];
            if (numbers[2] % 4 == 0) {
                sample_tag(&f, BASE + numbers[1] % 9000,
                           (enum ml_category)(numbers[5] % (ML_CATEGORY_TAG_LAST + 1)));
            }
        }
        f.segments[0] = (ml_segment){.addr = BASE, .total = 2 * MIB, .block_count = 1};
        f.blocks[0] = (ml_block){.addr = BASE + 512, .size = 1024, .state = 1};
        f.device.segment_count = f.device.block_count = (size_t)round % 2;
        CHECK_INT(ml_recording_validate(f.recording), 0);
        ml_peak *peak;
        CHECK_INT(ml_peak_new(f.recording, 0, &peak), 0);
        uint64_t blocks = 0, lines = 0, stacks = 0, categories = 0;
        for (size_t i = 0; i < peak->block_count; i++) {
            blocks += peak->blocks[i].size;
            CHECK(peak->blocks[i].line < peak->line_count);
        }
        for (size_t i = 0; i < peak->line_count; i++) {
            lines += peak->lines[i].bytes;
        }
        for (size_t i = 0; i < peak->stack_count; i++) {
            stacks += peak->stacks[i].bytes;
        }
        for (size_t i = 0; i < ML_CATEGORY_COUNT; i++) {
            categories += peak->categories[i].bytes;
        }
        CHECK_UINT(blocks, peak->totals.allocated);
        CHECK_UINT(lines, blocks);
        CHECK_UINT(stacks, blocks);
        CHECK_UINT(categories, blocks);
        ml_peak_free(peak);
        sample_end(&f);
    }
}

static void
test_no_memory(void)
{
    static sample f;
    sample_begin(&f);
    build_step(&f);
    int result = ML_ENOMEM;
    long tries = 0;
    for (; result == ML_ENOMEM && budget_alive == 0 && tries < 200; tries++) {
        ml_peak *peak = NULL;
        budget_begin(tries);
        result = ml_peak_new(f.recording, 0, &peak);
        ml_peak_free(peak);
        ml_recording_detach(f.recording);
        budget_end();
    }
    CHECK_INT(budget_alive, 0);
    CHECK_INT(result, 0);
    CHECK(tries > 10);
    sample_end(&f);
}

int
main(void)
{
    RUN(test_step);
    RUN(test_foreign);
    RUN(test_categories);
    RUN(test_activation_at_the_end);
    RUN(test_lines);
    RUN(test_peak_at_the_start);
    RUN(test_nonsense);
    RUN(test_no_memory);
    return TEST_RESULT();
}
