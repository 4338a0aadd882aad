/* Remedies: changes that make a run fit, each alone, and the smallest set that
 * suffices.
 *
 * Owns the list and the edits that stand for each.  The edits of a remedy change the sizes of
 * a run's demands and its remainder's; a trial tells the saving, and a trial in the memory that
 * there is whether it fits.  The recording does not say types, so that bfloat16 supposes
 * float32 where nothing is cast; each text in Python says what it costs. */
#ifndef ML_REMEDIES_H
#define ML_REMEDIES_H

#include "lab/verdict/remainder.h"

/* JSON values, the cheapest in time and work first. */
#define ML_REMEDIES(XX) \
    XX(NOTHING_KEPT, "nothing_kept") /* what steps leave behind is freed */ \
    XX(SETTINGS, "settings")         /* expandable segments */ \
    XX(LOSS_CHUNKED, "loss_chunked") /* count: chunks */ \
    XX(ATTENTION, "fused_attention") /* SDPA replaces stored scores */ \
    XX(OPTIMIZER_8BIT, "optimizer_8bit") \
    XX(BFLOAT16, "bfloat16")     /* autocast: results of passes are halved */ \
    XX(CHECKPOINT, "checkpoint") /* count: modules of the family */ \
    XX(SMALLER_BATCH, \
       "smaller_batch") /* half the batch, with accumulation; count: 2 */ \
    XX(OPTIMIZER_SGD, "optimizer_sgd") \
    XX(OPTIMIZER_OFFLOADED, "optimizer_offloaded") \
    XX(LORA, "lora") /* gradients and state of all parameters vanish */ \
    XX(FSDP, "fsdp") /* count: GPUs */

enum ml_remedy_kind {
#define XX(name, text) ML_REMEDY_##name,
    ML_REMEDIES(XX)
#undef XX
    ML_REMEDY_COUNT
};

typedef struct ml_remedy {
    uint8_t kind;
    bool exact;      /* the trial changes only settings, not requests */
    bool fits;       /* alone */
    bool chosen;     /* in the smallest set that fits */
    uint32_t count;  /* see the kind; 0: none */
    uint64_t saving; /* reserved bytes */
    uint64_t needs;  /* with this remedy alone */
    ml_string
        module; /* a path up to a number; borrowed of the recording; empty: none */
    const char *library_switch; /* that does it; NULL: none is known */
} ml_remedy;

typedef struct ml_remedies {
    ml_remedy list[ML_REMEDY_COUNT]; /* most saving first */
    size_t count;
    uint64_t needs;    /* without remedies */
    uint64_t together; /* with the chosen ones; 0: none chosen */
} ml_remedies;

/* Remedies for REMAINDER, made with much assumed, on MEMORY bytes (UINT64_MAX: unknown,
 * and nothing is chosen).  OPTIONS: those of its trials.  0 or ML_E*. */
int ml_remedies_find(const ml_remainder *remainder, const ml_advice_case *it,
                     const ml_trial_options *options, ml_remedies *out);

/* The one of KIND; NULL: it saves nothing. */
const ml_remedy *ml_remedies_of(const ml_remedies *remedies, unsigned kind);

const char *ml_remedy_text(unsigned kind); /* "" for an unknown one */

#endif
