/* The forward operation that made an autograd node, found by the node's number.
 *
 * Keeps the values of autograd's counters in the events of all threads.
 *
 * A node takes its number from a counter of the thread that makes it, before its
 * operation runs.  So the first allocation with the next number is the operation's own,
 * if it allocates, and its place is known.  For most types of nodes the operation
 * always allocates.  Others have a form that works in place.  An operation without a
 * node may follow it before the next node, and no event tells the two apart.  A view
 * allocates nothing: its place is somewhere between two events of the thread. */
#ifndef ML_FORWARD_MATCH_H
#define ML_FORWARD_MATCH_H

#include "analysis/attribution/stack_facts.h"
#include "recording/recording.h"

typedef struct ml_forward_sample ml_forward_sample;

#define ML_FORWARD_INDEX_MEMBERS \
    (ML_EVENT_BIT(sequence) | ML_EVENT_BIT(next) | ML_EVENT_BIT(stack) | \
     ML_EVENT_BIT(node) | ML_EVENT_BIT(autograd_thread) | ML_EVENT_BIT(next_thread) | \
     ML_EVENT_BIT(action) | ML_EVENT_BIT(flags))

typedef struct ml_forward_index {
    const ml_recording *recording; /* borrowed */
    const ml_stack_facts *facts;   /* borrowed */
    ml_forward_sample *samples;    /* owned; by thread, number and time */
    size_t sample_count;
    size_t sample_capacity;
    uint8_t *kinds; /* owned; by string id of a node's type: what its forward does */
    bool frees;     /* those of the device whose events are added tell, too */
} ml_forward_index;

enum ml_forward_match_way {
    ML_FORWARD_MATCH_NOWHERE, /* not known */
    ML_FORWARD_MATCH_EXACT,
    /* unless it worked in place, and another followed at once */
    ML_FORWARD_MATCH_LIKELY,
    ML_FORWARD_MATCH_BETWEEN
};

typedef struct ml_forward_match {
    uint32_t stack; /* 0: not known */
    /* With BETWEEN: the place is between STACK and this stack, which has the same depth
     * and function, or is STACK. */
    uint32_t until;
    uint8_t way; /* enum ml_forward_match_way */
} ml_forward_match;

/* RECORDING and FACTS are borrowed and outlive the answers.  Then for each device _begin,
 * and _add for each of its events; _end after the last.  0 or ML_ENOMEM. */
int ml_forward_index_init(ml_forward_index *forwards, const ml_recording *recording,
                          const ml_stack_facts *facts);
int ml_forward_index_begin(ml_forward_index *forwards, size_t device);
/* Reads the ML_FORWARD_INDEX_MEMBERS of EVENT. */
int ml_forward_index_take(ml_forward_index *forwards, size_t device, size_t index,
                          const ml_event *event);
static inline int
ml_forward_index_add(ml_forward_index *forwards, size_t device, size_t index,
                     const ml_event *event)
{
    return (event->node | event->autograd_thread | event->next_thread) != 0
               ? ml_forward_index_take(forwards, device, index, event)
               : 0;
}
void ml_forward_index_end(ml_forward_index *forwards);
void ml_forward_index_fini(ml_forward_index *forwards);

/* The forward operation of the node that ran at event INDEX of DEVICE. */
ml_forward_match ml_forward_index_find(const ml_forward_index *forwards, size_t device,
                                       size_t index);

#endif
