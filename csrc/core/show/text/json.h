/* JSON text, safe inside a script element of an HTML page.
 *
 * Owns how numbers and strings are written.  What it writes is ASCII but for characters
 * of names, valid UTF-8, and holds none of < > & nor U+2028 nor U+2029.  Whatever goes
 * wrong is remembered by the buffer. */
#ifndef ML_JSON_H
#define ML_JSON_H

#include "base/base.h"
#include "recording/recording.h"

void ml_json_text(ml_buffer *out, const char *text); /* as it is */
/* Integers above 2^53, which JavaScript would round, as strings. */
void ml_json_unsigned(ml_buffer *out, uint64_t value);
void ml_json_signed(ml_buffer *out, int64_t value);
void ml_json_string(ml_buffer *out, const char *bytes, size_t length);
void ml_json_c_string(ml_buffer *out, const char *text);
void ml_json_id(ml_buffer *out, const ml_recording *recording, uint32_t string);

/* KEY of ours, behind a comma unless it is the first of its object. */
void ml_json_key(ml_buffer *out, const char *key);
void ml_json_key_unsigned(ml_buffer *out, const char *key, uint64_t value);
void ml_json_key_string(ml_buffer *out, const char *key, const char *text);
/* What separates the items of a list: a comma unless it is the first. */
void ml_json_next(ml_buffer *out);

/* The key KEY with a list of COUNT items, each written by the statement PUT, in which
 * INDEX is its number. */
#define ML_JSON_COLUMN(out, key, index, count, put) \
    do { \
        ml_json_key((out), (key)); \
        ml_json_text((out), "["); \
        for (size_t index = 0; index < (count); index++) { \
            ml_json_next(out); \
            put; \
        } \
        ml_json_text((out), "]"); \
    } while (0)

#endif
