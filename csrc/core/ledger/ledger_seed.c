/* The state of a ledger before its first event.  See ledger.h. */
#include "ledger/ledger_parts.h"

static int
seed_span(ml_ledger *ledger, const ml_block_span *like)
{
    ml_blocks *blocks = &ledger->blocks;
    ledger->seed_rest = 0;
    if (like->total == 0 || like->addr > UINT64_MAX - like->total) {
        return ML_EINVALID;
    }
    uint64_t end = like->addr + like->total;
    uint32_t before = ml_blocks_span_at_most(blocks, end - 1);
    const ml_block_span *span = &blocks->spans[before];
    if (before != 0 && span->addr + span->total > like->addr) {
        return ML_EINVALID;
    }
    uint32_t index = ml_blocks_add_span(blocks, like);
    if (index == 0) {
        return ML_EFULL;
    }
    ledger->seed_rest = blocks->spans[index].head;
    ml_ledger_raise_peaks(ledger);
    ml_ledger_publish(ledger, true, false);
    return 0;
}

int
ml_ledger_seed_segment(ml_ledger *ledger, const ml_segment *seed)
{
    ml_block_span like = {.addr = seed->addr,
                          .total = seed->total,
                          .stream = seed->stream,
                          .pool = {seed->pool[0], seed->pool[1]},
                          .stack = seed->stack,
                          .small = seed->small,
                          .expandable = seed->expandable,
                          .pool_known = 1};
    return ledger->rules.has_segments ? seed_span(ledger, &like) : 0;
}

int
ml_ledger_seed_stray(ml_ledger *ledger, const ml_block *seed)
{
    ml_block_span like = {.addr = seed->addr,
                          .total = seed->size,
                          .small = seed->size <= ML_SMALL_BLOCK_BYTES,
                          .made_up = 1};
    int error = ledger->rules.has_segments ? seed_span(ledger, &like) : 0;
    return error < 0 ? error : ml_ledger_seed_block(ledger, seed);
}

/* Cuts the block of SEED out of the rest of its segment. */
static int
cut_seed(ml_ledger *ledger, const ml_block *seed, uint32_t *out)
{
    ml_blocks *blocks = &ledger->blocks;
    uint32_t index = ledger->seed_rest;
    const ml_block_node *rest = &blocks->nodes[index];
    uint64_t skip = seed->addr - rest->addr;
    if (index == 0 || seed->size == 0 || seed->addr < rest->addr ||
        skip >= rest->size || seed->size > rest->size - skip) {
        return ML_EINVALID;
    }
    if (skip != 0) {
        index = ml_blocks_split(blocks, index, skip);
        if (index == 0) {
            return ML_EFULL;
        }
    }
    uint32_t after = 0;
    if (seed->size < blocks->nodes[index].size) {
        after = ml_blocks_split(blocks, index, seed->size);
        if (after == 0) {
            ledger->seed_rest = ml_blocks_merge(blocks, index);
            return ML_EFULL;
        }
    }
    ledger->seed_rest = after;
    *out = index;
    return 0;
}

int
ml_ledger_seed_block(ml_ledger *ledger, const ml_block *seed)
{
    ml_blocks *blocks = &ledger->blocks;
    uint32_t index = 0;
    if (seed->state == ML_BLOCK_INACTIVE) {
        return 0;
    }
    if (ledger->rules.has_segments) {
        int error = cut_seed(ledger, seed, &index);
        if (error < 0) {
            return error;
        }
    }
    else {
        if (ml_blocks_find(blocks, seed->addr) != 0) {
            return ML_EINVALID;
        }
        index = ml_blocks_add(blocks, seed->addr, seed->size);
        if (index == 0) {
            return ML_EFULL;
        }
    }
    ml_block_node *node = &blocks->nodes[index];
    node->requested = seed->requested;
    node->stack = seed->stack;
    ml_blocks_use(blocks, node, seed->state);
    if (!ledger->rules.has_segments) {
        blocks->totals.reserved = blocks->totals.allocated;
    }
    ml_ledger_raise_peaks(ledger);
    ml_ledger_publish(ledger, true, false);
    return 0;
}
