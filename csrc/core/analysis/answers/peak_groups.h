/* The sums of a peak by line, by stack and by category; a part of peak.h. */
#ifndef ML_PEAK_GROUPS_H
#define ML_PEAK_GROUPS_H

#include "analysis/answers/peak.h"

/* From PEAK's blocks fills lines, stacks, categories, unattributed and each block's
 * line.  0 or ML_ENOMEM. */
int ml_peak_group(ml_peak *peak, const ml_recording *recording);

/* Widens PATTERN so that NAME fits it too: "*" for each part that differs, and for the
 * rest of the longer one.  NUL ends PATTERN, which has room for two bytes more than its
 * first name. */
void ml_module_widen(char *pattern, ml_string name);
/* Likewise *PATTERN, or, where it is NULL, one that is NAME, for the caller to free.  0 or
 * ML_ENOMEM. */
int ml_module_note(char **pattern, ml_string name);

#endif
