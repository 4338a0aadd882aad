/* Facts about blocks from before a recording's first event, whose own events were
 * overwritten.
 *
 * A table by address; follower_condense.c fills it. */
#ifndef ML_PRIOR_BLOCKS_H
#define ML_PRIOR_BLOCKS_H

#include "analysis/attribution/category.h"

typedef struct ml_prior_block {
    uint64_t addr; /* first, for ml_find_address */
    /* As when the events were overwritten; the stack is the block's. */
    ml_cause cause;
    ml_verdict verdict;
} ml_prior_block;

/* The facts about the block at ADDR from before the first event; NULL: nothing is
 * known. */
const ml_prior_block *ml_prior_block_at(const ml_device_trace *trace, uint64_t addr);

#endif
