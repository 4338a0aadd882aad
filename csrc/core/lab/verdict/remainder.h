/* The remainder of a run that ran out of memory: the requests that would have come
 * next.
 *
 * Owns the estimate, as demands after the recorded ones.  The rest of the forward pass
 * repeats finished modules of the same family.  The backward pass follows from the
 * blocks that wait for it, gradients and optimizer state from the parameters; then
 * comes the pass after the first step.  If an earlier pass had ended, its rest is the
 * remainder instead.
 *
 * Unknown amounts are assumed small and large.  The truth lies between, unless a doubt
 * is named; where the free blocks lie otherwise, it may take more than either. */
#ifndef ML_REMAINDER_H
#define ML_REMAINDER_H

#include "lab/advice/advice_case.h"

/* Of the memory one in so many is left for what placement and libraries change. */
#define ML_FIT_MARGIN_PART 64

/* Why the remainder is unknown; JSON values. */
#define ML_UNTOLD(XX) \
    XX(OWNERS, "the parameters are not known") \
    XX(LOADING, "it ran out before the first forward pass") \
    XX(STAGE, "no module's call or backward pass was under way") \
    XX(MODULES, "modules that were not reached resemble none that was") \
    XX(GROWTH, "memory grows from step to step") \
    XX(SIZES, "the last step asks for other sizes than the one before it") \
    XX(CHECKPOINT, "how much a checkpoint still makes again is not known") \
    XX(GENERATION, "how much is still to be generated is not known") \
    XX(WORKSPACES, "what convolutions take for their backward pass is not known")

enum ml_untold {
#define XX(name, text) ML_UNTOLD_##name,
    ML_UNTOLD(XX)
#undef XX
    ML_UNTOLD_COUNT
};

enum ml_remainder_kind {
    ML_REST_KEPT, /* outlives the pass */
    ML_REST_PASS, /* until the backward pass reaches it */
    ML_REST_BRIEF,
    ML_REST_GRADIENT
};

/* What is assumed where a recording does not tell. */
enum ml_assumed {
    ML_ASSUMED_SMALL,
    ML_ASSUMED_LARGE,
    /* As large, but a library takes its workspace for a backward pass late, from what the
     * pass freed: the next pass finds less in one piece. */
    ML_ASSUMED_LATE,
    ML_ASSUMED_COUNT
};

typedef struct ml_remainder_item {
    bool scales;      /* with the batch */
    uint8_t kind;     /* enum ml_remainder_kind */
    uint8_t category; /* enum ml_category; UNKNOWN: made by a pass */
    bool of_step;     /* a temporary of the optimizer's step */
    bool apart;       /* of a head or a loss to come, though it resembles a module's */
    uint32_t like;    /* the recorded demand that it resembles */
} ml_remainder_item;

typedef struct ml_remainder {
    ml_workload *workload;    /* owned; the run up to the failure, and the remainder */
    ml_remainder_item *items; /* owned; by demand of workload */
    ml_device_trace trace;    /* as long as the workload, without events */
    uint32_t *of_event;       /* owned */
    ml_mark *marks;           /* owned */
    size_t failed;            /* event of the failed request; ML_NO_EVENT: none */
    size_t recorded;          /* number of recorded demands */
    size_t capacity;
    /* Bytes of one pass that were not recorded. */
    uint64_t forward;
    uint64_t gradients;
    uint64_t state;       /* of the optimizer; with STATE_ASSUMED that of Adam */
    uint64_t parameters;  /* seen */
    uint64_t activations; /* bytes of a whole forward pass */
    uint64_t loss; /* of a loss over classes still to come, in float32; 0: none known */
    uint32_t modules; /* modules not reached */
    bool state_assumed;
    bool trains;       /* a backward pass follows or followed */
    bool sizes_differ; /* from pass to pass */
    uint32_t untold;   /* bit for each enum ml_untold; 0: none */
} ml_remainder;

/* The remainder of IT; without a failed request, the run unchanged.  0, or ML_ENOMEM with
 * nothing to free. */
int ml_remainder_init(ml_remainder *remainder, const ml_advice_case *it,
                      enum ml_assumed assumed);
void ml_remainder_fini(ml_remainder *remainder);

/* A trial with all that scales with the batch multiplied by PARTS / WHOLE.  Returns as
 * ml_trial_run. */
int ml_remainder_try(const ml_remainder *remainder, const ml_trial_options *options,
                     uint32_t parts, uint32_t whole, ml_trial_result *out);

const char *ml_untold_text(unsigned untold); /* "" for an unknown one */

#endif
