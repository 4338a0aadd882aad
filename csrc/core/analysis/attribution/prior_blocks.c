/* What is known of blocks from before a recording's first event.  See prior_blocks.h. */
#include "analysis/attribution/prior_blocks.h"

#include "base/base.h"

const ml_elder *
ml_elder_at(const ml_device_trace *trace, uint64_t addr)
{
    size_t count = trace->elder_count;
    size_t at = ml_find_address(trace->elders, sizeof(ml_elder), count, addr);
    return at < count && trace->elders[at].addr == addr ? &trace->elders[at] : NULL;
}
