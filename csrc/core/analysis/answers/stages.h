/* The stage of a training run at each event of a device: loading, forward, backward,
 * optimizer, evaluation, generation.
 *
 * Autograd numbers the nodes that a thread makes.  Modules that run without making one, from
 * one event outside any module to the next, run without gradients: an evaluation, or, below
 * a function named `generate`, a generation.  Recordings without these numbers know neither. */
#ifndef ML_STAGES_H
#define ML_STAGES_H

#include "analysis/analysis.h"

#define ML_STAGES(XX) \
    XX(LOADING, 0, "loading") /* before the first call of a module */ \
    XX(FORWARD, 1, "forward") \
    XX(BACKWARD, 2, "backward") \
    XX(OPTIMIZER, 3, "optimizer") \
    XX(EVALUATION, 4, "evaluation") \
    XX(GENERATION, 5, "generation") \
    XX(OTHER, 6, "other") /* between these */

enum ml_stage {
#define XX(name, number, text) ML_STAGE_##name = (number),
    ML_STAGES(XX)
#undef XX
    ML_STAGE_COUNT = 0 ML_STAGES(ML_NUMBERED_ONE)
};

/* The enum ml_stage of each event of ANALYSIS, for ml_free.  0 or ML_ENOMEM. */
int ml_stages_new(const ml_analysis *analysis, uint8_t **out);

/* Whether STAGE is of a program that looks at what a model does, without training it. */
static inline bool
ml_stage_is_evaluation(unsigned stage)
{
    return stage == ML_STAGE_EVALUATION || stage == ML_STAGE_GENERATION;
}

const char *ml_stage_text(unsigned stage); /* "other" for an unknown one */

#endif
