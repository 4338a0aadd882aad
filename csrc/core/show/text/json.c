/* Writes JSON text for a page.  See json.h. */
#include "show/text/json.h"

#include <stdbool.h>
#include <string.h>

/* Bytes of a number with sign and quotes. */
#define DIGITS 24
/* Up to here JavaScript's integers are exact. */
#define EXACT (UINT64_C(1) << 53)

void
ml_json_text(ml_buffer *out, const char *text)
{
    ml_buffer_append(out, text, strlen(text));
}

static void
put_integer(ml_buffer *out, uint64_t magnitude, bool negative)
{
    char text[DIGITS];
    size_t at = sizeof(text);
    bool quoted = magnitude > EXACT;
    if (quoted) {
        text[--at] = '"';
    }
    do {
        text[--at] = (char)('0' + magnitude % 10);
        magnitude /= 10;
    } while (magnitude != 0);
    if (negative) {
        text[--at] = '-';
    }
    if (quoted) {
        text[--at] = '"';
    }
    ml_buffer_append(out, text + at, sizeof(text) - at);
}

void
ml_json_unsigned(ml_buffer *out, uint64_t value)
{
    put_integer(out, value, false);
}

void
ml_json_signed(ml_buffer *out, int64_t value)
{
    put_integer(out, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, value < 0);
}

static void
put_escape(ml_buffer *out, unsigned unit)
{
    static const char hex[] = "0123456789abcdef";
    char text[6] = {'\\', 'u'};
    for (int i = 0; i < 4; i++) {
        text[2 + i] = hex[(unit >> (12 - 4 * i)) & 0xfu];
    }
    ml_buffer_append(out, text, sizeof(text));
}

/* Characters that JSON forbids, that could end the enclosing script element, or that
 * have no bytes in the page's encoding. */
static bool
needs_escape(unsigned character)
{
    return character < 0x20 || character == '"' || character == '\\' ||
           character == '<' || character == '>' || character == '&' ||
           (character >= 0x7f && character < 0xa0) || character == 0x2028 ||
           character == 0x2029 || (character >= 0xd800 && character < 0xe000);
}

void
ml_json_string(ml_buffer *out, const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t done = 0; /* bytes written */
    ml_json_text(out, "\"");
    for (size_t at = 0; at < length;) {
        unsigned character = 0xfffd;
        size_t taken = ml_utf8_decode(bytes + at, length - at, &character);
        if (taken > 0 && !needs_escape(character)) {
            at += taken;
            continue;
        }
        ml_buffer_append(out, text + done, at - done);
        put_escape(out, character);
        at += taken > 0 ? taken : 1;
        done = at;
    }
    ml_buffer_append(out, text + done, length - done);
    ml_json_text(out, "\"");
}

void
ml_json_c_string(ml_buffer *out, const char *text)
{
    ml_json_string(out, text, strlen(text));
}

void
ml_json_id(ml_buffer *out, const ml_recording *recording, uint32_t string)
{
    ml_string text = recording->strings[string];
    ml_json_string(out, text.bytes, text.length);
}

void
ml_json_next(ml_buffer *out)
{
    char last = out->length > 0 ? out->bytes[out->length - 1] : '{';
    if (last != '{' && last != '[') {
        ml_json_text(out, ",");
    }
}

void
ml_json_key(ml_buffer *out, const char *key)
{
    ml_json_next(out);
    ml_json_text(out, "\"");
    ml_json_text(out, key);
    ml_json_text(out, "\":");
}

void
ml_json_key_unsigned(ml_buffer *out, const char *key, uint64_t value)
{
    ml_json_key(out, key);
    ml_json_unsigned(out, value);
}

void
ml_json_key_string(ml_buffer *out, const char *key, const char *text)
{
    ml_json_key(out, key);
    ml_json_c_string(out, text);
}
