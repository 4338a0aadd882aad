/* The segments at the end of a recording as a page: a row each, its blocks in place.
 *
 * Owns the drawing of rows, and which of very many segments and blocks are drawn for
 * themselves.  Sums are of all of them. */
#ifndef ML_SEGMENTS_PAGE_H
#define ML_SEGMENTS_PAGE_H

#include "show/text/markup.h"

/* Appends an HTML file that needs nothing else.  DEVICE exists or is ML_ALL_DEVICES.  0 or
 * a negative ML_E*, after which what OUT holds is of no use. */
int ml_segments_page_write(const ml_recording *recording, size_t device,
                           ml_buffer *out);

#endif
