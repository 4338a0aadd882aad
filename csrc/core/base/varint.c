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

size_t
ml_varint_write(uint8_t to[ML_VARINT_ROOM], uint64_t value)
{
    size_t length = 0;
    for (; value >= 0x80; value >>= 7) {
        to[length++] = (uint8_t)(value | 0x80);
    }
    to[length++] = (uint8_t)value;
    return length;
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

void
ml_varint_put(ml_buffer *out, uint64_t value)
{
    uint8_t bytes[ROOM];
    append(out, bytes, ml_varint_write(bytes, value));
}

void
ml_varint_put_wide(ml_buffer *out, ml_wide value)
{
    uint8_t bytes[ROOM];
    size_t length = 0;
    for (; value > UINT64_MAX; value >>= 7) {
        bytes[length++] = (uint8_t)(value | 0x80);
    }
    length += ml_varint_write(bytes + length, (uint64_t)value);
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
        length += ml_varint_write(bytes + 1, magnitude >> 6);
    }
    append(out, bytes, length);
}
