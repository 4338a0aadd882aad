/* What is known of blocks from before a recording's first event, whose own events made
 * room for newer ones.
 *
 * Owns the table of them, by address; who fills it is follower_condense.c's
 * business. */
#ifndef ML_PRIOR_BLOCKS_H
#define ML_PRIOR_BLOCKS_H

#include "analysis/attribution/category.h"

typedef struct ml_prior_block {
    uint64_t addr; /* first, for ml_find_address */
    /* As they were when the events went; the stack is that of the block. */
    ml_cause cause;
    ml_verdict verdict;
} ml_prior_block;

/* Of the block from before the first event at ADDR; NULL: nothing is known. */
const ml_prior_block *ml_prior_block_at(const ml_device_trace *trace, uint64_t addr);

#endif
