/* Compares segments and blocks with those that a recording has at its end.
 *
 * Owns what counts as a difference. */
#ifndef ML_COMPARE_H
#define ML_COMPARE_H

#include "ledger/blocks.h"
#include "recording/recording.h"

typedef struct ml_comparison {
    const ml_device_trace *trace; /* borrowed */
    size_t segment;
    size_t block;
    uint64_t mismatched_segments; /* on one side only, or different */
    uint64_t mismatched_blocks;
} ml_comparison;

/* For a ml_ledger_visitor whose context is a comparison with only trace set. */
int ml_compare_segment(void *comparison, const ml_segment *have);
int ml_compare_block(void *comparison, const ml_block *have, uint64_t birth);
/* After the last block: counts the blocks that were not visited. */
void ml_compare_end(ml_comparison *comparison);

#endif
