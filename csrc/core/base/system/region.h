/* Reserved address space whose pages become memory at their first touch.
 *
 * The allocator callback fills tables in it.  The callback may not allocate, so all
 * room that it can need is reserved beforehand. */
#ifndef ML_REGION_H
#define ML_REGION_H

#include <stddef.h>

typedef struct ml_region {
    void *base;   /* owned; page-aligned; zeros until written */
    size_t bytes; /* reserved */
} ml_region;

/* Reserves BYTES; or a half, a quarter, ... if the system refuses, or if a limit of the
 * address space makes it too large.  Never less than MINIMUM (0 < MINIMUM <= BYTES).
 * 0, ML_EINVALID or ML_ENOMEM; *REGION is written on success only. */
int ml_region_init(ml_region *region, size_t bytes, size_t minimum);

/* Accepts an all-zero or finished region. */
void ml_region_fini(ml_region *region);

/* Returns the memory and keeps the address space, which reads as zeros again.  No other
 * thread may be using it. */
void ml_region_discard(ml_region *region);

#endif
