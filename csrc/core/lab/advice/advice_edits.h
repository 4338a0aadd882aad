/* Edits of proposals, made on a copy of a workload, and the trial of them.
 *
 * Owns an edit's effect on a demand, and the precedence of two edits of one demand. */
#ifndef ML_ADVICE_EDITS_H
#define ML_ADVICE_EDITS_H

#include "lab/advice/advice_case.h"

/* Tries the case's workload with the edits and settings of the COUNT ADVICES.  Earlier
 * advices take precedence.  0 or ML_E*. */
int ml_advices_try(const ml_advice_case *it, const ml_advice *const *advices,
                   size_t count, ml_trial_result *out);
/* Sets SETTINGS to the same torch's defaults, changed by CONF.  0 or ML_E*. */
int ml_advice_set_conf(ml_allocator_settings *settings, const char *conf);

#endif
