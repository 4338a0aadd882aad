/* The timeline as a small picture for notebooks.
 *
 * Owns the picture's words and legend; timeline_plot.h owns its curves.  Text takes the
 * colour of the page around it. */
#ifndef ML_TIMELINE_SVG_H
#define ML_TIMELINE_SVG_H

#include "show/text/markup.h"

/* Appends an SVG element that loads nothing: the allocated bytes of DEVICE by category,
 * its reserved bytes and its peak; nothing if no memory was allocated.  0, ML_EINVALID
 * for a DEVICE that the recording lacks, or another negative ML_E* with OUT unusable. */
int ml_timeline_svg(const ml_recording *recording, size_t device, ml_buffer *out);

#endif
