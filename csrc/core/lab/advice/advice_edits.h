/* Edits of proposals, made on a copy of a workload, and the trial of them.
 *
 * Owns what an edit does to a demand, and who comes first where two edit the same. */
#ifndef ML_ADVICE_EDITS_H
#define ML_ADVICE_EDITS_H

#include "lab/advice/advice_case.h"

/* A trial of the case's workload with the edits and settings of the COUNT ADVICES, the
 * first of which comes first.  0 or ML_E*. */
int ml_advices_try(const ml_advice_case *it, const ml_advice *const *advices,
                   size_t count, ml_trial_result *out);

#endif
