/* The sizes of blocks and segments that torch's allocator uses for requests. */
#ifndef ML_ROUNDING_H
#define ML_ROUNDING_H

#include <stdbool.h>
#include <stdint.h>

#include "memlab.h"

#define ML_MINIMUM_BLOCK_BYTES 512u

/* The bytes of a block for REQUESTED bytes, before any slack: docs/ALLOCATOR.md. */
uint64_t ml_allocator_round(const ml_allocator_rules *rules, uint64_t requested);
/* Whether RULES round up to whole minimal blocks, no divisions set. */
bool ml_allocator_rounds_plainly(const ml_allocator_rules *rules);

/* The largest block of the pool for small blocks.  Only that pool's segments have twice
 * this size. */
#define ML_SMALL_BLOCK_BYTES (UINT64_C(1) << 20)
#define ML_SMALL_SEGMENT_BYTES (UINT64_C(2) << 20)
/* Segments of the pool for large blocks, unless large_segment_size_mb says otherwise. */
#define ML_LARGE_SEGMENT_BYTES (UINT64_C(20) << 20)

/* Likewise, the bytes of a new segment for a rounded block of BYTES.  LARGE: bytes of
 * the large pool's segments.  UINT64_MAX on overflow. */
uint64_t ml_segment_bytes(uint64_t bytes, uint64_t large);

#endif
