/* Tuning: the allocator settings with which a recorded run would have reserved least.
 *
 * Owns which settings are tried, and the preference among them.  Every choice is text
 * for PYTORCH_CUDA_ALLOC_CONF, and its figures come from a trial of that text. */
#ifndef ML_TUNE_H
#define ML_TUNE_H

#include "lab/whatif/whatif.h"

#define ML_TUNE_CONF_MAX 256

typedef struct ml_tuned {
    char conf[ML_TUNE_CONF_MAX]; /* "": torch's defaults */
    unsigned settings;           /* number of settings in conf */
    ml_trial_result result;
    uint64_t low; /* reserved peak, over driver placements */
    uint64_t high;
} ml_tuned;

#define ML_TUNE_OTHERS_MAX 4

typedef struct ml_tune {
    ml_whatif *whatif; /* owned; the recorded settings, with the requested memory */
    ml_tuned base;     /* those settings; conf is empty */
    /* Bytes cached when the recording began, if the base, as all else, begins without them
     * and reserves less for it; else 0. */
    uint64_t start_cached;
    /* The fewest settings that are as good as any, without those that call the driver
     * more than twice as often as the base. */
    ml_tuned best;
    bool helps; /* best is better than base by enough; else there is no best */
    bool
        /* best, or else base, does not run out of memory.  If nothing fits, both have
         * the memory they need. */
        fits;
    /* Other settings better than base, with no more changes than best; best first. */
    ml_tuned others[ML_TUNE_OTHERS_MAX];
    size_t other_count;
    unsigned trials;    /* number of trials */
    bool out_of_trials; /* the search ended before it was complete */
    uint64_t packed;    /* bytes: no allocator can reserve less for these requests */
    uint64_t
        /* allocated peak if each block were freed after its last use; UINT64_MAX: no
         * last uses recorded */
        freed_soon;
} ml_tune;

/* Prefers what fits, then what seldom ran short of memory, then what reserves less.
 * Differences below 0.5 % of the base, or 2 MiB, do not count.  Arguments and results
 * as ml_whatif_new. */
int ml_tune_new(const ml_recording *recording, size_t device, uint64_t memory,
                ml_tune **out);
void ml_tune_free(ml_tune *tune); /* takes NULL */
/* Only the best, of the recorded run, in the form of ml_whatif_of.  BEFORE came of a trial
 * with OPTIONS, which is not made again.  If *HELPS, fills in BEST, and BEST_OPTIONS of
 * its trial.  Returns as ml_tune_new. */
int ml_tune_best(ml_workload *workload, const ml_trial_options *own,
                 const ml_trial_result *check, const ml_trial_options *options,
                 const ml_trial_result *before, ml_tuned *best,
                 ml_trial_options *best_options, bool *helps);

/* Whether A is the better result by this preference. */
bool ml_tune_is_better(const ml_trial_result *a, const ml_trial_result *b);

#endif
