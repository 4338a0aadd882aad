/* Reads and writes numbers of any size in few bytes.  See varint.h. */
#include "base/varint.h"

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
ml_varint_put_wide(ml_buffer *out, ml_wide value)
{
    uint8_t *to = ml_varint_end(out);
    if (to == NULL) {
        return;
    }
    for (; value > UINT64_MAX; value >>= 7) {
        *to++ = (uint8_t)(value | 0x80);
        out->length++;
    }
    out->length += ml_varint_write(to, (uint64_t)value);
}
