/* The forward operation that made an autograd node, found by the node's number.
 *
 * Owns what the events of all threads saw of autograd's counters; it must not know what
 * a line is used for.
 *
 * A node takes its number from a counter of the thread that makes it, before its
 * operation runs.  So what first allocates where the next number is seen is the
 * operation itself, if it allocates, and its place is known.  Most types of nodes
 * say that it does.  Others have a form that works in place: it could be followed,
 * before the next node, by an operation that makes none, and no event tells the two
 * apart.  A view allocates nothing: its place is somewhere between two events of the
 * thread. */
#ifndef ML_FORWARD_MATCH_H
#define ML_FORWARD_MATCH_H

#include "analysis/attribution/stack_facts.h"
#include "recording/recording.h"

typedef struct ml_forward_sample ml_forward_sample;

typedef struct ml_forward_index {
    const ml_recording *recording; /* borrowed */
    const ml_stack_facts *facts;   /* borrowed */
    ml_forward_sample *samples;    /* owned; by thread, number and time */
    size_t sample_count;
    uint8_t *kinds; /* owned; by string id of a node's type: what its forward does */
} ml_forward_index;

enum ml_forward_match_way {
    ML_FORWARD_MATCH_NOWHERE, /* not known */
    ML_FORWARD_MATCH_EXACT,
    ML_FORWARD_MATCH_LIKELY, /* unless it worked in place, and another one came right behind */
    ML_FORWARD_MATCH_BETWEEN
};

typedef struct ml_forward_match {
    uint32_t stack; /* 0: not known */
    /* With BETWEEN: from STACK up to this one, which is as deep and of the same
     * function, or is STACK. */
    uint32_t until;
    uint8_t way; /* enum ml_forward_match_way */
} ml_forward_match;

/* What is borrowed outlives the answers.  0 or ML_ENOMEM. */
int ml_forward_index_init(ml_forward_index *forwards, const ml_recording *recording,
                          const ml_stack_facts *facts);
void ml_forward_index_fini(ml_forward_index *forwards);

/* Of the node that ran at event INDEX of DEVICE. */
ml_forward_match ml_forward_index_find(const ml_forward_index *forwards, size_t device,
                                       size_t index);

#endif
