/* Windows that keep a source's meters moving, shared by all line profilers.
 *
 * Owns one window for each source in use.  The recorder has room for few windows, and
 * the start of each walks the source's memory.  All with the GIL, which is released
 * meanwhile. */
#ifndef ML_METERING_H
#define ML_METERING_H

#include "core/memlab.h"

/* The meters of SOURCE move until the matching end.  0 or ML_E*. */
int ml_metering_begin(const ml_source *source);
void ml_metering_end(const ml_source *source);

#endif
