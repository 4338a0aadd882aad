/* Trees of plain data: the content of an untrusted file, before any check.
 *
 * Owns the nodes and their memory; it knows neither the file's format nor the meaning
 * of the data.  A tree borrows its strings from the bytes it was read from. */
#ifndef ML_VALUE_H
#define ML_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/read_error.h"

/* No valid data nest deeper: a snapshot needs seven levels. */
#define ML_DEPTH_MAX 64

enum ml_value_kind {
    ML_VALUE_NONE,
    ML_VALUE_BOOL,
    ML_VALUE_INT,      /* -2**63 .. 2**63-1 */
    ML_VALUE_UNSIGNED, /* 2**63 .. 2**64-1 */
    ML_VALUE_REAL,
    ML_VALUE_STRING,
    ML_VALUE_HUGE,  /* an integer of more than 64 bits, never used in arithmetic */
    ML_VALUE_BYTES, /* that are no text */
    ML_VALUE_LIST,
    ML_VALUE_TUPLE,
    ML_VALUE_DICT /* items alternate key and value; the last of equal keys counts */
};

/* Eight bytes: the address of a node, or a small scalar in place.  Compare and read
 * through the functions below. */
typedef struct ml_value {
    uint64_t bits;
} ml_value;

/* Strings and containers are nodes that several places may refer to.  Their ids count
 * from 0, so that a reader can keep its result for each in an array. */
typedef struct ml_value_header {
    uint32_t kind; /* enum ml_value_kind */
    uint32_t id;   /* 0 for boxed numbers */
} ml_value_header;

typedef struct ml_scalar {
    ml_value_header node;
    union {
        int64_t integer;
        uint64_t natural;
        double real;
    } as;
} ml_scalar;

typedef struct ml_text {
    ml_value_header node;
    /* Borrowed.  A string should be UTF-8, but may be any bytes; a huge integer is
     * two's complement, the lowest byte first. */
    const char *bytes;
    size_t length; /* bytes */
} ml_text;

typedef struct ml_array {
    ml_value_header node;
    uint32_t count;    /* values: two an entry for a dict */
    uint32_t capacity; /* values */
    ml_value *items;   /* owned by the tree */
} ml_array;

typedef struct ml_tree {
    ml_value root;
    size_t node_count; /* ids in use */
    size_t bytes;      /* charged so far */
    size_t byte_limit;
    struct ml_tree_chunk *chunks;
    struct ml_tree_large *large;
} ml_tree;

void ml_tree_init(ml_tree *tree, size_t byte_limit);
void ml_tree_fini(ml_tree *tree);
/* Counts BYTES held on behalf of the tree.  0 or ML_ELIMIT. */
int ml_tree_charge(ml_tree *tree, size_t bytes);

#define ML_VALUE_OF_NONE ((ml_value){2})
#define ML_VALUE_OF_FALSE ((ml_value){10})
#define ML_VALUE_OF_TRUE ((ml_value){18})

/* Each makes a value in TREE: 0, ML_ENOMEM or ML_ELIMIT. */
int ml_value_int(ml_tree *tree, int64_t integer, ml_value *out);
int ml_value_unsigned(ml_tree *tree, uint64_t natural, ml_value *out);
int ml_value_real(ml_tree *tree, double real, ml_value *out);
/* KIND is STRING, HUGE or BYTES. */
int ml_value_text(ml_tree *tree, enum ml_value_kind kind, const char *bytes,
                  size_t length, ml_value *out);
/* A list, tuple or dict with room for COUNT values. */
int ml_value_array(ml_tree *tree, enum ml_value_kind kind, size_t count, ml_value *out);
int ml_array_add(ml_tree *tree, ml_array *array, const ml_value *items, size_t count);

/* 0 if no path from the root is longer than ML_DEPTH_MAX and none is a cycle: recursion
 * over the tree is then safe.  Linear in the tree's size. */
int ml_tree_check(const ml_tree *tree, ml_read_error *error);

static inline const ml_value_header *
ml_value_node(ml_value value)
{
    return (value.bits & 7) == 0 ? (const ml_value_header *)(uintptr_t)value.bits
                                 : NULL;
}

static inline enum ml_value_kind
ml_value_kind(ml_value value)
{
    const ml_value_header *node = ml_value_node(value);
    if (node != NULL) {
        return (enum ml_value_kind)node->kind;
    }
    if ((value.bits & 7) == 1) {
        return ML_VALUE_INT;
    }
    return value.bits == ML_VALUE_OF_NONE.bits ? ML_VALUE_NONE : ML_VALUE_BOOL;
}

/* Of an ML_VALUE_INT. */
static inline int64_t
ml_value_as_int(ml_value value)
{
    const ml_value_header *node = ml_value_node(value);
    return node != NULL ? ((const ml_scalar *)node)->as.integer
                        : (int64_t)value.bits >> 3;
}

/* Of an ML_VALUE_UNSIGNED or ML_VALUE_REAL. */
static inline const ml_scalar *
ml_value_as_scalar(ml_value value)
{
    return (const ml_scalar *)(uintptr_t)value.bits;
}

static inline const ml_text *
ml_value_as_text(ml_value value)
{
    return (const ml_text *)(uintptr_t)value.bits;
}

/* Of a list, tuple or dict. */
static inline ml_array *
ml_value_as_array(ml_value value)
{
    return (ml_array *)(uintptr_t)value.bits;
}

static inline bool
ml_value_is(ml_value value, enum ml_value_kind kind)
{
    return ml_value_kind(value) == kind;
}

static inline bool
ml_kind_is_array(enum ml_value_kind kind)
{
    return kind >= ML_VALUE_LIST;
}

const char *ml_kind_text(enum ml_value_kind kind); /* "a list" */

#endif
