/* Numbers of any size in few bytes: LEB128, the lowest seven bits first.
 *
 * Owns the encoding of the page's columns (docs/FORMAT.md); it must not know what the
 * numbers are.  Whatever goes wrong is remembered by the buffer. */
#ifndef ML_VARINT_H
#define ML_VARINT_H

#include "base/base.h"

__extension__ typedef unsigned __int128 ml_wide;

void ml_varint_put(ml_buffer *out, uint64_t value);
void ml_varint_put_wide(ml_buffer *out, ml_wide value);
/* NOW less BEFORE, of 65 bits: twice the difference, or of a negative one twice its
 * magnitude less one. */
void ml_varint_put_change(ml_buffer *out, uint64_t before, uint64_t now);

#endif
