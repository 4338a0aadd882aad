/* The ends of a training's steps on a device; growth.h's part about time. */
#ifndef ML_GROWTH_STEPS_H
#define ML_GROWTH_STEPS_H

#include "analysis/answers/growth.h"

/* Step I is the time after moment I - 1, or from the beginning, up to moment I. */
typedef struct ml_growth_steps {
    uint8_t by;        /* enum ml_growth_by */
    uint32_t *moments; /* owned; as of lifetimes.h, ascending */
    uint64_t *numbers; /* owned; the program's own numbers; NULL: from 0 */
    size_t count;
    size_t capacity;
} ml_growth_steps;

/* Free STEPS in any case.  0 or ML_ENOMEM. */
int ml_growth_steps_find(const ml_analysis *analysis, ml_growth_steps *steps);
void ml_growth_steps_fini(ml_growth_steps *steps);

/* The index of the step in which EVENT is; the number of steps: it came after the last. */
static inline size_t
ml_growth_step_of(const ml_growth_steps *steps, size_t event)
{
    size_t step;
    ML_SEARCH(step, steps->count, steps->moments[step] <= event);
    return step;
}

/* The number of step INDEX. */
static inline uint64_t
ml_growth_step_number(const ml_growth_steps *steps, size_t index)
{
    return steps->numbers != NULL ? steps->numbers[index] : index;
}

#endif
