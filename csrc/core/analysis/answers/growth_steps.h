/* Where the steps of a training end on a device; the part of growth.h that looks at time. */
#ifndef ML_GROWTH_STEPS_H
#define ML_GROWTH_STEPS_H

#include "analysis/answers/growth.h"

/* Step I is what lies behind moment I - 1, or the beginning, up to moment I. */
typedef struct ml_growth_steps {
    uint8_t by;        /* enum ml_growth_by */
    uint32_t *moments; /* owned; as of lifetimes.h, ascending */
    uint64_t *numbers; /* owned; as the program counts them; NULL: from 0 */
    size_t count;
    size_t capacity;
} ml_growth_steps;

/* STEPS are to be taken down in any case.  0 or ML_ENOMEM. */
int ml_growth_steps_find(const ml_analysis *analysis, ml_growth_steps *steps);
void ml_growth_steps_fini(ml_growth_steps *steps);

/* The number of step INDEX. */
static inline uint64_t
ml_growth_step_number(const ml_growth_steps *steps, size_t index)
{
    return steps->numbers != NULL ? steps->numbers[index] : index;
}

#endif
