/* Plain data as text in tests: a literal such as {'a':[1,(2,None)]} becomes a pickle,
 * and a value tree becomes such a literal, without spaces. */
#ifndef ML_TEST_LITERAL_H
#define ML_TEST_LITERAL_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "file/snapshot/pickle_writer.h"
#include "file/snapshot/snapshot_reader.h"
#include "file/snapshot/unpickle.h"
#include "file/snapshot/value.h"

static inline void
literal_text(ml_buffer *out, const char *text)
{
    ml_buffer_append(out, text, strlen(text));
}

static inline void
literal_show(ml_buffer *out, ml_value value)
{
    char number[64] = "";
    switch (ml_value_kind(value)) {
    case ML_VALUE_NONE:
        literal_text(out, "None");
        return;
    case ML_VALUE_BOOL:
        literal_text(out, value.bits == ML_VALUE_OF_TRUE.bits ? "True" : "False");
        return;
    case ML_VALUE_INT:
        snprintf(number, sizeof(number), "%lld", (long long)ml_value_as_int(value));
        literal_text(out, number);
        return;
    case ML_VALUE_UNSIGNED:
        snprintf(number, sizeof(number), "%llu",
                 (unsigned long long)ml_value_as_scalar(value)->as.natural);
        literal_text(out, number);
        return;
    case ML_VALUE_REAL:
        snprintf(number, sizeof(number), "%.17g", ml_value_as_scalar(value)->as.real);
        literal_text(out, number);
        literal_text(out, strpbrk(number, ".e") != NULL ? "" : ".0");
        return;
    case ML_VALUE_HUGE:
        for (size_t i = ml_value_as_text(value)->length; i-- != 0;) {
            snprintf(number, sizeof(number), "%02x",
                     (unsigned char)ml_value_as_text(value)->bytes[i]);
            literal_text(out, number);
        }
        return;
    case ML_VALUE_BYTES:
    case ML_VALUE_STRING:
        literal_text(out, ml_value_is(value, ML_VALUE_BYTES) ? "b'" : "'");
        ml_buffer_append(out, ml_value_as_text(value)->bytes,
                         ml_value_as_text(value)->length);
        literal_text(out, "'");
        return;
    case ML_VALUE_LIST:
    case ML_VALUE_TUPLE:
    case ML_VALUE_DICT:
        break;
    }
    bool dict = ml_value_is(value, ML_VALUE_DICT);
    bool list = ml_value_is(value, ML_VALUE_LIST);
    const ml_array *array = ml_value_as_array(value);
    literal_text(out, dict ? "{" : list ? "[" : "(");
    for (uint32_t i = 0; i < array->count; i++) {
        literal_text(out, i == 0 ? "" : dict && i % 2 == 1 ? ":" : ",");
        literal_show(out, array->items[i]);
    }
    literal_text(out, dict ? "}" : list ? "]" : ")");
}

/* The literal of the pickle in BYTES, or the error; the caller frees. */
static inline char *
literal_of_pickle(const void *bytes, size_t length)
{
    ml_buffer out = {0};
    ml_tree tree;
    ml_read_error error = {0};
    if (ml_unpickle(bytes, length, &tree, &error) == 0) {
        literal_show(&out, tree.root);
        ml_tree_fini(&tree);
    }
    else {
        literal_text(&out, "error: ");
        literal_text(&out, error.text);
    }
    ml_buffer_append(&out, "", 1);
    return out.bytes;
}

/* Appends the opcodes for the literal at TEXT; returns what follows it. */
static inline const char *
literal_emit(ml_buffer *out, const char *text)
{
    if (*text == '[' || *text == '(' || *text == '{') {
        char closing = *text == '[' ? ']' : *text == '(' ? ')' : '}';
        literal_text(out, *text == '[' ? "](" : *text == '(' ? "(" : "}(");
        text++;
        while (*text != closing) {
            text = literal_emit(out, text);
            text += *text == ',' || *text == ':';
        }
        literal_text(out, closing == ']' ? "e" : closing == ')' ? "t" : "u");
        return text + 1;
    }
    if (*text == '\'') {
        const char *end = strchr(text + 1, '\'');
        uint32_t length = (uint32_t)(end - text - 1);
        unsigned char head[5] = {'X', (unsigned char)length,
                                 (unsigned char)(length >> 8), 0, 0};
        ml_buffer_append(out, head, sizeof(head));
        ml_buffer_append(out, text + 1, length);
        return end + 1;
    }
    static const char *const words[] = {"None", "N", "True", "\x88", "False", "\x89"};
    for (size_t i = 0; i < 6; i += 2) {
        if (strncmp(text, words[i], strlen(words[i])) == 0) {
            literal_text(out, words[i + 1]);
            return text + strlen(words[i]);
        }
    }
    size_t length = strspn(text, "-.0123456789");
    unsigned char bytes[11] = {0x8a, 8};
    uint64_t bits;
    if (memchr(text, '.', length) != NULL) {
        double real = strtod(text, NULL);
        memcpy(&bits, &real, sizeof(bits));
        bytes[0] = 'G';
        for (int i = 0; i < 8; i++) {
            bytes[1 + i] = (unsigned char)(bits >> (56 - 8 * i));
        }
        ml_buffer_append(out, bytes, 9);
        return text + length;
    }
    bool negative = *text == '-';
    bits = strtoull(text + negative, NULL, 10);
    bits = negative ? 0 - bits : bits;
    bool wide = !negative && bits >> 63 != 0;
    bytes[1] = wide ? 9 : 8;
    for (int i = 0; i < 8; i++) {
        bytes[2 + i] = (unsigned char)(bits >> (8 * i));
    }
    ml_buffer_append(out, bytes, wide ? 11 : 10);
    return text + length;
}

static inline ml_buffer
literal_pickle(const char *text)
{
    ml_buffer out = {0};
    literal_text(&out, "\x80\x04");
    literal_emit(&out, text);
    literal_text(&out, ".");
    return out;
}

/* What is read of a snapshot; NULL, and why on stderr, where it cannot be. */
static inline ml_recording *
literal_recording(const char *literal)
{
    ml_buffer pickle = literal_pickle(literal);
    ml_recording *recording = NULL;
    ml_read_error error = {0};
    if (ml_snapshot_read(pickle.bytes, pickle.length, &recording, &error) != 0) {
        fprintf(stderr, "%s\n", error.text);
    }
    ml_buffer_fini(&pickle);
    return recording;
}

static inline int
literal_sink(void *context, const void *bytes, size_t length)
{
    ml_buffer *out = context;
    ml_buffer_append(out, bytes, length);
    return out->error;
}

/* The literal of what is written of RECORDING; the caller frees. */
static inline char *
literal_written(const ml_recording *recording, unsigned options)
{
    ml_buffer out = {0};
    int error = ml_pickle_write(recording, options, literal_sink, &out);
    char *text = literal_of_pickle(out.bytes, out.length);
    ml_buffer_fini(&out);
    if (error != 0) {
        ml_free(text);
        return NULL;
    }
    return text;
}

#endif
