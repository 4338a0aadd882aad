/* The verdict on an out of memory, and the advice; a part of oom.h.  All figures are
 * filled in before. */
#ifndef ML_OOM_ADVICE_H
#define ML_OOM_ADVICE_H

#include "analysis/answers/oom.h"

void ml_oom_judge(ml_oom *oom);
/* EVENT is that of OOM.  0 or ML_ENOMEM. */
int ml_oom_advise(ml_oom *oom, const ml_recording *recording, const ml_event *event);

#endif
