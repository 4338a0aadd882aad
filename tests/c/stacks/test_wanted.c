/* Stacks as torch keeps them for a context, of events written down by hand. */
#include "stacks/wanted.h"

#include "stacks_samples.h"
#include "test.h"

enum {
    ONE = 1,
    OTHER
};

static ml_stacks *stacks;
static uint32_t made, called, emptied; /* where memory was made, a call, empty_cache */

static uint32_t
stack_of(uint64_t code)
{
    const ml_frame_key frame = key(code, 1, 0);
    const ml_code_text names = code_text("f", "a.py", 1);
    return ml_stacks_add(stacks, 0, &frame, &names);
}

static ml_event
event_of(uint8_t action, uint64_t addr, uint32_t stack, uint32_t origin)
{
    return (ml_event){.action = action,
                      .addr = addr,
                      .stack = stack,
                      .origin_stack = origin,
                      .thread = ONE,
                      .flags = stack != 0 ? ML_EVENT_CONTEXT : 0};
}

static void
want(enum ml_context context, ml_event *events, size_t count, bool ordered)
{
    const ml_wanted wanted = {.context = context, .native = true};
    const ml_events of = {.plain = events};
    ml_wanted_call call = {0};
    for (size_t i = count; i-- > 0;) {
        ml_wanted_event(&wanted, stacks, &of, i, &events[i], ordered ? &call : NULL);
    }
}

/* In one call: a block that another stream had used and a segment go, then memory comes. */
static void
fill(ml_event events[4])
{
    events[0] = event_of(ML_ACTION_FREE_COMPLETED, 512, called, made);
    events[1] = event_of(ML_ACTION_SEGMENT_FREE, 4096, called, made);
    events[2] = event_of(ML_ACTION_SEGMENT_ALLOC, 8192, called, 0);
    events[3] = event_of(ML_ACTION_ALLOC, 8192, called, 0);
}

static void
test_frees_of_an_allocation_have_its_stack(void)
{
    ml_event events[4];
    fill(events);
    want(ML_CONTEXT_ALLOC, events, 4, true);
    CHECK_UINT(events[0].stack, called);
    CHECK_UINT(events[1].stack, called);
    /* As they came with context="all". */
    fill(events);
    want(ML_CONTEXT_ALL, events, 4, true);
    CHECK_UINT(events[0].stack, called);
    fill(events);
    want(ML_CONTEXT_STATE, events, 4, true);
    CHECK_UINT(events[0].stack, 0);
    CHECK_UINT(events[3].flags & ML_EVENT_CONTEXT, 0);
}

static void
test_other_frees_have_that_of_what_they_free(void)
{
    ml_event events[4];
    fill(events); /* nobody knows in which order these came */
    want(ML_CONTEXT_ALLOC, events, 4, false);
    CHECK_UINT(events[0].stack, made);
    fill(events); /* another thread's */
    events[0].thread = OTHER;
    want(ML_CONTEXT_ALLOC, events, 4, true);
    CHECK_UINT(events[0].stack, made);
    CHECK_UINT(events[1].stack, called);
    fill(events); /* of empty_cache(), before a call that allocates */
    events[0].stack = events[1].stack = emptied;
    want(ML_CONTEXT_ALLOC, events, 4, true);
    CHECK_UINT(events[0].stack, made);
    CHECK_UINT(events[1].stack, made);
    fill(events); /* asked for and done in one, by the call that then allocates */
    events[0] = event_of(ML_ACTION_FREE_REQUESTED, 512, called, made);
    events[1] = event_of(ML_ACTION_FREE_COMPLETED, 512, called, made);
    want(ML_CONTEXT_ALLOC, events, 4, true);
    CHECK_UINT(events[0].stack, made);
    CHECK_UINT(events[1].stack, made);
    fill(events); /* nothing captured, nothing known of the block */
    events[0] = event_of(ML_ACTION_FREE_COMPLETED, 512, 0, 0);
    want(ML_CONTEXT_ALLOC, events, 4, true);
    CHECK_UINT(events[0].stack, 0);
    CHECK_UINT(events[0].flags & ML_EVENT_CONTEXT, 0);
    fill(events); /* a request between them and the allocation */
    events[2] = event_of(ML_ACTION_FREE_REQUESTED, 8192, 0, made);
    want(ML_CONTEXT_ALLOC, events, 4, true);
    CHECK_UINT(events[1].stack, made);
}

int
main(void)
{
    if (ml_stacks_new(&stacks, NULL) < 0) {
        return 1;
    }
    made = stack_of(1);
    called = stack_of(2);
    emptied = stack_of(3);
    RUN(test_frees_of_an_allocation_have_its_stack);
    RUN(test_other_frees_have_that_of_what_they_free);
    ml_stacks_free(stacks);
    return TEST_RESULT();
}
