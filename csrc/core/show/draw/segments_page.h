/* The segments at a recording's end as a page: a row each, with its blocks in place.
 *
 * Owns the drawing of rows, and which segments and blocks are drawn if there are very
 * many.  Sums always cover all of them. */
#ifndef ML_SEGMENTS_PAGE_H
#define ML_SEGMENTS_PAGE_H

#include "show/text/markup.h"

/* Appends an HTML file that loads nothing.  DEVICE exists or is ML_ALL_DEVICES.  0, or
 * a negative ML_E* with OUT unusable. */
int ml_segments_page_write(const ml_recording *recording, size_t device,
                           ml_buffer *out);

#endif
