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

/* Reserves BYTES, or a half, a quarter, ... of it where the system refuses, or where it
 * is much of what addresses a limit leaves the process, but never fewer than MINIMUM (0 < MINIMUM <= BYTES).  0, ML_EINVALID or ML_ENOMEM; *REGION is
 * written on success only. */
int ml_region_init(ml_region *region, size_t bytes, size_t minimum);

/* Takes an all-zero region and one already finished. */
void ml_region_fini(ml_region *region);

/* Gives the memory back and keeps the address space, which reads as zeros again.  No
 * other thread may be using it. */
void ml_region_discard(ml_region *region);

#endif
