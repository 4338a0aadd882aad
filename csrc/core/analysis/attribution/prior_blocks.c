/* Finds facts about blocks from before a recording's first event.  See
 * prior_blocks.h. */
#include "analysis/attribution/prior_blocks.h"

#include "base/base.h"

const ml_prior_block *
ml_prior_block_at(const ml_device_trace *trace, uint64_t addr)
{
    size_t count = trace->prior_block_count;
    size_t at =
        ml_find_address(trace->prior_blocks, sizeof(ml_prior_block), count, addr);
    return at < count && trace->prior_blocks[at].addr == addr ? &trace->prior_blocks[at]
                                                              : NULL;
}
