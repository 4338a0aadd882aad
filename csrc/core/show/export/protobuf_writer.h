/* Writes Protocol Buffers' wire format.
 *
 * Owns the layout of fields.  The buffer remembers errors. */
#ifndef ML_PROTOBUF_WRITER_H
#define ML_PROTOBUF_WRITER_H

#include "base/base.h"
#include "base/varint.h"
#include "recording/recording.h"

enum ml_protobuf_wire {
    ML_PROTOBUF_VARINT = 0,
    ML_PROTOBUF_BYTES = 2
};

/* Writes the key of FIELD to TO, which has room for a number; returns its end. */
static inline uint8_t *
ml_protobuf_put_key(uint8_t *to, uint32_t field, enum ml_protobuf_wire wire)
{
    if (field < 16) {
        *to = (uint8_t)(field << 3 | (unsigned)wire);
        return to + 1;
    }
    return to + ml_varint_write(to, (uint64_t)field << 3 | (unsigned)wire);
}

void ml_protobuf_unsigned(ml_buffer *out, uint32_t field, uint64_t value);
void ml_protobuf_bytes(ml_buffer *out, uint32_t field, const void *bytes,
                       size_t length);
void ml_protobuf_c_string(ml_buffer *out, uint32_t field, const char *text);
/* Lone surrogates become U+FFFD: no string may contain them. */
void ml_protobuf_string(ml_buffer *out, uint32_t field, ml_string text);
/* Writes PART as a message within another, and empties PART. */
void ml_protobuf_message(ml_buffer *out, uint32_t field, ml_buffer *part);

#endif
