/* Selects the stacks that a recording wanted.  See wanted.h. */
#include "stacks/wanted.h"

#include "stacks/stacks_records.h"

/* A file may refer to stacks that it does not define; the reader reports it. */
static bool
is_native(const ml_stacks *stacks, uint32_t stack)
{
    if (stack == 0 || stack >= ml_stacks_count(stacks)) {
        return false;
    }
    const ml_stack_node *node = node_at(stacks, stack);
    return node->code == 0 && node->fingerprint != 0;
}

static uint32_t
without_native(const ml_stacks *stacks, uint32_t stack)
{
    while (is_native(stacks, stack)) {
        stack = node_at(stacks, stack)->parent;
    }
    return stack;
}

uint32_t
ml_wanted_stack(const ml_wanted *wanted, const ml_stacks *stacks, uint32_t stack)
{
    if (wanted->context == ML_CONTEXT_NONE || stack == ML_STACK_LOST) {
        return 0;
    }
    return wanted->native ? stack : without_native(stacks, stack);
}

uint32_t
ml_wanted_segment(const ml_wanted *wanted, const ml_stacks *stacks,
                  const ml_segment *segment)
{
    /* With context="state" only torch's own stacks are shown: torch forgets a segment's
     * origin once its first block is split. */
    if (segment->split && wanted->context <= ML_CONTEXT_STATE) {
        return 0;
    }
    return ml_wanted_stack(wanted, stacks, segment->stack);
}

static bool
is_allocation(uint8_t action)
{
    return action == ML_ACTION_ALLOC || action == ML_ACTION_OOM ||
           action == ML_ACTION_SEGMENT_ALLOC || action == ML_ACTION_SEGMENT_MAP;
}

/* Whether an allocation caused the free at INDEX.  torch then frees blocks that other
 * streams have finished, or segments to make room, and the free has the allocation's
 * stack.  Other frees are caused by a free or by empty_cache(), which have no stack of
 * their own. */
static bool
is_of_call(const ml_stacks *stacks, const ml_events *events, size_t index,
           const ml_event *event, const ml_wanted_call *call)
{
    bool at_once = index > 0 &&
                   ml_events_action(events, index - 1) == ML_ACTION_FREE_REQUESTED &&
                   ml_events_addr(events, index - 1) == event->addr;
    return event->action != ML_ACTION_FREE_REQUESTED &&
           !(event->action == ML_ACTION_FREE_COMPLETED && at_once) && call->known &&
           (event->flags & ML_EVENT_CONTEXT) != 0 && call->thread == event->thread &&
           without_native(stacks, event->stack) == without_native(stacks, call->stack);
}

static void
note_call(const ml_event *event, ml_wanted_call *call)
{
    if (is_allocation(event->action)) {
        *call = (ml_wanted_call){.thread = event->thread,
                                 .stack = event->stack,
                                 .known = (event->flags & ML_EVENT_CONTEXT) != 0};
    }
    else if (!ml_action_frees(event->action) ||
             event->action == ML_ACTION_FREE_REQUESTED) {
        call->known = false;
    }
}

void
ml_wanted_event(const ml_wanted *wanted, const ml_stacks *stacks,
                const ml_events *events, size_t index, ml_event *event,
                ml_wanted_call *call)
{
    if (call != NULL) {
        note_call(event, call);
    }
    if (ml_action_frees(event->action) && wanted->context == ML_CONTEXT_ALLOC) {
        /* As in torch, a free then shows its block's origin. */
        bool called = call != NULL && is_of_call(stacks, events, index, event, call);
        event->stack = called ? call->stack : event->origin_stack;
        event->flags &= (uint8_t)~ML_EVENT_CONTEXT;
        event->flags |= called || event->stack != 0 ? ML_EVENT_CONTEXT : 0;
    }
    else if (wanted->context < ML_CONTEXT_ALLOC) {
        event->stack = 0;
        event->origin_stack = 0;
        event->flags &= (uint8_t)~ML_EVENT_CONTEXT;
    }
    event->stack = ml_wanted_stack(wanted, stacks, event->stack);
    event->origin_stack = ml_wanted_stack(wanted, stacks, event->origin_stack);
}
