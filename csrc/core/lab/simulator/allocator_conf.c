/* The text form of the caching allocator's settings, parsed as torch does.
 *
 * torch >= 2.9 expects one token between key and value and between entries, and accepts
 * any. Earlier versions require ':' and ','.  Both cut a value at its first odd
 * character. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "lab/simulator/allocator_settings.h"

#define MIB (UINT64_C(1) << 20)

typedef struct conf {
    ml_allocator_settings *settings;
    char *bytes; /* owned: the tokens, each with a NUL */
    char **tokens;
    size_t count;
    size_t at; /* current token */
    char *problem;
    size_t problem_bytes;
} conf;

typedef int (*reader)(conf *c);

static int refuse(conf *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int
refuse(conf *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->problem, c->problem_bytes, format, arguments);
    va_end(arguments);
    return ML_EINVALID;
}

/* ---- Tokens ---- */

static bool
is_mark(char character)
{
    return character != '\0' && strchr(",:[]", character) != NULL;
}

static bool
is_blank(const conf *c, char character)
{
    return character == ' ' ||
           (c->settings->version >= 209 && character >= '\t' && character <= '\r');
}

/* Punctuation marks are tokens; so is the text between them, without blanks. */
static int
cut(conf *c, const char *text)
{
    size_t length = strlen(text);
    c->bytes = ml_alloc(2 * length + 1);
    c->tokens = ml_alloc_zeroed(length + 1, sizeof(*c->tokens));
    if (c->bytes == NULL || c->tokens == NULL) {
        return ML_ENOMEM;
    }
    char *out = c->bytes;
    bool open = false;
    for (const char *in = text; *in != '\0'; in++) {
        if (is_blank(c, *in)) {
            continue;
        }
        if (is_mark(*in) && open) {
            *out++ = '\0';
            open = false;
        }
        if (!open) {
            c->tokens[c->count++] = out;
        }
        *out++ = *in;
        open = !is_mark(*in);
        if (!open) {
            *out++ = '\0';
        }
    }
    *out = '\0';
    return 0;
}

static bool
is_token(const conf *c, size_t at, const char *text)
{
    return at < c->count && strcmp(c->tokens[at], text) == 0;
}

/* Moves to the next token, which must exist. */
static int
step(conf *c, const char *after)
{
    if (++c->at >= c->count) {
        return refuse(c, "%.80s: a value is missing", after);
    }
    return 0;
}

/* Moves to the token between two others, which should be MARK. */
static int
step_mark(conf *c, const char *after, const char *mark)
{
    int error = step(c, after);
    if (error == 0 && c->settings->version < 209 && !is_token(c, c->at, mark)) {
        return refuse(c, "%.80s: expected '%s', not '%.80s'", after, mark,
                      c->tokens[c->at]);
    }
    return error;
}

/* ---- Values ---- */

static int
read_integer(conf *c, const char *key, uint64_t *out)
{
    const char *text = c->tokens[c->at];
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (end == text || errno == ERANGE) {
        return refuse(c, "%s: '%.80s' is not a whole number", key, text);
    }
    return 0;
}

static int
read_real(conf *c, const char *key, double *out)
{
    const char *text = c->tokens[c->at];
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    if (end == text || errno == ERANGE) {
        return refuse(c, "%s: '%.80s' is not a number", key, text);
    }
    return 0;
}

static int
read_bool(conf *c, const char *key, bool *out)
{
    *out = is_token(c, c->at, "True");
    if (!*out && !is_token(c, c->at, "False")) {
        return refuse(c, "%s: expected True or False, not '%.80s'", key,
                      c->tokens[c->at]);
    }
    return 0;
}

static int
read_mib(conf *c, const char *key, uint64_t least, uint64_t *out)
{
    uint64_t value;
    int error = read_integer(c, key, &value);
    if (error != 0) {
        return error;
    }
    if (value < least) {
        return refuse(c, "%s: %llu is too small, it must be at least %llu", key,
                      (unsigned long long)value, (unsigned long long)least);
    }
    *out = (value < UINT64_MAX / MIB ? value : UINT64_MAX / MIB) * MIB;
    return 0;
}

static bool
is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* ---- Keys ---- */

static int
read_large_segment(conf *c)
{
    return read_mib(c, "large_segment_size_mb", 11, &c->settings->large_segment_bytes);
}

static int
read_max_split(conf *c)
{
    return read_mib(c, "max_split_size_mb", c->settings->large_segment_bytes / MIB,
                    &c->settings->max_split_bytes);
}

static int
read_rounding(conf *c)
{
    return read_mib(c, "max_non_split_rounding_mb",
                    c->settings->large_segment_bytes / MIB,
                    &c->settings->max_non_split_rounding);
}

