/* The viewer's page data: a recording as one JSON document of columns.
 *
 * Owns the names and order of the keys, which memlab/viewer/model.js reads, and the
 * escaping that lets the document sit inside a script element of an HTML page.  Must
 * not know how the page looks. */
#ifndef ML_PAGE_H
#define ML_PAGE_H

#include "base.h"
#include "recording.h"

/* Appends the document to OUT.  It is ASCII but for characters of names, valid UTF-8,
 * and holds none of < > & nor U+2028 nor U+2029.  0 or a negative ML_E*, also the one
 * that OUT remembers; what OUT then holds is of no use. */
int ml_page_write(const ml_recording *recording, ml_buffer *out);

#endif
