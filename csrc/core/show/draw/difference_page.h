/* A difference as a page: one file without scripts that loads nothing. */
#ifndef ML_DIFFERENCE_PAGE_H
#define ML_DIFFERENCE_PAGE_H

#include "compare/diff/difference.h"
#include "show/text/markup.h"

/* Appends the page of DIFFERENCE.  TITLE, and SAID, a sentence at its top, are
 * untrusted.  0, or a negative ML_E* with OUT unusable. */
int ml_difference_page_write(const ml_difference *difference, ml_string title,
                             ml_string said, ml_buffer *out);

/* The reason for a missing line or module, for slack too: as ml_no_line_text and
 * ml_no_module_text. */
const char *ml_difference_no_line_text(unsigned no_line);
const char *ml_difference_no_module_text(unsigned no_module);

#endif
