/* Windows that keep the meters of a source moving, for all line profilers together.
 *
 * Owns one window for each source whose meters are wanted, however many want them: the
 * recorder has room for few, and each that starts walks the source's memory.  All with
 * the GIL, which is released on the way. */
#ifndef ML_METERING_H
#define ML_METERING_H

#include "core/memlab.h"

/* The meters of SOURCE move until the end that belongs to this.  0 or ML_E*. */
int ml_metering_begin(const ml_source *source);
void ml_metering_end(const ml_source *source);

#endif
