/* Keeps the segments of a block table: their slots, and the treap by address.  See
 * spans.h. */
#include "ledger/spans.h"

uint32_t
ml_blocks_span_at_most(const ml_blocks *blocks, uint64_t addr)
{
    uint32_t found = 0;
    uint32_t index = blocks->span_root;
    while (index != 0) {
        const ml_block_span *span = &blocks->spans[index];
        found = span->addr <= addr ? index : found;
        index = span->addr <= addr ? span->right : span->left;
    }
    return found;
}

uint32_t
ml_blocks_span_above(const ml_blocks *blocks, uint64_t addr)
{
    uint32_t found = 0;
    uint32_t index = blocks->span_root;
    while (index != 0) {
        const ml_block_span *span = &blocks->spans[index];
        found = span->addr > addr ? index : found;
        index = span->addr > addr ? span->left : span->right;
    }
    return found;
}

uint32_t
ml_blocks_span_holding(const ml_blocks *blocks, uint64_t addr)
{
    uint32_t index = ml_blocks_span_at_most(blocks, addr);
    const ml_block_span *span = &blocks->spans[index];
    return index != 0 && addr - span->addr < span->total ? index : 0;
}

uint32_t
ml_spans_add(ml_blocks *blocks)
{
    uint32_t index = blocks->span_unused;
    if (index != 0) {
        blocks->span_unused = blocks->spans[index].head;
    }
    else {
        index = blocks->span_end++;
    }
    blocks->segments++;
    return index;
}

/* The treap keeps parents above children in this order, which is as good as a random
 * one. */
static uint32_t
rank_of(uint32_t index)
{
    return index * UINT32_C(0x9e3779b1);
}

void
ml_spans_link(ml_blocks *blocks, uint32_t index)
{
    ml_block_span *spans = blocks->spans;
    uint64_t addr = spans[index].addr;
    uint32_t *link = &blocks->span_root;
    while (*link != 0 && rank_of(*link) > rank_of(index)) {
        link = spans[*link].addr < addr ? &spans[*link].right : &spans[*link].left;
    }
    uint32_t rest = *link;
    *link = index;
    uint32_t *low = &spans[index].left;
    uint32_t *high = &spans[index].right;
    while (rest != 0) {
        uint32_t **side = spans[rest].addr < addr ? &low : &high;
        **side = rest;
        *side = side == &low ? &spans[rest].right : &spans[rest].left;
        rest = **side;
    }
    *low = 0;
    *high = 0;
}

static void
unlink_span(ml_blocks *blocks, uint32_t index)
{
    ml_block_span *spans = blocks->spans;
    uint64_t addr = spans[index].addr;
    uint32_t *link = &blocks->span_root;
    while (*link != index) {
        link = spans[*link].addr < addr ? &spans[*link].right : &spans[*link].left;
    }
    uint32_t left = spans[index].left;
    uint32_t right = spans[index].right;
    while (left != 0 && right != 0) {
        if (rank_of(left) > rank_of(right)) {
            *link = left;
            link = &spans[left].right;
            left = *link;
        }
        else {
            *link = right;
            link = &spans[right].left;
            right = *link;
        }
    }
    *link = left != 0 ? left : right;
}

void
ml_spans_drop(ml_blocks *blocks, uint32_t index)
{
    unlink_span(blocks, index);
    blocks->spans[index].used = 0;
    blocks->spans[index].head = blocks->span_unused;
    blocks->span_unused = index;
    blocks->segments--;
}
