/* Numbers of any size in few bytes: LEB128, the lowest seven bits first.
 *
 * The page's columns and records of .mlab files use it (docs/FORMAT.md).  A buffer
 * remembers its errors. */
#ifndef ML_VARINT_H
#define ML_VARINT_H

#include "base/base.h"

__extension__ typedef unsigned __int128 ml_wide;

/* Bytes of the longest number of 64 bits. */
#define ML_VARINT_ROOM 10

/* Writes VALUE to TO; returns the number of bytes. */
static inline size_t
ml_varint_write(uint8_t to[ML_VARINT_ROOM], uint64_t value)
{
    size_t length = 0;
    for (; value >= 0x80; value >>= 7) {
        to[length++] = (uint8_t)(value | 0x80);
    }
    to[length++] = (uint8_t)value;
    return length;
}
/* Reads the number at *AT, and moves *AT past it.  False if the bytes end within the
 * number, at END, or it has more than 64 bits. */
bool ml_varint_read(const uint8_t **at, const uint8_t *end, uint64_t *value);

/* Appends VALUE to OUT; most numbers have one byte. */
void ml_varint_put_long(ml_buffer *out, uint64_t value);
static inline void
ml_varint_put(ml_buffer *out, uint64_t value)
{
    if (value >= 0x80 || out->length == out->capacity || out->error != 0) {
        ml_varint_put_long(out, value);
        return;
    }
    out->bytes[out->length++] = (char)value;
}
void ml_varint_put_wide(ml_buffer *out, ml_wide value);
/* NOW - BEFORE, in 65 bits: twice the difference; if negative, twice its magnitude
 * minus one. */
void ml_varint_put_change(ml_buffer *out, uint64_t before, uint64_t now);

#endif
