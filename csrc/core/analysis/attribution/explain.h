/* What an allocation is: its cause, whose it is, and its category, all rules together.
 *
 * Owns the order in which they speak; it must not know who asks. */
#ifndef ML_EXPLAIN_H
#define ML_EXPLAIN_H

#include "analysis/attribution/category.h"

/* Where it is looked up; all borrowed. */
typedef struct ml_explainer {
    const ml_device_trace *trace;
    size_t device; /* its number in the recording of the causes */
    const ml_causes *causes;
    const ml_categories *categories;
    const ml_lives *lives;
} ml_explainer;

typedef struct ml_explained {
    ml_cause cause;
    ml_verdict verdict;
    uint32_t name; /* string: its owner's; 0: none */
} ml_explained;

/* Of the block at ADDR that event BIRTH allocated, or ML_BEFORE_EVENTS with STACK. */
ml_explained ml_explain(const ml_explainer *explainer, uint64_t addr, uint64_t birth,
                        uint32_t stack);

#endif
