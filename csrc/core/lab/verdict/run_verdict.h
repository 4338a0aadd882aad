/* The verdict on a run: what happened on a device, why, and what to change.
 *
 * Findings are facts of the recording, the most urgent first.  Changes are advice whose
 * savings were tried (lab/advice/advice.h); the verdict has none where no trials were asked
 * for. */
#ifndef ML_RUN_VERDICT_H
#define ML_RUN_VERDICT_H

#include "analysis/answers/growth.h"
#include "analysis/answers/stages.h"
#include "lab/advice/advice.h"
#include "lab/verdict/blamed_setting.h"
#include "lab/verdict/make_fit.h"

/* Texts are JSON values.  Of each, what bytes and of are.  The order is that of urgency. */
#define ML_FINDINGS(XX) \
    /* the request that failed; of: bytes that torch had reserved */ \
    XX(OUT_OF_MEMORY, "out_of_memory") \
    /* bytes that each step leaves at a line; of: what is kept of it */ \
    XX(GROWS, "grows") \
    /* bytes free for torch at the peak of reserved memory; of: the GPU's */ \
    XX(TIGHT, "tight") \
    /* by which the peak is above that of the training; of: the training's peak */ \
    XX(PEAK_IN_EVALUATION, "peak_in_evaluation") \
    /* free in segments with used blocks, at the peak of reserved memory; of: reserved */ \
    XX(FRAGMENTED, "fragmented") \
    /* reserved and not in use there; of: reserved */ \
    XX(CACHE_HELD, "cache_held") \
    /* used on the GPU by others than torch; of: the GPU's */ \
    XX(OUTSIDE, "outside_torch") \
    /* as of GROWS, of too few steps to tell */ \
    XX(MAY_GROW, "may_grow") \
    /* as of TIGHT */ \
    XX(FITS, "fits")

enum ml_finding_kind {
#define XX(name, text) ML_FINDING_##name,
    ML_FINDINGS(XX)
#undef XX
    ML_FINDING_COUNT
};

#define ML_CHANGES_MOST 3

typedef struct ml_finding {
    uint8_t kind;   /* enum ml_finding_kind */
    uint8_t stage;  /* enum ml_stage in which it is; ML_STAGE_COUNT: in none */
    uint64_t bytes; /* as the kind says */
    uint64_t of;    /* likewise */
    ml_cause cause; /* of the allocation; all 0: of none */
    const ml_growing *growing; /* of the verdict's growth; NULL: of none */
} ml_finding;

typedef struct ml_run_verdict {
    uint8_t stage;      /* enum ml_stage at the peak of allocated memory */
    ml_cause at;        /* of the allocation that made it */
    uint64_t peak_time; /* unix ns */
    ml_totals peak;     /* of each total alone */
    uint64_t total;     /* bytes of the GPU; 0: not known */
    ml_finding findings[ML_FINDING_COUNT];
    size_t finding_count;
    ml_growth *growth;   /* owned */
    ml_advices *advices; /* owned; NULL: nothing was tried */
    /* The best of these, by index: none repeats what one before it saves. */
    size_t changes[ML_CHANGES_MOST];
    size_t change_count;
    ml_make_fit
        fit; /* where HAS_FIT: of a run that ran out of memory, or nearly, and trials */
    bool has_fit;
    ml_blamed_setting blamed; /* of CACHE_HELD, where trials tell it */
} ml_run_verdict;

/* Of a merged RECORDING, which outlives the verdict, it is the part.  TRIALS: whether changes
 * are to be tried, which takes replays of the whole run; a device without segments (cpu) has
 * none.  0, ML_EINVALID for a DEVICE that RECORDING does not have, or ML_ENOMEM. */
int ml_run_verdict_new(const ml_recording *recording, size_t device, bool trials,
                       ml_run_verdict **out);
void ml_run_verdict_free(ml_run_verdict *verdict); /* takes NULL */

const char *ml_finding_text(unsigned kind); /* "" for an unknown one */

#endif
