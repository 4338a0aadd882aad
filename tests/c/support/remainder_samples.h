/* Runs that run out of memory, put together by hand. */
#ifndef ML_TEST_REMAINDER_SAMPLES_H
#define ML_TEST_REMAINDER_SAMPLES_H

#include "lab/verdict/make_fit.h"
#include "recording_samples.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)

static sample s;
static uint64_t next_addr;
static const char *const layers[] = {"layers.0", "layers.1", "layers.2", "layers.3"};

/* ---- Recordings: each block has a segment of its own ---- */

static inline void
begin(void)
{
    sample_begin(&s);
    next_addr = UINT64_C(1) << 40;
}

static inline ml_event *
event_in(enum ml_action action, uint64_t addr, uint64_t size, uint32_t stack)
{
    ml_event *event = sample_event(&s, action, addr, size, stack);
    event->autograd_thread = 1;
    event->sequence = s.device.event_count;
    return event;
}

static inline uint64_t
take(uint64_t mib, uint32_t stack, uint8_t flags)
{
    uint64_t addr = next_addr;
    next_addr += UINT64_C(1) << 32;
    event_in(ML_ACTION_SEGMENT_ALLOC, addr, mib * MIB, stack)->flags = flags;
    event_in(ML_ACTION_ALLOC, addr, mib * MIB, stack)->flags = flags;
    return addr;
}

static inline void
give(uint64_t addr, uint64_t mib, uint8_t flags)
{
    event_in(ML_ACTION_FREE_REQUESTED, addr, mib * MIB, 0)->flags = flags;
    event_in(ML_ACTION_FREE_COMPLETED, addr, mib * MIB, 0)->flags = flags;
}

static inline uint32_t
in_function(const char *file, const char *name, const char *module)
{
    return sample_call(s.recording, 0, file, 5, name, module);
}

static inline uint32_t
in_module(const char *path)
{
    return in_function("/home/a/model.py", "forward", path);
}

/* Before any module's call. */
static inline void
load(uint64_t mib)
{
    take(mib, 0, 0);
    for (size_t i = s.device.event_count - 2; i < s.device.event_count; i++) {
        s.events[i].autograd_thread = 0;
        s.events[i].sequence = 0;
    }
}

static inline void
parameter(const char *module, uint64_t mib)
{
    uint64_t addr = take(mib, 0, 0);
    uint32_t stack = in_module(module);
    sample_tag(&s, addr, ML_CATEGORY_PARAMETER);
    s.tags[s.device.tag_count - 1].module = s.recording->stacks[stack].module;
}

static inline void
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
static inline void
run_out(unsigned count, uint64_t mib_each, uint64_t left)
{
    for (unsigned i = 0; i < count; i++) {
        take(mib_each, in_module(layers[i]), 0);
    }
    event_in(ML_ACTION_OOM, left * MIB, mib_each * MIB, in_module(layers[count]));
}

static inline void
find(ml_remainder *remainder, ml_advice_case *it, enum ml_assumed assumed)
{
    CHECK_INT(ml_advice_case_init(it, s.recording, 0), 0);
    CHECK_INT(ml_remainder_init(remainder, it, assumed), 0);
}

static inline void
end(ml_remainder *remainder, ml_advice_case *it)
{
    ml_remainder_fini(remainder);
    ml_advice_case_fini(it);
}

#endif
