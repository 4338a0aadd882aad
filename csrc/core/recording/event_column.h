/* The bits of a column: one member of the events of a chunk. */
#ifndef ML_EVENT_COLUMN_H
#define ML_EVENT_COLUMN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "columns of events are read as little-endian words"
#endif

/* A value is BASE plus its bits, shifted left by SHIFT.  A constant column has no
 * bits. */
typedef struct ml_event_column_bits {
    uint64_t base;
    uint64_t most; /* the greatest value */
    uint32_t at;   /* in the chunk's bytes */
    uint8_t bits;  /* an event: 0 to 56, or 64 */
    uint8_t drop;  /* 64 - bits, 63 at most */
    uint8_t shift;
    uint8_t pad;
} ml_event_column_bits;

/* The word of COLUMN's BYTES that begins with value I, and has all bits of it; of columns up
 * to ML_EVENT_PAIR_BITS also all of the next one. */
static inline uint64_t
ml_event_column_word(ml_event_column_bits column, const uint8_t *bytes, size_t i)
{
    size_t bit = i * column.bits;
    uint64_t word;
    memcpy(&word, bytes + (bit >> 3), sizeof(word));
    return word >> (bit & 7);
}

#define ML_EVENT_PAIR_BITS 28

/* The value that WORD begins with. */
static inline uint64_t
ml_event_column_first(ml_event_column_bits column, uint64_t word)
{
    return column.base + ((word & UINT64_MAX >> column.drop) << column.shift);
}

/* BYTES belong to COLUMN. */
static inline uint64_t
ml_event_column_value(ml_event_column_bits column, const uint8_t *bytes, size_t i)
{
    return ml_event_column_first(column, ml_event_column_word(column, bytes, i));
}

/* Bits that a word has room for after up to 7 others. */
#define ML_EVENT_MOST_BITS 56

/* The bytes of COUNT values. */
size_t ml_event_column_bytes(const ml_event_column_bits *column, size_t count);
/* VALUES less LEAST and without their last SHIFT bits, of BITS each, fewer than 64, to OUT,
 * which gets no byte more. */
void ml_event_column_put(const uint64_t *values, size_t count, uint64_t least,
                         unsigned shift, unsigned bits, uint8_t *out);
/* The COUNT values, which lie between LEAST and MOST and differ in the bits of DIFFER, to
 * OUT. */
ml_event_column_bits ml_event_column_write(const uint64_t *values, size_t count,
                                           uint64_t least, uint64_t most,
                                           uint64_t differ, uint8_t *out);

#endif
