/* Placement: the addresses that the driver chooses for memory on a device.
 *
 * Up to torch 2.11 the caching allocator breaks ties between equal free blocks by
 * address, so the peak it reserves depends on the order of the addresses that cudaMalloc
 * returns.  ML_PLACEMENT_DRIVER is the driver's rule, found from 3,000 random calls of
 * cudaMalloc and cudaFree on an H200.  It predicts every address among them that does not
 * depend on the context's own memory:
 *
 * - Memory comes in regions of a multiple of 32 MiB.
 * - A request takes the newest region with a hole that is large enough, and in it the
 *   smallest such hole, the lowest of equals.
 * - Else a new region is made in the highest gap between regions that is larger than
 *   it, at the gap's upper end; else directly below the lowest region.
 * - A region that has become empty is given up.
 *
 * The driver maps new regions into the process's own address space, where Linux uses the
 * highest gap that is large enough, alignment included.  The program's own memory lies
 * there too and decides which gaps exist, so ml_placement_new_mapped() leaves the choice
 * to the caller's mapping.
 *
 * The other policies show what depends on the order: ascending and descending addresses
 * without regions, and places drawn from a seed.
 *
 * Owns: which ranges of one device's address space are taken.  Not thread-safe. */
#ifndef ML_PLACEMENT_H
#define ML_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ML_PLACEMENT_GRANULE ((uint64_t)2 << 20) /* starts are multiples of this */
#define ML_PLACEMENT_REGION ((uint64_t)32 << 20)

enum ml_placement_policy {
    ML_PLACEMENT_DRIVER,
    ML_PLACEMENT_ASCENDING,  /* the lowest gap, at its lower end */
    ML_PLACEMENT_DESCENDING, /* the highest gap, at its upper end */
    ML_PLACEMENT_SHUFFLED,   /* anywhere; equal seeds and calls give equal places */
};

typedef struct ml_placement ml_placement;

/* Address space of BYTES at BASE, which is above 0 and, as BYTES, a multiple of
 * ML_PLACEMENT_REGION; they end below 2^63.  SEED is read by ML_PLACEMENT_SHUFFLED alone.
 * 0, ML_EINVALID or ML_ENOMEM; *OUT is written on success. */
int ml_placement_new(uint64_t base, uint64_t bytes, enum ml_placement_policy policy,
                     uint64_t seed, ml_placement **out);

/* The mapper of regions.  Any call below may call both functions. */
typedef struct ml_placement_space {
    void *self; /* borrowed */
    /* BYTES, a multiple of ML_PLACEMENT_REGION, at a multiple of ALIGNMENT; 0: none left. */
    uint64_t (*map)(void *self, uint64_t bytes, uint64_t alignment);
    void (*unmap)(void *self, uint64_t start, uint64_t bytes);
} ml_placement_space;

/* The driver's rule in regions that SPACE, which is copied, maps.  0 or ML_ENOMEM. */
int ml_placement_new_mapped(const ml_placement_space *space, ml_placement **out);

/* Accepts NULL.  Mapped regions stay mapped. */
void ml_placement_free(ml_placement *placement);

/* Takes BYTES at a multiple of ALIGNMENT (a power of two; below ML_PLACEMENT_GRANULE:
 * that) and returns where they start.  0: there is no such room, BYTES is 0, or the table
 * could not grow, for which see ml_placement_error(); nothing has then changed. */
uint64_t ml_placement_take(ml_placement *placement, uint64_t bytes, uint64_t alignment);

/* Gives back the range at START; returns its bytes, 0: no taken range starts there. */
uint64_t ml_placement_give(ml_placement *placement, uint64_t start);

/* Whether ADDRESS is in a taken range; writes that range if so. */
bool ml_placement_find(const ml_placement *placement, uint64_t address, uint64_t *start,
                       uint64_t *bytes);

/* ML_ENOMEM once the table could not grow, else 0. */
int ml_placement_error(const ml_placement *placement);

#endif
