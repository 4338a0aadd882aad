/* The verdict on a run: what happened on a device, why, and what to change.
 *
 * Findings are facts of the recording, most urgent first; that the run fits comes before a peak
 * in an evaluation that is small beside the GPU.  Changes are advice with
 * tried savings (lab/advice/advice.h).  Without trials there are no changes. */
#ifndef ML_RUN_VERDICT_H
#define ML_RUN_VERDICT_H

#include "analysis/answers/growth.h"
#include "analysis/answers/stages.h"
#include "lab/advice/advice.h"
#include "lab/verdict/blamed_setting.h"
#include "lab/verdict/make_fit.h"

/* JSON values, in the order of urgency: where the run fits, memory that is held without use
 * costs nothing.  Each comment says what bytes and of hold. */
#define ML_FINDINGS(XX) \
    /* the failed request; of: torch's reserved bytes */ \
    XX(OUT_OF_MEMORY, "out_of_memory") \
    /* free on the GPU when a library or the driver found no room; of: the GPU's.  0: not \
     * known */ \
    XX(NO_ROOM_OUTSIDE, "no_room_outside_torch") \
    /* bytes that each step leaves at a line; of: all that has been left */ \
    XX(GROWS, "grows") \
    /* as GROWS, of cuBLAS's workspaces, which each step leaves for a new stream */ \
    XX(WORKSPACES_GROW, "workspaces_grow") \
    /* bytes free for torch at the reserved peak; of: those that processes can have */ \
    XX(TIGHT, "tight") \
    /* bytes by which the peak exceeds training's; of: the training's peak */ \
    XX(PEAK_IN_EVALUATION, "peak_in_evaluation") \
    /* as TIGHT */ \
    XX(FITS, "fits") \
    /* free bytes in segments with used blocks, at the reserved peak; of: reserved */ \
    XX(FRAGMENTED, "fragmented") \
    /* reserved and unused then; of: reserved */ \
    XX(CACHE_HELD, "cache_held") \
    /* bytes used on the GPU by others than torch; of: the GPU's */ \
    XX(OUTSIDE, "outside_torch") \
    /* as GROWS, with too few steps to be sure */ \
    XX(MAY_GROW, "may_grow")

enum ml_finding_kind {
#define XX(name, text) ML_FINDING_##name,
    ML_FINDINGS(XX)
#undef XX
    ML_FINDING_COUNT
};

#define ML_CHANGES_MOST 3
#define ML_VERDICT_TRIED_EVENTS 200000

typedef struct ml_finding {
    uint8_t kind;              /* enum ml_finding_kind */
    uint8_t stage;             /* enum ml_stage; ML_STAGE_COUNT: none */
    uint64_t bytes;            /* see the kind */
    uint64_t of;               /* likewise */
    uint64_t others;           /* of OUTSIDE: bytes of other processes; 0: few */
    uint32_t said;             /* string: the finding in words; 0: not recorded */
    ml_cause cause;            /* of the allocation; all 0: none */
    const ml_growing *growing; /* in the verdict's growth; NULL: none */
} ml_finding;

typedef struct ml_run_verdict {
    uint8_t stage;      /* enum ml_stage at the allocated peak */
    ml_cause at;        /* of the allocation that made the peak */
    uint64_t peak_time; /* unix ns */
    ml_totals peak;     /* each total's own peak */
    uint64_t total;     /* bytes of the GPU that processes can have; 0: unknown */
    ml_finding findings[ML_FINDING_COUNT];
    size_t finding_count;
    const ml_growth *growth; /* borrowed */
    ml_advices *advices;     /* owned; NULL: no trials */
    /* The best of these, by index.  None repeats an earlier one's saving. */
    size_t changes[ML_CHANGES_MOST];
    size_t change_count;
    ml_make_fit
        /* if HAS_FIT: the run ran out of torch's memory, or nearly, and there were trials */
        fit;
    bool has_fit;
    ml_blamed_setting blamed; /* of CACHE_HELD, where trials tell it */
} ml_run_verdict;

/* RECORDING outlives the verdict; of a merged recording, pass the part.  TRIALS: try
 * changes, which replays the whole run; a device without segments (cpu) has none.  0,
 * ML_EINVALID for a DEVICE that RECORDING lacks, or ML_ENOMEM. */
int ml_run_verdict_new(const ml_recording *recording, size_t device, bool trials,
                       ml_run_verdict **out);
/* Whether DEVICE of RECORDING, which has it, is short enough for trials that nobody asked
 * for: up to ML_VERDICT_TRIED_EVENTS.  Of a merged recording, pass the part. */
bool ml_run_verdict_tries(const ml_recording *recording, size_t device);
void ml_run_verdict_free(ml_run_verdict *verdict); /* takes NULL */

const char *ml_finding_text(unsigned kind); /* "" for an unknown one */

#endif