static int
read_threshold(conf *c)
{
    double value;
    int error = read_real(c, "garbage_collection_threshold", &value);
    if (error == 0 && !(value > 0 && value < 1)) {
        return refuse(c, "garbage_collection_threshold: %g is not between 0 and 1",
                      value);
    }
    if (error == 0) {
        c->settings->gc_threshold = value;
    }
    return error;
}

static int
read_fraction(conf *c)
{
    double value;
    int error = read_real(c, "per_process_memory_fraction", &value);
    if (error == 0 && !(value >= 0 && value <= 1)) {
        return refuse(c, "per_process_memory_fraction: %g is not between 0 and 1",
                      value);
    }
    if (error == 0) {
        c->settings->memory_fraction = value;
        c->settings->limited = value < 1;
    }
    return error;
}

/* Above 2^31 all values act alike: no block is that large. */
static uint32_t
divisions_of(uint64_t value)
{
    return value < (UINT64_C(1) << 31) ? (uint32_t)value : UINT32_C(1) << 31;
}

static void
fill_divisions(conf *c, size_t from, size_t to, uint64_t value)
{
    for (size_t i = from; i < to; i++) {
        c->settings->roundup_divisions[i] = divisions_of(value);
    }
}

/* Reads one "256:4" or ">:4" of a list.  *LAST: the previous interval.  *FIRST: this
 * entry is the first with an interval, and holds for all smaller ones too. */
static int
read_division(conf *c, size_t *last, bool *first)
{
    static const char key[] = "roundup_power2_divisions";
    size_t name = c->at;
    uint64_t megabytes, value;
    int error = step_mark(c, key, ":");
    if (error == 0) {
        error = step(c, key);
    }
    if (error == 0) {
        error = read_integer(c, key, &value);
    }
    if (error == 0 && value != 0 && !is_power_of_two(value)) {
        return refuse(c, "%s: %llu is neither a power of 2 nor 0", key,
                      (unsigned long long)value);
    }
    if (error != 0) {
        return error;
    }
    if (is_token(c, name, ">")) {
        fill_divisions(c, *last + (c->settings->version >= 209), 16, value);
        return 0;
    }
    size_t at = c->at;
    c->at = name;
    error = read_integer(c, key, &megabytes);
    c->at = at;
    if (error == 0 && !is_power_of_two(megabytes)) {
        return refuse(c, "%s: the interval %llu is not a power of 2", key,
                      (unsigned long long)megabytes);
    }
    if (error != 0) {
        return error;
    }
    size_t index = 63u - (size_t)__builtin_clzll(megabytes);
    index = index < 15 ? index : 15;
    if (*first) {
        fill_divisions(c, 0, index, value);
        *first = false;
    }
    fill_divisions(c, index, index + 1, value);
    *last = index;
    return 0;
}

static int
read_divisions(conf *c)
{
    static const char key[] = "roundup_power2_divisions";
    if (!is_token(c, c->at, "[")) {
        uint64_t value;
        int error = read_integer(c, key, &value);
        if (error == 0 && !is_power_of_two(value)) {
            return refuse(c, "%s: %llu is not a power of 2", key,
                          (unsigned long long)value);
        }
        if (error == 0) {
            fill_divisions(c, 0, 16, value);
        }
        return error;
    }
    size_t last = 0;
    bool first = true;
    while (++c->at < c->count && !is_token(c, c->at, "]")) {
        int error = read_division(c, &last, &first);
        if (error == 0 && !is_token(c, c->at + 1, "]")) {
            error = step_mark(c, key, ",");
        }
        if (error != 0) {
            return error;
        }
    }
    return c->at < c->count ? 0 : refuse(c, "%s: a ']' is missing", key);
}

static int
read_expandable(conf *c)
{
    return read_bool(c, "expandable_segments", &c->settings->expandable_segments);
}

static int
read_reuse(conf *c)
{
    return read_bool(c, "graph_capture_record_stream_reuse",
                     &c->settings->capture_reuse);
}

static int
read_reject(conf *c)
{
    return read_bool(c, "throw_on_cudamalloc_oom", &c->settings->reject_early);
}

static int
read_flag(conf *c) /* not modelled: host memory, locks */
{
    bool value;
    return read_bool(c, c->tokens[c->at - 2], &value);
}

static int
read_threads(conf *c)
{
    uint64_t value;
    int error = read_integer(c, "pinned_num_register_threads", &value);
    if (error == 0 && (!is_power_of_two(value) || value > 128)) {
        return refuse(c,
                      "pinned_num_register_threads: %llu is not a power of 2 up to 128",
                      (unsigned long long)value);
    }
    return error;
}

static int
read_pinned_segment(conf *c)
{
    uint64_t value;
    int error = read_integer(c, "pinned_reserve_segment_size_mb", &value);
    if (error == 0 && value == 0) {
        return refuse(c, "pinned_reserve_segment_size_mb: 0 is too small");
    }
    return error;
}

