/* Fetches what the next events will read of a ledger.  See ledger.h. */
#include "ledger/ledger_parts.h"

/* Events ahead: the bucket of a block, and then the block. */
#define BUCKET_AHEAD 24
#define BLOCK_AHEAD 12

void
ml_ledger_expect(const ml_ledger *ledger, const ml_event *events, size_t count)
{
    if (count <= BUCKET_AHEAD) {
        return;
    }
    const ml_blocks *blocks = &ledger->blocks;
    uint32_t later = ml_blocks_bucket(blocks, events[BUCKET_AHEAD].addr);
    uint32_t soon = ml_blocks_bucket(blocks, events[BLOCK_AHEAD].addr);
    __builtin_prefetch(&blocks->buckets[later]);
    __builtin_prefetch(&blocks->nodes[blocks->buckets[soon]]);
}

void
ml_ledger_expect_next(const ml_ledger *ledger, const ml_event *event)
{
    const ml_blocks *blocks = &ledger->blocks;
    if (event->action > ML_ACTION_FREE_REQUESTED) {
        return;
    }
    uint32_t index = blocks->buckets[ml_blocks_bucket(blocks, event->addr)];
    /* Of the block behind it: the rest of a split begins there, or what a free joins. */
    uint64_t end = event->addr + ((event->size + ML_MINIMUM_BLOCK_BYTES - 1) &
                                  ~(uint64_t)(ML_MINIMUM_BLOCK_BYTES - 1));
    __builtin_prefetch(&blocks->buckets[ml_blocks_bucket(blocks, end)], 1);
    __builtin_prefetch(&blocks->nodes[blocks->node_unused], 1);
    __builtin_prefetch(&blocks->nodes[index], 1);
}
