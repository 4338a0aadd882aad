/* The sums of a peak by line, by stack and by category; the part of peak.h that reads
 * stacks. */
#ifndef ML_PEAK_GROUPS_H
#define ML_PEAK_GROUPS_H

#include "analysis/answers/peak.h"

/* From PEAK's blocks fills lines, stacks, categories, unattributed and each block's
 * line.  0 or ML_ENOMEM. */
int ml_peak_group(ml_peak *peak, const ml_recording *recording);

/* Makes of PATTERN, which NUL ends and which has room for two bytes more than the first name
 * in it, one that fits NAME too: "*" for each part that differs, and for all that follows
 * where one has more parts. */
void ml_module_widen(char *pattern, ml_string name);
/* Likewise *PATTERN, or, where it is NULL, one that is NAME, for the caller to free.  0 or
 * ML_ENOMEM. */
int ml_module_note(char **pattern, ml_string name);

#endif
