/* Writes the bits of a column.  See event_column.h. */
#include "recording/event_column.h"

size_t
ml_event_column_bytes(const ml_event_column_bits *column, size_t count)
{
    return (count * column->bits + 7) / 8;
}

void
ml_event_column_put(const uint64_t *values, size_t count, uint64_t least,
                    unsigned shift, unsigned bits, uint8_t *out)
{
    uint64_t word = 0;
    unsigned filled = 0;
    size_t i = 0;
#define PUT(value, taken) \
    do { \
        uint64_t bits_ = (value); \
        word |= bits_ << filled; \
        filled += (taken); \
        if (filled >= 64) { \
            memcpy(out, &word, sizeof(word)); \
            out += sizeof(word); \
            filled -= 64; \
            word = bits_ >> ((taken)-filled); \
        } \
    } while (0)
    if (bits <= ML_EVENT_PAIR_BITS) {
        for (; i + 1 < count; i += 2) {
            PUT((values[i] - least) >> shift | (values[i + 1] - least) >> shift << bits,
                2 * bits);
        }
    }
    for (; i < count; i++) {
        PUT((values[i] - least) >> shift, bits);
    }
#undef PUT
    memcpy(out, &word, (filled + 7) / 8);
}

ml_event_column_bits
ml_event_column_write(const uint64_t *values, size_t count, uint64_t least,
                      uint64_t most, uint64_t differ, uint8_t *out)
{
    unsigned shift = (unsigned)__builtin_ctzll(differ);
    unsigned bits = 64 - (unsigned)__builtin_clzll((most - least) >> shift);
    if (bits > ML_EVENT_MOST_BITS) {
        bits = 64;
        shift = 0;
        for (size_t i = 0; i < count; i++) {
            uint64_t value = values[i] - least;
            memcpy(out + i * sizeof(value), &value, sizeof(value));
        }
    }
    else {
        ml_event_column_put(values, count, least, shift, bits, out);
    }
    return (ml_event_column_bits){.base = least,
                                  .most = most,
                                  .bits = (uint8_t)bits,
                                  .drop = (uint8_t)(64 - bits),
                                  .shift = (uint8_t)shift};
}
