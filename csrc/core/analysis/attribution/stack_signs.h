/* Signs of autograd in stacks, for recordings without autograd's numbers: torch's own
 * snapshots.
 *
 * Owns which events then count as a backward pass's, and which frames make a model.
 * Autograd's threads run no Python code of their own.  So a stack without Python frames
 * is theirs.  So is one whose outermost Python frame does not begin a program's thread:
 * a checkpoint's, a hook's, a custom function's.  Programs can break these rules. */
#ifndef ML_STACK_SIGNS_H
#define ML_STACK_SIGNS_H

#include "analysis/attribution/stack_facts.h"
#include "analysis/lifetimes/lifetimes.h"
#include "recording/recording.h"

enum ml_stack_sign {
    ML_SIGN_BACKWARD = 1, /* of a backward pass */
    ML_SIGN_PARAMETER = 2,
    ML_SIGN_BUFFER = 4,    /* a model's tensors are made, moved or loaded */
    ML_SIGN_OPTIMIZER = 8, /* an optimizer's code of any kind */
    ML_SIGN_CLEARS = 16    /* zero_grad() */
};

typedef struct ml_stack_signs {
    uint8_t
        *of; /* owned; ML_SIGN_*, by stack; NULL: the recording needs no estimates */
} ml_stack_signs;

/* 0 or ML_ENOMEM. */
int ml_stack_signs_init(ml_stack_signs *signs, const ml_recording *recording,
                        const ml_stack_facts *facts);
void ml_stack_signs_fini(ml_stack_signs *signs);

/* Sets BACKWARD, by event of TRACE: whether a backward pass made it. */
void ml_stack_signs_find_passes(const ml_stack_signs *signs,
                                const ml_device_trace *trace, bool *backward);

/* Whether zero_grad() frees a block of EVENTS at REQUESTED, a moment or ML_NEVER; false if the
 * recording needs no estimates. */
static inline bool
ml_stack_signs_clear(const ml_stack_signs *signs, const ml_events *events,
                     uint32_t requested)
{
    return signs->of != NULL && requested != 0 && requested != ML_NEVER &&
           (signs->of[ml_events_stack(events, requested - 1)] & ML_SIGN_CLEARS) != 0;
}

#endif
