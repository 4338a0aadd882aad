/* Advice: what of a program to change so that its peak falls, and by how much.
 *
 * Owns the answer: advices, each with the saving that a trial of the edited workload
 * predicts, ranked, and what all of them together save.  The rules that find wastes are
 * advice_rules.h's.
 *
 * The trials of one answer go by the same rules: the recording's own settings, memory
 * where the driver would put it.  An advice is only given where its edits lower a peak by
 * one part in ML_ADVICE_LEAST_PART. */
#ifndef ML_ADVICE_H
#define ML_ADVICE_H

#include "lab/advice/advice_batch.h"
#include "lab/advice/advice_case.h"
#include "lab/advice/advice_parts.h"

/* A saving below this part of the peak is none. */
#define ML_ADVICE_LEAST_PART 100

typedef struct ml_advices {
    ml_totals recorded;     /* peaks that the recording had */
    ml_trial_result before; /* of the workload as it is */
    ml_trial_result after;  /* with all advices that go together */
    ml_advice *list;        /* owned; most saving first */
    size_t count;
    uint64_t tried;   /* proposals that were tried */
    bool exact;       /* a trial at the recorded addresses agrees with the recording */
    bool failed;      /* a request did; in the trials it has what it asked for */
    bool uses_known;  /* the recording knows when blocks were last used */
    uint32_t doubts;  /* of the workload, bit for each enum ml_doubt */
    ml_cause at_peak; /* of the allocation that made the peak; all 0: none did */
    uint64_t peak_time; /* unix ns */
    ml_batch_fit batch;
    /* What the peak consists of: bytes at the allocated peak by category and by modules
     * whose paths differ in numbers alone. */
    ml_advice_part *parts; /* owned; most bytes first */
    size_t part_count;
} ml_advices;

/* MEMORY_BYTES: of the device, for advice on what fits; UINT64_MAX: none was named.  Of a
 * merged RECORDING, which outlives the answer, it is the part.  0, or as ml_workload_new
 * fails. */
int ml_advices_new(const ml_recording *recording, size_t device, uint64_t memory_bytes,
                   ml_advices **out);
void ml_advices_free(ml_advices *advices); /* takes NULL */

const char *ml_advice_text(unsigned kind); /* "" for an unknown one */

#endif
