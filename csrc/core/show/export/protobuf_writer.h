/* Protocol Buffers' wire format, written.
 *
 * Owns how fields are laid out.  Whatever goes wrong is remembered by the buffer. */
#ifndef ML_PROTOBUF_WRITER_H
#define ML_PROTOBUF_WRITER_H

#include "base/base.h"
#include "recording/recording.h"

void ml_protobuf_unsigned(ml_buffer *out, uint32_t field, uint64_t value);
void ml_protobuf_bytes(ml_buffer *out, uint32_t field, const void *bytes,
                       size_t length);
void ml_protobuf_c_string(ml_buffer *out, uint32_t field, const char *text);
/* Lone surrogates, which no string may have, become U+FFFD. */
void ml_protobuf_string(ml_buffer *out, uint32_t field, ml_string text);
/* A message inside another; PART is empty afterwards. */
void ml_protobuf_message(ml_buffer *out, uint32_t field, ml_buffer *part);

#endif
