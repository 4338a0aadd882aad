/* Numbers of any size in few bytes: LEB128, the lowest seven bits first.
 *
 * The page's columns and records of .mlab files use it (docs/FORMAT.md).  A buffer
 * remembers its errors. */
#ifndef ML_VARINT_H
#define ML_VARINT_H

#include "base/base.h"

__extension__ typedef unsigned __int128 ml_wide;

/* Bytes of the longest number of 64 bits, and of 128. */
#define ML_VARINT_ROOM 10
#define ML_VARINT_WIDE_ROOM 19

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

/* Writes NOW - BEFORE likewise, in 65 bits: twice the difference; if negative, twice its
 * magnitude minus one. */
static inline size_t
ml_varint_write_change(uint8_t to[ML_VARINT_ROOM + 1], uint64_t before, uint64_t now)
{
    bool less = now < before;
    uint64_t magnitude = less ? before - now - 1 : now - before;
    to[0] = (uint8_t)((magnitude << 1 & 0x7e) | less);
    if (magnitude < 0x40) {
        return 1;
    }
    to[0] |= 0x80;
    return 1 + ml_varint_write(to + 1, magnitude >> 6);
}

/* Reads the number at *AT, and moves *AT past it.  False if the bytes end within the
 * number, at END, or it has more than 64 bits. */
bool ml_varint_read(const uint8_t **at, const uint8_t *end, uint64_t *value);

/* The end of OUT, with room for a number of any size; NULL: OUT has an error. */
static inline uint8_t *
ml_varint_end(ml_buffer *out)
{
    bool room = out->error == 0 && out->capacity - out->length >= ML_VARINT_WIDE_ROOM;
    return room || ml_buffer_reserve(out, ML_VARINT_WIDE_ROOM)
               ? (uint8_t *)out->bytes + out->length
               : NULL;
}

/* Appends VALUE to OUT. */
static inline void
ml_varint_put(ml_buffer *out, uint64_t value)
{
    uint8_t *to = ml_varint_end(out);
    if (to != NULL) {
        out->length += ml_varint_write(to, value);
    }
}
void ml_varint_put_wide(ml_buffer *out, ml_wide value);
/* Appends NOW - BEFORE. */
static inline void
ml_varint_put_change(ml_buffer *out, uint64_t before, uint64_t now)
{
    uint8_t *to = ml_varint_end(out);
    if (to != NULL) {
        out->length += ml_varint_write_change(to, before, now);
    }
}

#endif
