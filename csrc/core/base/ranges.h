/* A set of taken ranges of addresses, which do not overlap. */
#ifndef ML_RANGES_H
#define ML_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ml_range {
    uint64_t start;
    uint64_t end;
} ml_range;

typedef struct ml_ranges {
    ml_range *items; /* owned; by start */
    size_t count;
    size_t capacity;
} ml_ranges;

void ml_ranges_fini(ml_ranges *ranges);

/* Takes BYTES from START on.  1; 0 if some of it is taken, it is empty, or it exceeds
 * the address space; or ML_ENOMEM. */
int ml_ranges_take(ml_ranges *ranges, uint64_t start, uint64_t bytes);
/* Gives back the taken part of these bytes.  0 or ML_ENOMEM. */
int ml_ranges_give(ml_ranges *ranges, uint64_t start, uint64_t bytes);

#endif
