/* A difference as a page: a file of its own, without scripts, that loads nothing. */
#ifndef ML_DIFFERENCE_PAGE_H
#define ML_DIFFERENCE_PAGE_H

#include "compare/diff/difference.h"
#include "show/text/markup.h"

/* Appends the page of DIFFERENCE.  TITLE, and SAID, a sentence above all else, are from
 * outside.  0 or a negative ML_E*, after which what OUT holds is of no use. */
int ml_difference_page_write(const ml_difference *difference, ml_string title,
                             ml_string said, ml_buffer *out);

/* Why something has no line, or no module: as ml_no_line_text and ml_no_module_text, for
 * slack too. */
const char *ml_difference_no_line_text(unsigned no_line);
const char *ml_difference_no_module_text(unsigned no_module);

#endif
