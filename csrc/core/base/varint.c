/* Reads and writes numbers of any size in few bytes.  See varint.h. */
#include "base/varint.h"

/* Of 128 bits. */
#define ROOM 19

/* Whether OUT has room for one, to be written in place. */
static bool
has_room(ml_buffer *out)
{
    return (out->error == 0 && out->capacity - out->length >= ROOM) ||
           ml_buffer_reserve(out, ROOM);
}

bool
ml_varint_read(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            return shift < 63 || byte <= 1;
        }
    }
    return false;
}

static uint8_t *
end_of(ml_buffer *out)
{
    return (uint8_t *)out->bytes + out->length;
}

void
ml_varint_put_long(ml_buffer *out, uint64_t value)
{
    if (has_room(out)) {
        out->length += ml_varint_write(end_of(out), value);
    }
}

void
ml_varint_put_wide(ml_buffer *out, ml_wide value)
{
    if (!has_room(out)) {
        return;
    }
    for (; value > UINT64_MAX; value >>= 7) {
        *end_of(out) = (uint8_t)(value | 0x80);
        out->length++;
    }
    out->length += ml_varint_write(end_of(out), (uint64_t)value);
}

void
ml_varint_put_change(ml_buffer *out, uint64_t before, uint64_t now)
{
    bool less = now < before;
    uint64_t magnitude = less ? before - now - 1 : now - before;
    if (!has_room(out)) {
        return;
    }
    uint8_t *to = end_of(out);
    to[0] = (uint8_t)((magnitude << 1 & 0x7e) | less);
    out->length++;
    if (magnitude >= 0x40) {
        to[0] |= 0x80;
        out->length += ml_varint_write(to + 1, magnitude >> 6);
    }
}
