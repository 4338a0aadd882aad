/* The stage of a training run at each event of a device: loading, forward, backward,
 * optimizer, evaluation, generation.
 *
 * Autograd numbers the nodes that a thread makes.  Modules that one function calls, from one
 * event outside any module to the next, run without gradients if they make no node: an
 * evaluation, or, below a function named `generate`, a generation.  Even without gradients
 * autocast makes a node for each parameter that it casts, and a checkpoint makes one.
 * Recordings without these numbers know neither. */
#ifndef ML_STAGES_H
#define ML_STAGES_H

#include "analysis/analysis.h"

#define ML_STAGES(XX) \
    XX(LOADING, "loading") /* before the first call of a module */ \
    XX(FORWARD, "forward") \
    XX(BACKWARD, "backward") \
    XX(OPTIMIZER, "optimizer") \
    XX(EVALUATION, "evaluation") \
    XX(GENERATION, "generation") \
    XX(OTHER, "other") /* between these */

enum ml_stage {
#define XX(name, text) ML_STAGE_##name,
    ML_STAGES(XX)
#undef XX
    ML_STAGE_COUNT
};

/* The enum ml_stage of each event of ANALYSIS, for ml_free.  0 or ML_ENOMEM. */
int ml_stages_new(const ml_analysis *analysis, uint8_t **out);

/* Whether STAGE runs a model without training it. */
static inline bool
ml_stage_is_evaluation(unsigned stage)
{
    return stage == ML_STAGE_EVALUATION || stage == ML_STAGE_GENERATION;
}

/* What runs the model at an event of stage NOW, if BEFORE ran it at the event before: between
 * calls, such as those of a generation, it is the same. */
static inline unsigned
ml_stage_around(unsigned before, unsigned now)
{
    return now == ML_STAGE_OTHER ? before : now;
}

const char *ml_stage_text(unsigned stage); /* "other" for an unknown one */

#endif
