/* A sorted array of address ranges.
 *
 * A program has hundreds of segments, not millions: a search, and a move of the tail,
 * cost less than a tree. */
#include "phantom.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/base.h"

size_t
ml_spans_after(const ml_spans *spans, uintptr_t address)
{
    const ml_span *items = spans->items;
    size_t at;

    ML_SEARCH(at, spans->count, items[at].start + items[at].bytes <= address);
    return at;
}

const ml_span *
ml_spans_find(const ml_spans *spans, uintptr_t address)
{
    size_t index = ml_spans_after(spans, address);

    if (index < spans->count && spans->items[index].start <= address) {
        return &spans->items[index];
    }
    return NULL;
}

bool
ml_spans_insert(ml_spans *spans, uintptr_t start, size_t bytes)
{
    if (spans->count == spans->capacity) {
        size_t capacity = spans->capacity ? 2 * spans->capacity : 64;
        ml_span *items = realloc(spans->items, capacity * sizeof *items);

        if (items == NULL) {
            return false;
        }
        spans->items = items;
        spans->capacity = capacity;
    }
    size_t index = ml_spans_after(spans, start);
    memmove(&spans->items[index + 1], &spans->items[index],
            (spans->count - index) * sizeof *spans->items);
    spans->items[index] = (ml_span){start, bytes};
    spans->count++;
    return true;
}

size_t
ml_spans_remove(ml_spans *spans, uintptr_t start)
{
    size_t index = ml_spans_after(spans, start);

    if (index == spans->count || spans->items[index].start != start) {
        return 0;
    }
    size_t bytes = spans->items[index].bytes;
    spans->count--;
    memmove(&spans->items[index], &spans->items[index + 1],
            (spans->count - index) * sizeof *spans->items);
    return bytes;
}
