/* Finds the forward operation that made an autograd node.  See forward_match.h. */
#include "analysis/attribution/forward_match.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/attribution/node_types.h"
#include "base/base.h"

/* A thread's activity when its next node would get number NEXT. */
struct ml_forward_sample {
    uint64_t next;
    uint64_t order;    /* of the event, in time */
    uint64_t sequence; /* of the node that ran, if any, as in its event */
    uint32_t stack;
    uint32_t node;        /* string: its type */
    uint16_t thread;      /* of NEXT */
    uint16_t node_thread; /* of SEQUENCE; 0: no node ran */
    bool is_alloc;
};

/* Most orders of nested gradients. */
#define MOST_NESTED 8

/* ---- Which events tell ---- */

static bool
is_backward(const ml_event *event)
{
    return (event->flags & ML_EVENT_BACKWARD) != 0;
}

static int
compare_samples(const void *a, const void *b)
{
    const ml_forward_sample *x = a;
    const ml_forward_sample *y = b;
    if (x->thread != y->thread) {
        return x->thread < y->thread ? -1 : 1;
    }
    if (x->next != y->next) {
        return x->next < y->next ? -1 : 1;
    }
    return x->order < y->order ? -1 : x->order > y->order;
}

/* By address id: the stack of the last allocation there. */
typedef struct births {
    ml_intern addresses;
    uint64_t *addr; /* owned, as the next */
    uint32_t *stack;
    size_t addr_capacity;
    size_t stack_capacity;
    uint64_t wanted;
} births;

static bool
is_wanted(const void *context, uint32_t id)
{
    const births *of = context;
    return of->addr[id] == of->wanted;
}

static bool
find_birth(births *of, uint64_t addr, uint32_t *id)
{
    of->wanted = addr;
    return ml_intern_find(&of->addresses, ml_hash_u64(addr), is_wanted, of, id) != 0;
}

static int
keep_birth(births *of, const ml_event *event)
{
    uint32_t id;
    if (!find_birth(of, event->addr, &id)) {
        id = (uint32_t)of->addresses.count;
        if (ml_grow((void **)&of->addr, &of->addr_capacity, (size_t)id + 1,
                    sizeof(*of->addr)) < 0 ||
            ml_grow((void **)&of->stack, &of->stack_capacity, (size_t)id + 1,
                    sizeof(*of->stack)) < 0 ||
            ml_intern_add(&of->addresses, ml_hash_u64(event->addr)) < 0) {
            return ML_ENOMEM;
        }
        of->addr[id] = event->addr;
    }
    of->stack[id] = event->stack;
    return 0;
}

/* Whether frees have stacks of their own.  With the context of allocations alone, a
 * free shows its allocation's stack, which does not belong to its moment. */
static int
frees_tell(const ml_device_trace *trace, bool *out)
{
    *out = false;
    births of = {0};
    int result = 0;
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events,
                         ML_EVENT_BIT(addr) | ML_EVENT_BIT(stack) |
                             ML_EVENT_BIT(action));
    for (size_t i = 0; i < trace->event_count && result == 0 && !*out; i++) {
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        uint32_t id;
        if (event->action == ML_ACTION_ALLOC) {
            result = keep_birth(&of, event);
        }
        else if (ml_action_frees_block(event->action) && event->stack != 0 &&
                 find_birth(&of, event->addr, &id)) {
            *out = of.stack[id] != 0 && of.stack[id] != event->stack;
        }
    }
    ml_intern_fini(&of.addresses);
    ml_free(of.addr);
    ml_free(of.stack);
    return result;
}

/* Within a device the order is known better than by time. */
static uint64_t
order_of(const ml_recording *recording, size_t device, size_t index)
{
    return recording->device_count == 1
               ? index
               : ml_events_time(&recording->devices[device].events, index);
}

