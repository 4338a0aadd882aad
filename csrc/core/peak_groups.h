/* The sums of a peak by line, by stack and by category; the part of peak.h that reads
 * stacks. */
#ifndef ML_PEAK_GROUPS_H
#define ML_PEAK_GROUPS_H

#include "peak.h"

/* From PEAK's blocks fills lines, stacks, categories, unattributed and each block's
 * line.  0 or ML_ENOMEM. */
int ml_peak_group(ml_peak *peak, const ml_recording *recording);

#endif
