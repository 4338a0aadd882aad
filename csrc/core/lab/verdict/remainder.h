/* The remainder of a run that ran out of memory: what it would have asked for next.
 *
 * Owns the estimate, as demands behind the recorded ones: the rest of the forward pass from
 * modules of the same family that had ended, the backward pass from what waits for it,
 * gradients and the optimizer's state from the parameters, and the pass after the first
 * step.  Where a pass had ended before, its rest is the remainder instead.
 *
 * What no recording tells is assumed twice, once for little memory and once for much: the
 * truth lies between, unless a doubt is named. */
#ifndef ML_REMAINDER_H
#define ML_REMAINDER_H

#include "lab/advice/advice_case.h"

/* Why the remainder cannot be told; JSON values. */
#define ML_UNTOLD(XX) \
    XX(OWNERS, "the parameters are not known") \
    XX(LOADING, "it ran out before the first forward pass") \
    XX(STAGE, "no module's call or backward pass was under way") \
    XX(MODULES, "modules that were not reached resemble none that was") \
    XX(GROWTH, "memory grows from step to step") \
    XX(SIZES, "the last step asks for other sizes than the one before it") \
    XX(GENERATION, "how much is still to be generated is not known")

enum ml_untold {
#define XX(name, text) ML_UNTOLD_##name,
    ML_UNTOLD(XX)
#undef XX
    ML_UNTOLD_COUNT
};

enum ml_remainder_kind {
    ML_REST_KEPT, /* beyond the pass */
    ML_REST_PASS, /* until the backward pass has come to it */
    ML_REST_BRIEF,
    ML_REST_GRADIENT
};

typedef struct ml_remainder_item {
    bool scales;      /* with the batch */
    uint8_t kind;     /* enum ml_remainder_kind */
    uint8_t category; /* enum ml_category; UNKNOWN: what a pass makes */
    uint8_t pad;
    uint32_t like; /* demand of the recording that it resembles */
} ml_remainder_item;

typedef struct ml_remainder {
    ml_workload *workload;    /* owned; the run until it failed, and the remainder */
    ml_remainder_item *items; /* owned; of each of its demands */
    ml_device_trace trace;    /* as long as that takes, without events */
    uint32_t *of_event;       /* owned */
    ml_mark *marks;           /* owned */
    size_t failed;   /* event of the request that failed; ML_NO_EVENT: none did */
    size_t recorded; /* demands of the recording */
    size_t capacity;
    /* Bytes that the recording did not live to see, of one pass. */
    uint64_t forward;
    uint64_t gradients;
    uint64_t state;       /* of the optimizer; with STATE_ASSUMED Adam's */
    uint64_t parameters;  /* seen */
    uint64_t activations; /* of a whole forward pass */
    uint32_t modules;     /* that were not reached */
    bool state_assumed;
    bool trains;     /* a backward pass follows, or followed */
    uint32_t untold; /* bit for each enum ml_untold; 0: none */
} ml_remainder;

/* Of IT; without a request that failed it is the run as it was.  MUCH: what is not known is
 * assumed to take much.  0 or ML_ENOMEM, after which there is nothing to take down. */
int ml_remainder_init(ml_remainder *remainder, const ml_advice_case *it, bool much);
void ml_remainder_fini(ml_remainder *remainder);

/* A trial with PARTS of WHOLE of what grows with the batch; as ml_trial_run. */
int ml_remainder_try(const ml_remainder *remainder, const ml_trial_options *options,
                     uint32_t parts, uint32_t whole, ml_trial_result *out);

const char *ml_untold_text(unsigned untold); /* "" for an unknown one */

#endif
