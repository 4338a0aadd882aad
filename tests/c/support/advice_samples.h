/* What the tests of advice share: a recording put together by hand, in which each block has a
 * segment of its own, and the advice on it. */
#ifndef ML_ADVICE_SAMPLES_H
#define ML_ADVICE_SAMPLES_H

#include "lab/advice/advice.h"

#include "base/base.h"
#include "budget.h"
#include "recording_samples.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)
#define NEVER_USED 0

static sample s;
static uint64_t next_addr;
static ml_advices *advices;

static inline void
begin(void)
{
    sample_begin(&s);
    advices = NULL;
    next_addr = UINT64_C(1) << 40;
}

static inline ml_event *
event_in(enum ml_action action, uint64_t addr, uint64_t bytes, uint32_t stack)
{
    ml_event *event = sample_event(&s, action, addr, bytes, stack);
    event->autograd_thread = 1;
    return event;
}

/* In a forward: NEXT is the number that the next node gets. */
static inline uint64_t
take(uint64_t mib, uint32_t stack, uint64_t next)
{
    uint64_t addr = next_addr;
    next_addr += UINT64_C(1) << 30;
    event_in(ML_ACTION_SEGMENT_ALLOC, addr, mib * MIB, stack)->sequence = next;
    event_in(ML_ACTION_ALLOC, addr, mib * MIB, stack)->sequence = next;
    return addr;
}

/* By node NUMBER of a backward pass. */
static inline uint64_t
take_back(uint64_t mib, uint64_t number, const char *type)
{
    uint64_t addr = take(mib, 0, number);
    ml_event *event = &s.events[s.device.event_count - 1];
    event->flags = ML_EVENT_BACKWARD;
    event->node = type == NULL ? 0 : sample_string(s.recording, type);
    event[-1].flags = ML_EVENT_BACKWARD;
    return addr;
}

/* UNUSED: events since its last use, plus 1; NEVER_USED: not known. */
static inline void
give(uint64_t addr, uint64_t mib, uint8_t flags, uint32_t unused)
{
    ml_event *event = event_in(ML_ACTION_FREE_REQUESTED, addr, mib * MIB, 0);
    event->flags = flags;
    event->unused = unused;
    event->sequence = 1;
    event_in(ML_ACTION_FREE_COMPLETED, addr, mib * MIB, 0)->flags = flags;
}

static inline uint32_t
line(int64_t number)
{
    return sample_call(s.recording, 0, "/home/a/train.py", number, "main", NULL);
}

static inline uint32_t
in_module(int64_t number)
{
    return sample_call(s.recording, line(number), "/home/a/model.py", 5, "forward",
                       "net");
}

static inline const ml_advice *
find(enum ml_advice_kind kind)
{
    if (advices == NULL && ml_advices_new(s.recording, 0, UINT64_MAX, &advices) < 0) {
        return NULL;
    }
    for (size_t i = 0; i < advices->count; i++) {
        if (advices->list[i].kind == kind) {
            return &advices->list[i];
        }
    }
    return NULL;
}

static inline int64_t
line_of(const ml_advice *advice)
{
    return s.recording->frames[advice->frame].line;
}

static inline void
end(void)
{
    ml_advices_free(advices);
    sample_end(&s);
}

/* Advice on the recording, with each allocation of it failing in turn: from one on, all of
 * them; then one alone. */
static inline void
check_that_allocations_can_fail(void)
{
    int result = ML_ENOMEM;
    for (long budget = 0; result < 0; budget += BUDGET_STEP) {
        ml_advices *out = NULL;
        budget_begin(budget);
        result = ml_advices_new(s.recording, 0, UINT64_MAX, &out);
        CHECK(result == 0 || (result == ML_ENOMEM && out == NULL));
        ml_advices_free(out);
        ml_recording_detach(s.recording);
        CHECK_INT(budget_alive, 0);
        budget_end();
    }
    bool failed = true;
    for (long budget = 0; failed; budget += BUDGET_STEP) {
        ml_advices *out = NULL;
        budget_begin_once(budget);
        result = ml_advices_new(s.recording, 0, UINT64_MAX, &out);
        failed = budget_left < 0;
        /* Some of it is only there to be faster. */
        CHECK(result == 0 || (failed && result == ML_ENOMEM && out == NULL));
        ml_advices_free(out);
        ml_recording_detach(s.recording);
        CHECK_INT(budget_alive, 0);
        budget_end();
    }
}

#endif
