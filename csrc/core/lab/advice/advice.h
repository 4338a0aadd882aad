/* Advice: changes to a program that lower its peak, each with its saving.
 *
 * Owns the answer: the advices, ranked, and what all of them together save.  Savings
 * come from trials of the edited workload.  advice_rules.h finds the wastes.
 *
 * All trials of one answer use the recording's own settings and the driver's placement.
 * An advice is given only if it lowers a peak by one part in ML_ADVICE_LEAST_PART; if a
 * request failed, also what was in use then. */
#ifndef ML_ADVICE_H
#define ML_ADVICE_H

#include "lab/advice/advice_batch.h"
#include "lab/advice/advice_case.h"
#include "lab/advice/advice_parts.h"

/* A saving below this part of the peak does not count. */
#define ML_ADVICE_LEAST_PART 100

typedef struct ml_advices {
    ml_totals recorded;     /* peaks of the recording */
    ml_trial_result before; /* the workload unchanged */
    ml_trial_result after;  /* with all advices that work together */
    ml_advice *list;        /* owned; most saving first */
    size_t count;
    uint64_t tried;        /* proposals that were tried */
    uint64_t start_cached; /* as the case has it */
    bool exact;  /* a trial at the recorded addresses agrees with the recording */
    bool failed; /* a request failed; in the trials it has the memory it asked for */
    bool uses_known;    /* the recording knows when blocks were last used */
    uint32_t doubts;    /* of the workload; a bit for each enum ml_doubt */
    ml_cause at_peak;   /* the allocation that made the peak; all 0: none */
    uint64_t peak_time; /* unix ns */
    ml_batch_fit batch;
    /* The allocated peak in bytes, by category and by modules whose paths differ in
     * numbers alone. */
    ml_advice_part *parts; /* owned; most bytes first */
    size_t part_count;
} ml_advices;

/* MEMORY_BYTES: the device's memory, for advice on what fits; UINT64_MAX: not given.
 * RECORDING outlives the answer; of a merged recording, pass the part.  0, or an error
 * of ml_workload_new. */
int ml_advices_new(const ml_recording *recording, size_t device, uint64_t memory_bytes,
                   ml_advices **out);
void ml_advices_free(ml_advices *advices); /* takes NULL */

const char *ml_advice_text(unsigned kind); /* "" for an unknown one */

#endif
