/* Compares memory.  See compare.h.
 *
 * Both sides come by address: if one lags, the other lacks its item. */
#include "ledger/replay/compare.h"

int
ml_compare_segment(void *comparison, const ml_segment *have)
{
    ml_comparison *c = comparison;
    const ml_device_trace *trace = c->trace;
    while (c->segment < trace->segment_count &&
           trace->segments[c->segment].addr < have->addr) {
        c->segment++;
        c->mismatched_segments++;
    }
    if (c->segment < trace->segment_count &&
        trace->segments[c->segment].addr == have->addr) {
        c->mismatched_segments += trace->segments[c->segment].total != have->total;
        c->segment++;
    }
    else {
        c->mismatched_segments++;
    }
    return 0;
}

int
ml_compare_block(void *comparison, const ml_block *have, uint64_t birth)
{
    ml_comparison *c = comparison;
    const ml_device_trace *trace = c->trace;
    (void)birth;
    while (c->block < trace->block_count && trace->blocks[c->block].addr < have->addr) {
        c->block++;
        c->mismatched_blocks++;
    }
    if (c->block < trace->block_count && trace->blocks[c->block].addr == have->addr) {
        const ml_block *want = &trace->blocks[c->block];
        /* The request of an inactive block is stale. */
        bool same =
            want->size == have->size && want->state == have->state &&
            (want->state == ML_BLOCK_INACTIVE || want->requested == have->requested);
        c->mismatched_blocks += !same;
        c->block++;
    }
    else {
        c->mismatched_blocks++;
    }
    return 0;
}

void
ml_compare_end(ml_comparison *comparison)
{
    const ml_device_trace *trace = comparison->trace;
    comparison->mismatched_segments += trace->segment_count - comparison->segment;
    comparison->mismatched_blocks += trace->block_count - comparison->block;
}
