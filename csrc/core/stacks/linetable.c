/* Line numbers of Python instructions; see linetable.h.
 *
 * 3.10 (PEP 626): pairs of bytes, how many bytes of code and the signed step to their
 * line, -128 for "no line".
 *
 * 3.11 and later: entries whose first byte, the only one with its top bit set, holds a
 * form (4 bits) and how many 2-byte code units less one (3 bits).  The line is a running
 * sum of steps; columns follow and are skipped. */

#include "stacks/linetable.h"

#define CODE_UNIT_BYTES 2

enum location_form {
    /* 0 to 9 hold columns only and stay on the line */
    FORM_ONE_LINE_0 = 10,
    FORM_ONE_LINE_1 = 11,
    FORM_ONE_LINE_2 = 12,
    FORM_NO_COLUMNS = 13,
    FORM_LONG = 14,
    FORM_NONE = 15
};

static int64_t
line_of_pairs(const uint8_t *table, size_t length, int64_t line, int64_t offset)
{
    int64_t end = 0;

    for (size_t at = 0; at + 1 < length; at += 2) {
        int step = table[at + 1] < 128 ? table[at + 1] : table[at + 1] - 256;
        end += table[at];
        if (step != -128) {
            line += step;
        }
        if (offset < end) {
            return step == -128 ? -1 : line;
        }
    }
    return -1;
}

/* A signed number in groups of 6 bits, lowest first; bit 6: more follow.  Bits beyond
 * 64, or after END, are dropped. */
static int64_t
read_signed(const uint8_t *at, const uint8_t *end)
{
    uint64_t value = 0;
    unsigned shift = 0;

    for (; at < end && shift < 60; at++, shift += 6) {
        value |= (uint64_t)(*at & 0x3fu) << shift;
        if ((*at & 0x40u) == 0) {
            break;
        }
    }
    int64_t magnitude = (int64_t)(value >> 1);
    return (value & 1u) != 0 ? -magnitude : magnitude;
}

static int64_t
line_of_locations(const uint8_t *table, size_t length, int64_t line, int64_t offset)
{
    const uint8_t *limit = table + length;
    /* Unsigned, since the steps of a damaged table may run past 64 bits. */
    uint64_t sum = (uint64_t)line;
    int64_t end = 0;

    for (const uint8_t *entry = table; entry < limit;) {
        unsigned form = (*entry >> 3) & 15u;
        end += ((*entry & 7) + 1) * CODE_UNIT_BYTES;
        if (form == FORM_NO_COLUMNS || form == FORM_LONG) {
            sum += (uint64_t)read_signed(entry + 1, limit);
        }
        else if (form == FORM_ONE_LINE_1 || form == FORM_ONE_LINE_2) {
            sum += form - FORM_ONE_LINE_0;
        }
        if (offset < end) {
            return form == FORM_NONE ? -1 : (int64_t)sum;
        }
        do {
            entry++;
        } while (entry < limit && (*entry & 0x80u) == 0);
    }
    return -1;
}

int64_t
ml_linetable_line(const uint8_t *table, size_t length, int64_t firstlineno,
                  int python_minor, int64_t offset)
{
    if (offset < 0) {
        return firstlineno;
    }
    if (python_minor >= 11) {
        return line_of_locations(table, length, firstlineno, offset);
    }
    if (python_minor == 10) {
        return line_of_pairs(table, length, firstlineno, offset);
    }
    return -1;
}
