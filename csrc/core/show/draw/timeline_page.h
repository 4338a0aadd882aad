/* The timeline as a page: for each device, a chart of allocated bytes by category, and
 * of reserved bytes.
 *
 * Owns the chart; timeline.h owns its data. */
#ifndef ML_TIMELINE_PAGE_H
#define ML_TIMELINE_PAGE_H

#include "show/text/markup.h"

/* Appends an HTML file that loads nothing.  DEVICE exists or is ML_ALL_DEVICES; TITLE
 * is untrusted.  0, or a negative ML_E* with OUT unusable. */
int ml_timeline_page_write(const ml_recording *recording, size_t device,
                           const char *title, size_t title_length, ml_buffer *out);

#endif
