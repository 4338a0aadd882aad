/* A difference as a page: a file of its own, without scripts, that loads nothing.
 *
 * Owns how it reads; it must not know what is compared. */
#ifndef ML_DIFFERENCE_PAGE_H
#define ML_DIFFERENCE_PAGE_H

#include "difference.h"
#include "markup.h"

/* Appends the page of DIFFERENCE.  TITLE, and SAID, a sentence above all else, are from
 * outside.  0 or a negative ML_E*, after which what OUT holds is of no use. */
int ml_difference_page_write(const ml_difference *difference, ml_string title,
                             ml_string said, ml_buffer *out);

/* Why a line of a difference has no place: as ml_no_line_text, for ML_NO_LINE_SLACK too. */
const char *ml_difference_reason(unsigned no_line);

#endif
