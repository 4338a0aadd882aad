/* Protocol Buffers' wire format, written.
 *
 * Owns how fields are laid out.  Whatever goes wrong is remembered by the buffer. */
#ifndef ML_PROTOBUF_WRITER_H
#define ML_PROTOBUF_WRITER_H

#include "base/base.h"
#include "base/varint.h"
#include "recording/recording.h"

enum ml_protobuf_wire {
    ML_PROTOBUF_VARINT = 0,
    ML_PROTOBUF_BYTES = 2
};

/* The key of FIELD to TO, which has room for a number; where it ends. */
static inline uint8_t *
ml_protobuf_put_key(uint8_t *to, uint32_t field, enum ml_protobuf_wire wire)
{
    return to + ml_varint_write(to, (uint64_t)field << 3 | (unsigned)wire);
}

void ml_protobuf_unsigned(ml_buffer *out, uint32_t field, uint64_t value);
void ml_protobuf_bytes(ml_buffer *out, uint32_t field, const void *bytes,
                       size_t length);
void ml_protobuf_c_string(ml_buffer *out, uint32_t field, const char *text);
/* Lone surrogates, which no string may have, become U+FFFD. */
void ml_protobuf_string(ml_buffer *out, uint32_t field, ml_string text);
/* A message inside another; PART is empty afterwards. */
void ml_protobuf_message(ml_buffer *out, uint32_t field, ml_buffer *part);

#endif
