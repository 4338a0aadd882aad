/* The model's own lines behind a line of the user's.  If the model is in a library, the
 * user's line only calls it and says little.
 *
 * Owns which line of a stack is the model's own, and the sums by it. */
#ifndef ML_INNER_LINES_H
#define ML_INNER_LINES_H

#include "analysis/answers/peak.h"

/* From PEAK's blocks and lines fills its inner lines.  0 or ML_ENOMEM. */
int ml_inner_lines_find(ml_peak *peak, const ml_recording *recording);

#endif
