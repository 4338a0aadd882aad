/* Memory, growth, hashing, searching, text and error texts for the core.
 *
 * All memory of the core comes through one allocation hook, so that tests can make any
 * allocation fail. */
#ifndef ML_BASE_H
#define ML_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memlab.h"

/* Grow, shrink and free in one: BYTES 0 frees.  NULL on failure, POINTER then stays. */
typedef void *(*ml_realloc_hook)(void *pointer, size_t bytes);
typedef struct ml_memory {
    ml_realloc_hook realloc;
    void *(*zeroed)(size_t bytes); /* not 0; NULL: by REALLOC */
} ml_memory;
/* Where all memory comes from; what there is already must be known to it.  NULL: the C
 * library.  Not thread-safe. */
void ml_set_memory(const ml_memory *memory);
/* For tests: one without a function of its own for zeros.  NULL: the C library. */
void ml_set_realloc(ml_realloc_hook hook);

void *ml_alloc(size_t bytes);                     /* uninitialised */
void *ml_alloc_zeroed(size_t count, size_t size); /* checked product */
void *ml_realloc(void *pointer, size_t bytes);
void ml_free(void *pointer);

/* Makes room for at least NEEDED items of SIZE bytes in the array at *ITEMS (a void*
 * lvalue address) whose capacity is *CAPACITY items; grows by half again.  0 or
 * ML_ENOMEM, with nothing changed. */
int ml_grow(void **items, size_t *capacity, size_t needed, size_t size);

const char *ml_strerror(int error);

static inline uint64_t
ml_hash_u64(uint64_t value)
{
    value ^= value >> 32;
    value *= 0xd6e8feb86659fd93u;
    value ^= value >> 32;
    value *= 0xd6e8feb86659fd93u;
    value ^= value >> 32;
    return value;
}

uint64_t ml_hash_bytes(const void *bytes, size_t length);

/* Hot path: one multiplication.  Only the high bits depend on all of VALUE. */
static inline uint64_t
ml_hash_high(uint64_t value)
{
    return value * 0x9e3779b97f4a7c15u;
}

/* For qsort() and bsearch() of uint64_t, smallest first. */
int ml_compare_u64(const void *a, const void *b);

/* AT, a size_t, becomes the first of COUNT indices for which BELOW does not hold;
 * COUNT: it holds for all.  BELOW, an expression of AT, must hold up to some index and
 * not after it.  No branch depends on it: where it holds cannot be predicted. */
#define ML_SEARCH(at, count, below) \
    do { \
        size_t ml_search_low = 0, ml_search_count = (count); \
        while (ml_search_count > 1) { \
            size_t ml_search_half = ml_search_count / 2; \
            (at) = ml_search_low + ml_search_half - 1; \
            bool ml_search_below = (below); \
            ml_search_low += ml_search_half & (0 - (size_t)ml_search_below); \
            ml_search_count -= ml_search_half; \
        } \
        (at) = ml_search_low; \
        (at) += ml_search_count != 0 && (below); \
    } while (0)

/* The index of the first of COUNT ITEMS whose address is ADDR or above; COUNT: none.  Each
 * has SIZE bytes and begins with its uint64_t address, by which they are sorted. */
static inline size_t
ml_find_address(const void *items, size_t size, size_t count, uint64_t addr)
{
    size_t low;
    ML_SEARCH(low, count, *(const uint64_t *)((const char *)items + low * size) < addr);
    return low;
}

/* The length of the UTF-8 character at the start of the LEFT bytes at BYTES; *CHARACTER
 * is its value.  0: no character.  Lone surrogates are accepted, as by Python's
 * surrogatepass. */
size_t ml_utf8_decode(const unsigned char *bytes, size_t left, unsigned *character);
/* HOT.  Writes CHARACTER, below 0x110000, to OUT; a surrogate like any other.  Returns its
 * length in bytes. */
#define ML_UTF8_MAX 4
size_t ml_utf8_encode(char *out, unsigned character);
/* How many of the LENGTH bytes of TEXT fit into MOST, up to the end of a character. */
size_t ml_utf8_cut(const char *text, size_t length, size_t most);

/* Replaces each lone surrogate in the UTF-8 TEXT by U+FFFD, which has the same
 * length. */
void ml_text_replace_surrogates(char *text, size_t length);

/* Growing byte buffer for writers.  A failed append is remembered: check `error` once
 * at the end. */
typedef struct ml_buffer {
    char *bytes;
    size_t length;
    size_t capacity;
    int error; /* 0 or the first ML_E* */
} ml_buffer;

void ml_buffer_fini(ml_buffer *buffer);
void ml_buffer_append(ml_buffer *buffer, const void *bytes, size_t length);
/* Room for LENGTH more bytes, for the caller to write after the others; false: none. */
bool ml_buffer_reserve(ml_buffer *buffer, size_t length);

/* Maps byte strings or small fixed structs to dense ids; used while building. */
typedef struct ml_intern {
    uint32_t *slots;  /* id + 1; 0 empty */
    uint64_t *hashes; /* by id */
    size_t slot_count;
    size_t count;
    size_t hash_capacity;
} ml_intern;

void ml_intern_fini(ml_intern *table);
/* Finds an id with HASH for which EQUAL(context, id) holds.  1 found, 0 not. */
int ml_intern_find(const ml_intern *table, uint64_t hash,
                   bool (*equal)(const void *context, uint32_t id), const void *context,
                   uint32_t *id);
/* Adds id == table->count under HASH.  0 or ML_ENOMEM. */
int ml_intern_add(ml_intern *table, uint64_t hash);

/* A function that few events of the callback call.  It lies apart, and so does the code that
 * leads to it: the common path takes fewer lines of the cache. */
#define ML_RARE __attribute__((cold, noinline))

/* Three levels: cheap ones stay in debug builds, expensive ones need level 3. */
#ifndef ML_DEBUG
#define ML_DEBUG 0
#endif
#if ML_DEBUG >= 1
#include <assert.h>
#define ML_ASSERT(condition) assert(condition)
#else
#define ML_ASSERT(condition) ((void)0)
#endif

#endif
