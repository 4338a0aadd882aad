/* Remedies: what would make a run fit, each alone and the smallest set that does.
 *
 * Owns the list and the edits that stand for each.  The edits of a remedy change the sizes of
 * a run's demands and its remainder's; a trial tells the saving, and a trial in the memory that
 * there is whether it fits.  The recording does not say types, so that bfloat16 supposes
 * float32; each text in Python says what it costs. */
#ifndef ML_REMEDIES_H
#define ML_REMEDIES_H

#include "lab/verdict/remainder.h"

/* Of the memory one in so many is left for what placement and libraries change. */
#define ML_FIT_MARGIN_PART 64

/* JSON values, the cheapest in time and work first. */
#define ML_REMEDIES(XX) \
    XX(SETTINGS, "settings")         /* expandable segments */ \
    XX(LOSS_CHUNKED, "loss_chunked") /* count: chunks */ \
    XX(ATTENTION, "fused_attention") /* SDPA in place of scores that are kept */ \
    XX(OPTIMIZER_8BIT, "optimizer_8bit") \
    XX(BFLOAT16, "bfloat16")           /* autocast: what passes make is halved */ \
    XX(CHECKPOINT, "checkpoint")       /* count: modules of the family */ \
    XX(SMALLER_BATCH, "smaller_batch") /* half, with accumulation; count: 2 */ \
    XX(OPTIMIZER_SGD, "optimizer_sgd") \
    XX(OPTIMIZER_OFFLOADED, "optimizer_offloaded") \
    XX(LORA, "lora") /* gradients and state of all parameters go */ \
    XX(FSDP, "fsdp") /* count: GPUs */

enum ml_remedy_kind {
#define XX(name, text) ML_REMEDY_##name,
    ML_REMEDIES(XX)
#undef XX
    ML_REMEDY_COUNT
};

typedef struct ml_remedy {
    uint8_t kind;
    bool exact;      /* the trial is of the program's own requests: settings alone */
    bool fits;       /* alone */
    bool chosen;     /* of the smallest set that fits */
    uint32_t count;  /* as the kind says; 0: none */
    uint64_t saving; /* reserved bytes */
    uint64_t needs;  /* with it alone */
    ml_string
        module; /* a path up to a number; borrowed of the recording; empty: none */
} ml_remedy;

typedef struct ml_remedies {
    ml_remedy list[ML_REMEDY_COUNT]; /* most saving first */
    size_t count;
    uint64_t needs;    /* as it is */
    uint64_t together; /* with the chosen ones; 0: none are */
} ml_remedies;

/* Of REMAINDER, of which much was assumed, on MEMORY bytes (UINT64_MAX: not known, nothing
 * is chosen).  OPTIONS: as trials of it have them.  0 or ML_E*. */
int ml_remedies_find(const ml_remainder *remainder, const ml_advice_case *it,
                     const ml_trial_options *options, ml_remedies *out);

const char *ml_remedy_text(unsigned kind); /* "" for an unknown one */

#endif
