/* JSON text, safe inside a script element of an HTML page.
 *
 * Owns how numbers and strings are written.  Output is ASCII, except for names, which
 * are valid UTF-8.  It contains none of < > &, U+2028 and U+2029.  The buffer remembers
 * errors. */
#ifndef ML_JSON_H
#define ML_JSON_H

#include "base/base.h"
#include "recording/recording.h"

void ml_json_text(ml_buffer *out, const char *text); /* unchanged */
/* Writes integers above 2^53 as strings, because JavaScript would round them. */
void ml_json_unsigned(ml_buffer *out, uint64_t value);
void ml_json_signed(ml_buffer *out, int64_t value);
void ml_json_string(ml_buffer *out, const char *bytes, size_t length);
void ml_json_c_string(ml_buffer *out, const char *text);
void ml_json_id(ml_buffer *out, const ml_recording *recording, uint32_t string);

/* Writes KEY, one of memlab's own, after a comma unless it is the object's first. */
void ml_json_key(ml_buffer *out, const char *key);
void ml_json_key_unsigned(ml_buffer *out, const char *key, uint64_t value);
void ml_json_key_string(ml_buffer *out, const char *key, const char *text);
/* Writes a comma unless the next item is the list's first. */
void ml_json_next(ml_buffer *out);

/* Writes KEY with a list of COUNT items.  The statement PUT writes one item, whose
 * number is INDEX. */
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