static int
read_backend(conf *c)
{
    if (is_token(c, c->at, "native")) {
        return 0;
    }
    if (is_token(c, c->at, "cudaMallocAsync")) {
        return refuse(c, "backend: only the native allocator is modelled, not "
                         "cudaMallocAsync");
    }
    return refuse(c, "backend: expected native or cudaMallocAsync, not '%.80s'",
                  c->tokens[c->at]);
}

static int
read_anything(conf *c) /* of streams that C++ code gave a class */
{
    if (is_token(c, c->at, "[")) {
        while (c->at < c->count && !is_token(c, c->at, "]")) {
            c->at++;
        }
    }
    return c->at < c->count ? 0 : refuse(c, "a ']' is missing");
}

/* "0.5", of the device's memory, or "40G".  torch leaves out a value that is none. */
static int
read_reserve(conf *c)
{
    char *end;
    double value = strtod(c->tokens[c->at], &end);
    bool in_gib = *end == 'G';
    if (end != c->tokens[c->at] && end[in_gib] == '\0' && value > 0) {
        c->settings->reserve = value;
        c->settings->reserve_in_gib = in_gib;
    }
    return 0;
}

/* By the version of torch that has them first, of those that are supported. */
static const struct {
    const char *name;
    reader read;
    unsigned since;
} keys[] = {
    {"backend", read_backend, 0},
    {"expandable_segments", read_expandable, 0},
    {"garbage_collection_threshold", read_threshold, 0},
    {"max_split_size_mb", read_max_split, 0},
    {"max_non_split_rounding_mb", read_rounding, 0},
    {"roundup_power2_divisions", read_divisions, 0},
    {"pinned_num_register_threads", read_threads, 0},
    {"pinned_use_background_threads", read_flag, 0},
    {"pinned_use_cuda_host_register", read_flag, 0},
    {"pinned_use_hip_host_register", read_flag, 0},
    {"release_lock_on_cudamalloc", read_flag, 0},
    {"release_lock_on_hipmalloc", read_flag, 0},
    {"pinned_reserve_segment_size_mb", read_pinned_segment, 208},
    {"graph_capture_record_stream_reuse", read_reuse, 209},
    {"per_process_memory_fraction", read_fraction, 210},
    {"large_segment_size_mb", read_large_segment, 211},
    {"pinned_free_catch_all", read_flag, 212},
    {"throw_on_cudamalloc_oom", read_reject, 212},
    {"expandable_segments_reserve", read_reserve, 215},
    {"expandable_segments_reserve_by_class", read_anything, 215},
};

static int
refuse_key(conf *c, const char *key)
{
    unsigned version = c->settings->version;
    ml_buffer known = {0};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (keys[i].since <= version) {
            ml_buffer_append(&known, ", ", known.length > 0 ? 2 : 0);
            ml_buffer_append(&known, keys[i].name, strlen(keys[i].name));
        }
    }
    int error =
        known.error != 0
            ? ML_ENOMEM
            : refuse(c, "torch %u.%u does not know '%.80s'; it knows %.*s",
                     version / 100, version % 100, key, (int)known.length, known.bytes);
    ml_buffer_fini(&known);
    return error;
}

/* Reads all entries, or (ONLY) those of one key, up to its value or the end of its
 * list. */
static int
read_entries(conf *c, reader only)
{
    for (c->at = 0; c->at < c->count; c->at++) {
        const char *key = c->tokens[c->at];
        reader read = NULL;
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
            if (keys[i].since <= c->settings->version &&
                strcmp(keys[i].name, key) == 0) {
                read = keys[i].read;
            }
        }
        if (read == NULL) {
            return refuse_key(c, key);
        }
        int error = step_mark(c, key, ":");
        if (error == 0) {
            error = step(c, key);
        }
        if (error == 0) {
            error = only == NULL || only == read ? read(c) : read_anything(c);
        }
        if (error == 0 && c->at + 1 < c->count) {
            error = step_mark(c, key, ",");
        }
        if (error != 0) {
            return error;
        }
    }
    return 0;
}

int
ml_allocator_settings_parse(ml_allocator_settings *settings, const char *text,
                            char *problem, size_t problem_bytes)
{
    ml_allocator_settings changed = *settings;
    conf c = {0};
    c.settings = &changed;
    c.problem = problem;
    c.problem_bytes = problem_bytes;
    /* Every parse resets these to their defaults. */
    changed.max_split_bytes = UINT64_MAX;
    changed.gc_threshold = 0;
    memset(changed.roundup_divisions, 0, sizeof(changed.roundup_divisions));
    int error = cut(&c, text);
    if (error == 0) {
        /* First, because other settings depend on it. */
        error = read_entries(&c, read_large_segment);
    }
    if (error == 0) {
        changed.max_non_split_rounding = changed.large_segment_bytes;
        error = read_entries(&c, NULL);
    }
    if (error == 0) {
        *settings = changed;
    }
    ml_free(c.bytes);
    ml_free(c.tokens);
    return error;
}
