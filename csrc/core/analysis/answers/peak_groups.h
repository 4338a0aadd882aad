/* The sums of a peak by line, by stack and by category; a part of peak.h. */
#ifndef ML_PEAK_GROUPS_H
#define ML_PEAK_GROUPS_H

#include "analysis/answers/peak.h"

/* Fills PEAK's lines, stacks, categories, unattributed and each block's line from its
 * blocks.  0 or ML_ENOMEM. */
int ml_peak_group(ml_peak *peak, const ml_recording *recording);

/* Widens PATTERN so that it also fits NAME: "*" for each part that differs, and for the
 * rest of the longer one.  PATTERN is NUL-terminated and has room for two bytes more
 * than its first name. */
void ml_module_widen(char *pattern, ml_string name);
/* The same for *PATTERN; NULL becomes a copy of NAME, for the caller to free.  0 or
 * ML_ENOMEM. */
int ml_module_note(char **pattern, ml_string name);

#endif
