/* Lines of a model in a library, within lines of the program, worked out by hand. */
#include "analysis/answers/inner_lines.h"

#include "budget.h"
#include "recording_samples.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)
#define BASE UINT64_C(0x7f0000000000)
#define PACKAGES "/venv/lib/python3.11/site-packages/"

static void
add_alloc(sample *s, uint64_t addr, uint64_t size, uint32_t stack)
{
    ml_event *event = sample_event(s, ML_ACTION_ALLOC, addr, size, stack);
    event->autograd_thread = 1;
    event->sequence = s->device.event_count;
}

/* The node that made it has the number of the forward allocation whose event is FORWARD. */
static void
add_backward(sample *s, uint64_t addr, uint64_t size, size_t forward)
{
    ml_event *event = sample_event(s, ML_ACTION_ALLOC, addr, size, 0);
    event->flags = ML_EVENT_BACKWARD | ML_EVENT_NO_PYTHON;
    event->autograd_thread = 1;
    event->sequence = s->events[forward].sequence - 1;
}

/* train.py:5 calls a library's trainer, which calls its net; torch is between and inside.
 *
 *   event  bytes  innermost line that is not torch's
 *   1      4096   net.py:20, a module
 *   2      8192   net.py:30, another
 *   3       512   trainer.py:7
 *   4      1024   train.py:6, the program's own
 *   5      2048   in the backward pass, of event 2
 *   6      1024   net.py:30 again
 */
static void
build(sample *s)
{
    ml_recording *recording = s->recording;
    uint32_t main = sample_call(recording, 0, "train.py", 5, "<module>", NULL);
    uint32_t train =
        sample_call(recording, main, PACKAGES "lib/trainer.py", 7, "train", NULL);
    uint32_t call = sample_call(recording, train, PACKAGES "torch/nn/modules/module.py",
                                99, "_call_impl", NULL);
    uint32_t up =
        sample_call(recording, call, PACKAGES "lib/net.py", 20, "forward", "net.up");
    uint32_t down =
        sample_call(recording, call, PACKAGES "lib/net.py", 30, "forward", "net.down");
    ml_frame at = recording->frames[recording->stacks[down].frame];
    ml_code_line code = {.filename = at.filename,
                         .name = at.name,
                         .line = at.line,
                         .qualname = sample_string(recording, "Down.forward")};
    CHECK_INT(ml_recording_add_code_line(recording, code), 0);
    uint32_t linear = sample_call(recording, down, PACKAGES "torch/nn/functional.py", 3,
                                  "linear", NULL);
    uint32_t own = sample_call(recording, 0, "train.py", 6, "<module>", NULL);
    sample_event(s, ML_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, main);
    add_alloc(s, BASE, 4096, up);
    add_alloc(s, BASE + 4096, 8192, linear);
    add_alloc(s, BASE + 12288, 512, train);
    add_alloc(s, BASE + 12800, 1024, own);
    add_backward(s, BASE + 13824, 2048, 2);
    add_alloc(s, BASE + 15872, 1024, down);
    s->segments[0] =
        (ml_segment){.addr = BASE, .total = 2 * MIB, .small = 1, .block_count = 7};
    static const uint64_t sizes[] = {4096, 8192, 512, 1024, 2048, 1024};
    uint64_t addr = BASE;
    for (size_t i = 0; i < 6; i++) {
        s->blocks[i] = (ml_block){.addr = addr,
                                  .size = sizes[i],
                                  .requested = sizes[i],
                                  .state = ML_BLOCK_ALLOCATED};
        addr += sizes[i];
    }
    s->blocks[6] = (ml_block){.addr = addr, .size = BASE + 2 * MIB - addr};
    s->device.segment_count = 1;
    s->device.block_count = 7;
}

#define CHECK_INNER(peak, of, i, file_, line_, bytes_, blocks_, module_) \
    do { \
        const ml_peak_inner *l_ = &(peak)->inner[(of)->first_inner + (i)]; \
        CHECK_TEXT(l_->file.bytes, l_->file.length, file_); \
        CHECK_INT(l_->line, line_); \
        CHECK_UINT(l_->bytes, bytes_); \
        CHECK_UINT(l_->blocks, blocks_); \
        CHECK_STR(l_->module == NULL ? "" : l_->module, module_); \
    } while (0)

static void
test_lines(void)
{
    static sample s;
    ml_peak *peak;
    sample_begin(&s);
    build(&s);
    CHECK_INT(ml_recording_validate(s.recording), 0);
    CHECK_INT(ml_peak_new(s.recording, 0, &peak), 0);
    CHECK_UINT(peak->line_count, 3);

    /* Two lines of the net and one of the trainer, the largest first. */
    const ml_peak_line *line = &peak->lines[0];
    CHECK_TEXT(line->file.bytes, line->file.length, "train.py");
    CHECK_INT(line->line, 5);
    CHECK_INT(line->phase, ML_PHASE_FORWARD);
    CHECK_UINT(line->bytes, 4096 + 8192 + 512 + 1024);
    CHECK_UINT(line->inner_count, 3);
    CHECK_INNER(peak, line, 0, PACKAGES "lib/net.py", 30, 9216, 2, "net.down");
    CHECK_INNER(peak, line, 1, PACKAGES "lib/net.py", 20, 4096, 1, "net.up");
    CHECK_INNER(peak, line, 2, PACKAGES "lib/trainer.py", 7, 512, 1, "");
    const ml_peak_inner *down = &peak->inner[line->first_inner];
    CHECK_TEXT(down->function.bytes, down->function.length, "forward");
    CHECK_TEXT(down->qualname.bytes, down->qualname.length, "Down.forward");
    CHECK_TEXT(down[1].qualname.bytes, down[1].qualname.length, "forward");
    CHECK_UINT(peak->inner[line->first_inner].categories[ML_CATEGORY_UNKNOWN] +
                   peak->inner[line->first_inner].categories[ML_CATEGORY_ACTIVATION] +
                   peak->inner[line->first_inner].categories[ML_CATEGORY_TEMPORARY],
               9216);

    /* What the backward pass made: by the forward's stack. */
    line = &peak->lines[1];
    CHECK_INT(line->line, 5);
    CHECK_INT(line->phase, ML_PHASE_BACKWARD);
    CHECK_UINT(line->inner_count, 1);
    CHECK_INNER(peak, line, 0, PACKAGES "lib/net.py", 30, 2048, 1, "net.down");

    /* It is the model's own line already. */
    line = &peak->lines[2];
    CHECK_INT(line->line, 6);
    CHECK_UINT(line->inner_count, 0);
    ml_peak_free(peak);
    sample_end(&s);
}

static void
test_no_memory(void)
{
    static sample s;
    sample_begin(&s);
    build(&s);
    ml_peak *peak;
    CHECK_INT(ml_peak_new(s.recording, 0, &peak), 0);
    int error = ML_ENOMEM;
    for (long budget = 0; error == ML_ENOMEM && budget < 1000; budget++) {
        for (size_t i = 0; i < peak->inner_count; i++) {
            ml_free(peak->inner[i].module);
        }
        ml_free(peak->inner);
        peak->inner = NULL;
        peak->inner_count = 0;
        budget_begin(budget);
        error = ml_inner_lines_find(peak, s.recording);
        budget_end();
    }
    CHECK_INT(error, 0);
    CHECK_UINT(peak->lines[0].inner_count, 3);
    ml_peak_free(peak);
    sample_end(&s);
}

int
main(void)
{
    RUN(test_lines);
    RUN(test_no_memory);
    return TEST_RESULT();
}
