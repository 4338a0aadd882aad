/* What if: the same run with other settings or other memory.
 *
 * Owns how a replay of the recorded run and a trial become one answer, and what of it
 * is exact. */
#ifndef ML_WHATIF_H
#define ML_WHATIF_H

#include "lab/whatif/trial.h"

#define ML_WHATIF_RECORDED UINT64_MAX

typedef struct ml_whatif {
    ml_workload *workload;    /* owned, unless the answer is ml_whatif_of's */
    bool borrowed;            /* workload */
    ml_schedule schedule;     /* owned; of workload */
    ml_trial_options own;     /* the recorded run, as far as known */
    ml_trial_result check;    /* the model's result for own */
    ml_trial_options options; /* of the trial; own if nothing was asked */
    ml_trial_result result;   /* the trial's result; check if nothing was asked */
    bool asked;               /* for something other than the recorded run */
    uint64_t low; /* reserved peak, over the driver placements that were tried */
    uint64_t high;
    uint64_t least_memory; /* enough not to run out; 0: it does not run out */
    uint32_t doubts;       /* bit for each enum ml_doubt: why the answer is not exact */
} ml_whatif;

/* CONF: settings as in PYTORCH_CUDA_ALLOC_CONF, or NULL for the recorded ones.  MEMORY:
 * bytes for the allocator, or ML_WHATIF_RECORDED.  0; an error of ml_workload_new; or
 * ML_EINVALID for settings that torch would refuse, with a sentence in PROBLEM of
 * PROBLEM_BYTES.  PROBLEM may be NULL, with 0 bytes. */
int ml_whatif_new(const ml_recording *recording, size_t device, const char *conf,
                  uint64_t memory, ml_whatif **out, char *problem,
                  size_t problem_bytes);
/* The recorded run: OWN and CHECK come from ml_trial_check of WORKLOAD, which is
 * borrowed.  0 or ML_ENOMEM. */
int ml_whatif_of(ml_workload *workload, const ml_trial_options *own,
                 const ml_trial_result *check, ml_whatif **out);
void ml_whatif_free(ml_whatif *whatif); /* takes NULL */

/* The least amount of memory that the allocator had in the trial; UINT64_MAX:
 * unlimited. */
uint64_t ml_whatif_memory(const ml_whatif *whatif);

/* Completes OPTIONS, whose settings are final, for a trial of another run, with MEMORY
 * as above. */
void ml_whatif_options(const ml_whatif *whatif, uint64_t memory,
                       ml_trial_options *options);
/* The reserved peak of OPTIONS over driver placements, if they matter.  *RESULT is for
 * the driver's likeliest order.  0, ML_EINVALID or ML_ENOMEM. */
int ml_whatif_range(const ml_workload *workload, const ml_trial_options *options,
                    ml_trial_result *result, uint64_t *low, uint64_t *high);
/* The same if RESULT is known.  It stops once one placement reserves more than ENOUGH
 * (0: never), with *HIGH above ENOUGH. */
int ml_whatif_spread(const ml_workload *workload, const ml_trial_options *options,
                     const ml_trial_result *result, uint64_t enough, uint64_t *low,
                     uint64_t *high);

/* The allocated peak if each block were freed after its last use; UINT64_MAX: no last
 * use is known.  Returns as ml_trial_run. */
int ml_whatif_freed_soon(const ml_whatif *whatif, uint64_t *peak);

#endif