/* If EVENT saw a counter. */
static int
take_sample(ml_forward_index *forwards, size_t device, size_t index,
            const ml_event *event)
{
    bool alloc = event->action == ML_ACTION_ALLOC;
    bool backward = is_backward(event);
    uint16_t thread = backward ? event->next_thread : event->autograd_thread;
    if (thread == 0 ||
        !(alloc || (forwards->frees && ml_action_frees_block(event->action)))) {
        return 0;
    }
    if (ml_grow((void **)&forwards->samples, &forwards->sample_capacity,
                forwards->sample_count + 1, sizeof(ml_forward_sample)) < 0) {
        return ML_ENOMEM;
    }
    ml_forward_sample *sample = &forwards->samples[forwards->sample_count++];
    *sample = (ml_forward_sample){.next = backward ? event->next : event->sequence,
                                  .order = order_of(forwards->recording, device, index),
                                  .stack = event->stack,
                                  .thread = thread,
                                  .is_alloc = alloc};
    if (backward) {
        sample->sequence = event->sequence;
        sample->node = event->node;
        sample->node_thread = event->autograd_thread;
    }
    return 0;
}

/* ---- Types of nodes ---- */

static void
find_kind(ml_forward_index *forwards, uint32_t node)
{
    uint8_t *kind = &forwards->kinds[node];
    if (*kind == ML_NODE_UNSEEN) {
        *kind = ml_node_kind(forwards->recording->strings[node]);
    }
}

/* ---- Two places of one function ---- */

static size_t
depth_of(const ml_recording *recording, uint32_t stack)
{
    size_t depth = 0;
    for (; stack != 0; stack = recording->stacks[stack].parent) {
        depth++;
    }
    return depth;
}

/* The innermost function common to BEFORE and AFTER, and its positions then.  Code
 * between them ran in these lines, in lines between, or in their callees. */
static ml_forward_match
shared_part(const ml_recording *recording, uint32_t before, uint32_t after)
{
    size_t deep = depth_of(recording, before);
    size_t other = depth_of(recording, after);
    uint32_t below = 0; /* the frame inside of it in BEFORE */
    uint32_t after_below = 0;
    for (; deep > other; deep--) {
        below = before;
        before = recording->stacks[before].parent;
    }
    for (; other > deep; other--) {
        after_below = after;
        after = recording->stacks[after].parent;
    }
    while (before != after) {
        below = before;
        after_below = after;
        before = recording->stacks[before].parent;
        after = recording->stacks[after].parent;
    }
    if (below != 0 && after_below != 0 &&
        ml_frame_same_function(recording, recording->stacks[below].frame,
                               recording->stacks[after_below].frame)) {
        return (ml_forward_match){below, after_below, ML_FORWARD_MATCH_BETWEEN};
    }
    return (ml_forward_match){before, before, ML_FORWARD_MATCH_BETWEEN};
}

/* ---- The operation ---- */

/* A node and the time of its run, which its making precedes. */
typedef struct sought {
    uint64_t sequence;
    uint64_t order;
    uint32_t type;
    uint16_t thread;
} sought;

/* The first sample of THREAD with NEXT or more; if there is none, sample_count or one
 * of another thread. */
static size_t
find_sample(const ml_forward_index *forwards, uint16_t thread, uint64_t next)
{
    size_t low;
    ML_SEARCH(low, forwards->sample_count,
              forwards->samples[low].thread < thread ||
                  (forwards->samples[low].thread == thread &&
                   forwards->samples[low].next < next));
    return low;
}

/* Whether a node made SAMPLE, and not Python code that it ran. */
static bool
is_nodes(const ml_forward_index *forwards, const ml_forward_sample *sample)
{
    return sample->node_thread != 0 &&
           forwards->facts->of[sample->stack].inner.place >= ML_PLACE_NATIVE;
}

