/* The lines of a recording, paired with those of another.
 *
 * Measures how similar lines are, and pairs them in their order; the part of match.h
 * that works on lines. */
#ifndef ML_MATCH_LINES_H
#define ML_MATCH_LINES_H

#include "compare/diff/match.h"

#define ML_NO_LINE UINT32_MAX

typedef struct ml_match_feature {
    uint64_t hash;
    uint32_t weight;
    bool strong; /* names a module or an operation */
} ml_match_feature;

/* One line of a file, of one function. */
typedef struct ml_match_line {
    int64_t line;
    uint32_t file;
    uint32_t function;
    size_t first_site; /* index in the order */
    size_t site_count;
    size_t first_feature;
    size_t feature_count;
    uint32_t weight;  /* sum of its features' weights */
    uint32_t partner; /* line of the other side, or ML_NO_LINE */
} ml_match_line;

typedef struct ml_match_lines {
    uint32_t
        *order; /* owned; sites by file, line and function; those without one first */
    size_t order_count;
    size_t without;       /* the number without a line */
    ml_match_line *items; /* owned; by file, line and function */
    size_t count;
    ml_match_feature *features; /* owned; of each line by hash */
    size_t feature_count;
    size_t feature_capacity;
} ml_match_lines;

/* KNOWN: by text, whether the other recording has such a module.  A module that it
 * lacks has another name there, or does not exist: it says little about a line.  0, or
 * ML_ENOMEM with nothing to free. */
int ml_match_lines_init(ml_match_lines *lines, const ml_sites *sites,
                        const uint8_t *known);
void ml_match_lines_fini(ml_match_lines *lines);

/* Pairs the lines of two sides.  0 or ML_ENOMEM. */
int ml_match_lines_pair(ml_match_lines *before, ml_match_lines *after,
                        const ml_string_pool *texts, bool same_code);

/* The number of equal parts at the ends of two paths. */
size_t ml_match_tail(ml_string a, ml_string b);

#endif
