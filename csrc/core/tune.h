/* Tuning: the allocator settings with which a recorded run would have reserved least.
 *
 * Owns which settings are tried and how one is preferred to another.  Every choice is text
 * as PYTORCH_CUDA_ALLOC_CONF has it, and what is told of it came of a trial of that very
 * text.  It must not know how any of it is worded. */
#ifndef ML_TUNE_H
#define ML_TUNE_H

#include "whatif.h"

#define ML_TUNE_CONF_MAX 256

typedef struct ml_tuned {
    char conf[ML_TUNE_CONF_MAX]; /* "": torch's defaults */
    unsigned settings;           /* that conf changes */
    ml_trial_result result;
    uint64_t low; /* reserved peak, over orders of addresses */
    uint64_t high;
} ml_tuned;

/* Of runners-up. */
#define ML_TUNE_CHOICES_MAX 5

typedef struct ml_tune {
    ml_whatif
        *base; /* owned; the recorded settings, with the memory that was asked for */
    /* Those that reserve least for their number of settings, least first, none of which is
     * worse than the base; choices[best] is the one to take, with which what more settings
     * would save is not worth them.  best is choice_count where nothing helps. */
    ml_tuned choices[ML_TUNE_CHOICES_MAX];
    size_t choice_count;
    size_t best;
    unsigned trials;    /* that were made */
    bool out_of_trials; /* before there was nothing better near the best */
    uint64_t packed;    /* bytes: no allocator can reserve less for these requests */
    uint64_t
        freed_soon; /* peak of allocated bytes if each block were freed after its last
                            use; UINT64_MAX: the recording does not know uses */
} ml_tune;

/* Differences in reserved bytes below 0.5 % of the base, or 2 MiB, are none.  Arguments and
 * results as ml_whatif_new; PROBLEM is not needed. */
int ml_tune_new(const ml_recording *recording, size_t device, uint64_t memory,
                ml_tune **out);
void ml_tune_free(ml_tune *tune); /* takes NULL */

/* Whether A is the better result: it fits, or reserves less. */
bool ml_tune_is_better(const ml_trial_result *a, const ml_trial_result *b);

#endif