/* Whether AFTER, the first event after NODE's number, belongs to its operation. */
static enum ml_forward_match_way
tells(const ml_forward_index *forwards, const sought *node,
      const ml_forward_sample *after)
{
    if (after->next != node->sequence + 1 || !after->is_alloc) {
        return ML_FORWARD_MATCH_BETWEEN;
    }
    switch (forwards->kinds[node->type]) {
    case ML_NODE_BARE:
        return ML_FORWARD_MATCH_BETWEEN;
    case ML_NODE_PYTHON:
        return forwards->facts->of[after->stack].function ? ML_FORWARD_MATCH_EXACT
                                                          : ML_FORWARD_MATCH_BETWEEN;
    case ML_NODE_ALLOCATES:
        return ML_FORWARD_MATCH_EXACT;
    default:
        return ML_FORWARD_MATCH_LIKELY;
    }
}

static ml_forward_match
find_forward(const ml_forward_index *forwards, sought node, unsigned nested)
{
    const ml_forward_match nowhere = {0, 0, ML_FORWARD_MATCH_NOWHERE};
    if (node.thread == 0 || node.sequence == UINT64_MAX || nested == MOST_NESTED) {
        return nowhere;
    }
    size_t at = find_sample(forwards, node.thread, node.sequence + 1);
    const ml_forward_sample *after = &forwards->samples[at];
    const ml_forward_sample *before = at == 0 ? NULL : after - 1;
    if (at == forwards->sample_count || after->thread != node.thread ||
        after->order >= node.order) {
        return nowhere;
    }
    enum ml_forward_match_way way = tells(forwards, &node, after);
    bool between = way == ML_FORWARD_MATCH_BETWEEN;
    /* Made before the first event, at an unknown place. */
    if (between && (before == NULL || before->thread != node.thread)) {
        return nowhere;
    }
    if (is_nodes(forwards, after)) {
        /* Made by a pass that is itself differentiated: the place is that of the
         * running node. */
        if (between &&
            (!is_nodes(forwards, before) || before->node_thread != after->node_thread ||
             before->sequence != after->sequence)) {
            return nowhere;
        }
        sought maker = {after->sequence, after->order, after->node, after->node_thread};
        ml_forward_match found = find_forward(forwards, maker, nested + 1);
        if (way == ML_FORWARD_MATCH_LIKELY && found.way == ML_FORWARD_MATCH_EXACT) {
            found.way = ML_FORWARD_MATCH_LIKELY;
        }
        return found;
    }
    if (!between) {
        return (ml_forward_match){after->stack, 0, (uint8_t)way};
    }
    return is_nodes(forwards, before)
               ? nowhere
               : shared_part(forwards->recording, before->stack, after->stack);
}

ml_forward_match
ml_forward_index_find(const ml_forward_index *forwards, size_t device, size_t index)
{
    const ml_events *events = &forwards->recording->devices[device].events;
    sought node = {
        ml_events_sequence(events, index), order_of(forwards->recording, device, index),
        ml_events_node(events, index), ml_events_autograd_thread(events, index)};
    return find_forward(forwards, node, 0);
}

int
ml_forward_index_init(ml_forward_index *forwards, const ml_recording *recording,
                      const ml_stack_facts *facts)
{
    *forwards = (ml_forward_index){.recording = recording, .facts = facts};
    forwards->kinds = ml_alloc_zeroed(recording->string_count, 1);
    if (forwards->kinds == NULL) {
        return ML_ENOMEM;
    }
    find_kind(forwards, 0);
    return 0;
}

int
ml_forward_index_begin(ml_forward_index *forwards, size_t device)
{
    return frees_tell(&forwards->recording->devices[device], &forwards->frees);
}

int
ml_forward_index_take(ml_forward_index *forwards, size_t device, size_t index,
                      const ml_event *event)
{
    find_kind(forwards, event->node);
    return take_sample(forwards, device, index, event);
}

void
ml_forward_index_end(ml_forward_index *forwards)
{
    if (forwards->sample_count > 0) {
        qsort(forwards->samples, forwards->sample_count, sizeof(ml_forward_sample),
              compare_samples);
    }
}

void
ml_forward_index_fini(ml_forward_index *forwards)
{
    ml_free(forwards->samples);
    ml_free(forwards->kinds);
    *forwards = (ml_forward_index){0};
}
