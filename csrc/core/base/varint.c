/* Numbers of any size in few bytes.  See varint.h. */
#include "base/varint.h"

/* Of 128 bits. */
#define ROOM 19

static void
append(ml_buffer *out, const uint8_t *bytes, size_t length)
{
    if (out->error != 0 || out->capacity - out->length < ROOM) {
        ml_buffer_append(out, bytes, length);
        return;
    }
    for (size_t i = 0; i < length; i++) {
        out->bytes[out->length + i] = (char)bytes[i];
    }
    out->length += length;
}

/* VALUE to TO; the bytes written. */
static size_t
write_value(uint8_t *to, uint64_t value)
{
    size_t length = 0;
    for (; value >= 0x80; value >>= 7) {
        to[length++] = (uint8_t)(value | 0x80);
    }
    to[length++] = (uint8_t)value;
    return length;
}

void
ml_varint_put(ml_buffer *out, uint64_t value)
{
    uint8_t bytes[ROOM];
    append(out, bytes, write_value(bytes, value));
}

void
ml_varint_put_wide(ml_buffer *out, ml_wide value)
{
    uint8_t bytes[ROOM];
    size_t length = 0;
    for (; value > UINT64_MAX; value >>= 7) {
        bytes[length++] = (uint8_t)(value | 0x80);
    }
    length += write_value(bytes + length, (uint64_t)value);
    append(out, bytes, length);
}

void
ml_varint_put_change(ml_buffer *out, uint64_t before, uint64_t now)
{
    uint8_t bytes[ROOM];
    bool less = now < before;
    uint64_t magnitude = less ? before - now - 1 : now - before;
    size_t length = 1;
    bytes[0] = (uint8_t)((magnitude << 1 & 0x7e) | less);
    if (magnitude >= 0x40) {
        bytes[0] |= 0x80;
        length += write_value(bytes + 1, magnitude >> 6);
    }
    append(out, bytes, length);
}
