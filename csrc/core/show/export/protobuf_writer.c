/* Protocol Buffers' wire format.  See protobuf_writer.h. */
#include "show/export/protobuf_writer.h"

#include <string.h>

static void
put_key(ml_buffer *out, uint32_t field, unsigned wire)
{
    ml_varint_put(out, (uint64_t)field << 3 | wire);
}

void
ml_protobuf_unsigned(ml_buffer *out, uint32_t field, uint64_t value)
{
    put_key(out, field, ML_PROTOBUF_VARINT);
    ml_varint_put(out, value);
}

void
ml_protobuf_bytes(ml_buffer *out, uint32_t field, const void *bytes, size_t length)
{
    put_key(out, field, ML_PROTOBUF_BYTES);
    ml_varint_put(out, length);
    if (length > 0) {
        ml_buffer_append(out, bytes, length);
    }
}

void
ml_protobuf_c_string(ml_buffer *out, uint32_t field, const char *text)
{
    ml_protobuf_bytes(out, field, text, strlen(text));
}

void
ml_protobuf_string(ml_buffer *out, uint32_t field, ml_string text)
{
    put_key(out, field, ML_PROTOBUF_BYTES);
    ml_varint_put(out, text.length);
    if (text.length == 0) {
        return;
    }
    size_t at = out->length;
    ml_buffer_append(out, text.bytes, text.length);
    if (out->error == 0) {
        ml_text_replace_surrogates(out->bytes + at, text.length);
    }
}

void
ml_protobuf_message(ml_buffer *out, uint32_t field, ml_buffer *part)
{
    ml_protobuf_bytes(out, field, part->bytes, part->length);
    if (part->error != 0 && out->error == 0) {
        out->error = part->error;
    }
    part->length = 0;
}
