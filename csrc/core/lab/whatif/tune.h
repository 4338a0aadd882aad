/* Tuning: the allocator settings with which a recorded run would have reserved least.
 *
 * Owns which settings are tried and how one is preferred to another.  Every choice is
 * text as PYTORCH_CUDA_ALLOC_CONF has it, and what is told of it came of a trial of
 * that very text. */
#ifndef ML_TUNE_H
#define ML_TUNE_H

#include "lab/whatif/whatif.h"

#define ML_TUNE_CONF_MAX 256

typedef struct ml_tuned {
    char conf[ML_TUNE_CONF_MAX]; /* "": torch's defaults */
    unsigned settings;           /* that conf changes */
    ml_trial_result result;
    uint64_t low; /* reserved peak, over driver placements */
    uint64_t high;
} ml_tuned;

#define ML_TUNE_OTHERS_MAX 4

typedef struct ml_tune {
    ml_whatif
        *whatif; /* owned; the recorded settings, with the memory that was asked for */
    ml_tuned base; /* of these settings; conf is empty */
    /* With the fewest settings of those whose result is not worth less than any other's, but
     * for those that ask the driver more than twice as often as the base. */
    ml_tuned best;
    bool helps; /* best is worth more than base; else there is none */
    bool
        fits; /* best, or base where nothing helps, does not run out of memory.  Where no
                   settings do, base and best are of as much memory as they need. */
    /* Other settings than best's that are worth more than base, no more of them than best
     * has, best first. */
    ml_tuned others[ML_TUNE_OTHERS_MAX];
    size_t other_count;
    unsigned trials;    /* that were made */
    bool out_of_trials; /* before there was nothing better near the best */
    uint64_t packed;    /* bytes: no allocator can reserve less for these requests */
    uint64_t
        freed_soon; /* peak of allocated bytes if each block were freed after its last
                            use; UINT64_MAX: the recording does not know uses */
} ml_tune;

/* What fits is better than what does not, then what seldom ran short of memory, then what
 * reserves less, where differences below 0.5 % of the base, or 2 MiB, are none.  Arguments and
 * results as ml_whatif_new. */
int ml_tune_new(const ml_recording *recording, size_t device, uint64_t memory,
                ml_tune **out);
void ml_tune_free(ml_tune *tune); /* takes NULL */
/* The best alone, of the recorded run, as ml_whatif_of has it: CONF is filled in where
 * *HELPS.  As ml_tune_new. */
int ml_tune_best(ml_workload *workload, const ml_trial_options *own,
                 const ml_trial_result *check, char conf[ML_TUNE_CONF_MAX],
                 bool *helps);

/* Whether A is the better result by that. */
bool ml_tune_is_better(const ml_trial_result *a, const ml_trial_result *b);

#endif
