/* The timeline as a page: a chart of the allocated bytes by category, and the reserved
 * bytes, for each device.
 *
 * Owns the chart; what is in it is timeline.h's. */
#ifndef ML_TIMELINE_PAGE_H
#define ML_TIMELINE_PAGE_H

#include "show/text/markup.h"

/* Appends an HTML file that needs nothing else.  DEVICE exists or is ML_ALL_DEVICES; TITLE
 * from outside.  0 or a negative ML_E*, after which what OUT holds is of no use. */
int ml_timeline_page_write(const ml_recording *recording, size_t device,
                           const char *title, size_t title_length, ml_buffer *out);

#endif
