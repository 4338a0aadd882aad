/* The block table of one device.  See blocks.h for its structure and invariants. */
#include "ledger/blocks.h"

#include <string.h>

#include "base/base.h"
#include "ledger/spans.h"

#define DEFAULT_LIMIT ((size_t)1 << 20)
#define LEAST_LIMIT 1024u
#define FIRST_BUCKETS 64u

/* ---- Life ---- */

int
ml_blocks_init(ml_blocks *blocks, size_t limit)
{
    const size_t each = sizeof(ml_block_node) + sizeof(ml_block_span) +
                        sizeof(ml_place) + sizeof(uint32_t);
    limit = limit == 0 ? DEFAULT_LIMIT : limit;
    /* Indices are 32 bits, and one past the end must be one too. */
    limit = limit > UINT32_MAX / 2 ? UINT32_MAX / 2 : limit;
    limit = limit < LEAST_LIMIT ? LEAST_LIMIT : limit;
    memset(blocks, 0, sizeof(*blocks));
    int error =
        ml_region_init(&blocks->region, each * (limit + 1), each * (LEAST_LIMIT + 1));
    if (error < 0) {
        return error;
    }
    size_t room = blocks->region.bytes / each - 1;
    limit = room < limit ? room : limit;
    char *base = blocks->region.base;
    blocks->nodes = (ml_block_node *)(void *)base;
    base += sizeof(ml_block_node) * (limit + 1);
    blocks->spans = (ml_block_span *)(void *)base;
    base += sizeof(ml_block_span) * (limit + 1);
    blocks->order = (ml_place *)(void *)base;
    base += sizeof(ml_place) * (limit + 1);
    blocks->buckets = (uint32_t *)(void *)base;
    blocks->limit = (uint32_t)limit;
    blocks->oversize = UINT64_MAX;
    ml_blocks_clear(blocks);
    return 0;
}

void
ml_blocks_fini(ml_blocks *blocks)
{
    ml_region_fini(&blocks->region);
}

void
ml_blocks_clear(ml_blocks *blocks)
{
    blocks->node_end = 1;
    blocks->node_unused = 0;
    blocks->node_count = 0;
    blocks->span_end = 1;
    blocks->span_unused = 0;
    blocks->span_root = 0;
    blocks->bucket_count = FIRST_BUCKETS;
    blocks->bucket_mask = FIRST_BUCKETS - 1;
    memset(blocks->buckets, 0, FIRST_BUCKETS * sizeof(blocks->buckets[0]));
    memset(&blocks->totals, 0, sizeof(blocks->totals));
    blocks->counting = false;
    blocks->in_use = 0;
    blocks->segments = 0;
}

/* ---- Hash by start address ---- */

static void
add_bucket(ml_blocks *blocks)
{
    if (blocks->bucket_count > blocks->bucket_mask) {
        blocks->bucket_mask = blocks->bucket_mask * 2 + 1;
    }
    uint32_t added = blocks->bucket_count++;
    uint32_t *from = &blocks->buckets[added & (blocks->bucket_mask >> 1)];
    uint32_t *to = &blocks->buckets[added];
    *to = 0;
    while (*from != 0) {
        ml_block_node *node = &blocks->nodes[*from];
        if ((ml_blocks_hash(node->addr) & blocks->bucket_mask) == added) {
            uint32_t index = *from;
            *from = node->chain;
            node->chain = *to;
            *to = index;
        }
        else {
            from = &node->chain;
        }
    }
}

static void
hash_block(ml_blocks *blocks, uint32_t index)
{
    ml_block_node *node = &blocks->nodes[index];
    uint32_t *bucket = &blocks->buckets[ml_blocks_bucket(blocks, node->addr)];
    node->chain = *bucket;
    *bucket = index;
    if (blocks->node_count > blocks->bucket_count) {
        add_bucket(blocks);
    }
}

static void
unhash_block(ml_blocks *blocks, uint32_t index)
{
    uint64_t addr = blocks->nodes[index].addr;
    uint32_t *link = &blocks->buckets[ml_blocks_bucket(blocks, addr)];
    while (*link != index) {
        link = &blocks->nodes[*link].chain;
    }
    *link = blocks->nodes[index].chain;
}

uint32_t
ml_blocks_holding(const ml_blocks *blocks, uint64_t addr)
{
    uint32_t span = ml_blocks_span_holding(blocks, addr);
    if (span == 0) {
        return 0;
    }
    uint32_t index = blocks->spans[span].head;
    while (addr - blocks->nodes[index].addr >= blocks->nodes[index].size) {
        index = blocks->nodes[index].next;
    }
    return index;
}

/* ---- Nodes and sums ---- */

static uint32_t
add_node(ml_blocks *blocks, uint64_t addr, uint64_t size, uint8_t expandable,
         uint8_t pool)
{
    uint32_t index = blocks->node_unused;
    if (index != 0) {
        blocks->node_unused = blocks->nodes[index].next;
    }
    else if (blocks->node_end <= blocks->limit) {
        index = blocks->node_end++;
    }
    else {
        return 0;
    }
    blocks->node_count++;
    ml_block_node *node = &blocks->nodes[index];
    *node = (ml_block_node){.addr = addr,
                            .size = size,
                            .birth = ML_BEFORE_EVENTS,
                            .state = ML_BLOCK_INACTIVE,
                            .expandable = expandable,
                            .pool = pool};
    hash_block(blocks, index);
    return index;
}

uint32_t
ml_blocks_add(ml_blocks *blocks, uint64_t addr, uint64_t size)
{
    return add_node(blocks, addr, size, 0, ML_POOL_LARGE);
}

void
ml_blocks_drop(ml_blocks *blocks, uint32_t index)
{
    unhash_block(blocks, index);
    blocks->nodes[index].state = ML_BLOCK_UNUSED;
    blocks->nodes[index].next = blocks->node_unused;
    blocks->node_unused = index;
    blocks->node_count--;
}

ml_block
ml_blocks_show(const ml_block_node *node)
{
    ml_block block = {.addr = node->addr,
                      .size = node->size,
                      .requested = node->requested,
                      .stack = node->stack,
                      .state = node->state};
    return block;
}

/* ---- Segments ---- */

static void
count_span(ml_blocks *blocks, const ml_block_span *span)
{
    blocks->totals.reserved += span->total;
    if (blocks->counting) {
        ml_blocks_count_span(blocks, span);
    }
}

static void
uncount_span(ml_blocks *blocks, const ml_block_span *span)
{
    blocks->totals.reserved -= span->total;
    if (!blocks->counting) {
        return;
    }
    uint64_t *counts = blocks->counts.of[span->small ? ML_POOL_SMALL : ML_POOL_LARGE];
    counts[ML_POOL_STAT_reserved_bytes] -= span->total;
    counts[ML_POOL_STAT_segment] -= !span->expandable;
    counts[ML_POOL_STAT_oversize_segments] -= ml_blocks_is_oversize(blocks, span);
}

uint32_t
ml_blocks_add_span(ml_blocks *blocks, const ml_block_span *like)
{
    uint32_t head = add_node(blocks, like->addr, like->total, like->expandable,
                             like->small ? ML_POOL_SMALL : ML_POOL_LARGE);
    if (head == 0) {
        return 0;
    }
    uint32_t index = ml_spans_add(blocks);
    ml_block_span *span = &blocks->spans[index];
    *span = *like;
    span->head = head;
    span->tail = head;
    span->used = 1;
    ml_spans_link(blocks, index);
    blocks->nodes[head].segment = index;
    blocks->nodes[head].made_up = like->made_up;
    count_span(blocks, span);
    return index;
}

uint64_t
ml_blocks_drop_span(ml_blocks *blocks, uint32_t index)
{
    uint64_t in_use = 0;
    uint32_t next;
    for (uint32_t i = blocks->spans[index].head; i != 0; i = next) {
        ml_block_node *node = &blocks->nodes[i];
        next = node->next;
        if (node->state != ML_BLOCK_INACTIVE) {
            ml_blocks_uncount(blocks, node);
            in_use++;
        }
        ml_blocks_uncount_rest(blocks, node);
        ml_blocks_drop(blocks, i);
    }
    uncount_span(blocks, &blocks->spans[index]);
    ml_spans_drop(blocks, index);
    return in_use;
}

/* ---- Splitting and joining ---- */

uint32_t
ml_blocks_split(ml_blocks *blocks, uint32_t index, uint64_t bytes)
{
    ml_block_node *left = &blocks->nodes[index];
    uint32_t added = add_node(blocks, left->addr + bytes, left->size - bytes,
                              left->expandable, left->pool);
    if (added == 0) {
        return 0;
    }
    ml_block_node *right = &blocks->nodes[added];
    ml_blocks_uncount_rest(blocks, left);
    if (left->prev == 0) {
        blocks->spans[left->segment].split = 1;
    }
    left->size = bytes;
    right->prev = index;
    right->next = left->next;
    left->next = added;
    if (right->next != 0) {
        blocks->nodes[right->next].prev = added;
    }
    else {
        right->segment = left->segment;
        blocks->spans[left->segment].tail = added;
    }
    ml_blocks_count_rest(blocks, left);
    ml_blocks_count_rest(blocks, right);
    return added;
}

/* Joins two free neighbours into the left one's node. */
static void
join_blocks(ml_blocks *blocks, uint32_t left_index, uint32_t right_index)
{
    ml_block_node *left = &blocks->nodes[left_index];
    ml_block_node *right = &blocks->nodes[right_index];
    ml_blocks_uncount_rest(blocks, left);
    ml_blocks_uncount_rest(blocks, right);
    left->size += right->size;
    left->next = right->next;
    if (right->next != 0) {
        blocks->nodes[right->next].prev = left_index;
    }
    else {
        left->segment = right->segment;
        blocks->spans[right->segment].tail = left_index;
    }
    ml_blocks_count_rest(blocks, left);
    ml_blocks_drop(blocks, right_index);
}

uint32_t
ml_blocks_merge(ml_blocks *blocks, uint32_t index)
{
    uint32_t prev = blocks->nodes[index].prev;
    if (prev != 0 && blocks->nodes[prev].state == ML_BLOCK_INACTIVE) {
        join_blocks(blocks, prev, index);
        index = prev;
    }
    uint32_t next = blocks->nodes[index].next;
    if (next != 0 && blocks->nodes[next].state == ML_BLOCK_INACTIVE) {
        join_blocks(blocks, index, next);
    }
    return index;
}

uint32_t
ml_blocks_release(ml_blocks *blocks, uint32_t index)
{
    ml_block_node *node = &blocks->nodes[index];
    ml_blocks_uncount(blocks, node);
    node->state = ML_BLOCK_INACTIVE;
    ml_blocks_count_rest(blocks, node);
    if (node->prev == 0 && node->next == 0 && node->made_up) {
        ml_blocks_drop_span(blocks, node->segment);
        return 0;
    }
    return ml_blocks_merge(blocks, index);
}

void
ml_blocks_set_small(ml_blocks *blocks, uint32_t index, bool small)
{
    ml_block_span *span = &blocks->spans[index];
    span->small = small;
    span->small_unknown = 0;
    blocks->nodes[span->head].pool = small ? ML_POOL_SMALL : ML_POOL_LARGE;
}

void
ml_blocks_join_spans(ml_blocks *blocks, uint32_t left_index, uint32_t right_index)
{
    ml_block_span *left = &blocks->spans[left_index];
    const ml_block_span *right = &blocks->spans[right_index];
    if (!left->pool_known && right->pool_known) {
        memcpy(left->pool, right->pool, sizeof(left->pool));
        left->pool_known = 1;
    }
    if (left->small_unknown && !right->small_unknown) {
        ml_blocks_set_small(blocks, left_index, right->small);
    }
    else if (right->small_unknown && !left->small_unknown) {
        ml_blocks_set_small(blocks, right_index, left->small);
    }
    uint32_t before = left->tail;
    uint32_t after = right->head;
    blocks->nodes[before].next = after;
    blocks->nodes[after].prev = before;
    blocks->nodes[right->tail].segment = left_index;
    left->tail = right->tail;
    left->total += right->total;
    ml_spans_drop(blocks, right_index);
    if (blocks->nodes[before].state == ML_BLOCK_INACTIVE &&
        blocks->nodes[after].state == ML_BLOCK_INACTIVE) {
        join_blocks(blocks, before, after);
    }
}

/* ---- Taking away whatever is there ---- */

uint32_t
ml_blocks_make_room(ml_blocks *blocks, uint64_t addr, uint64_t bytes,
                    uint64_t (*tight)(const void *context, uint64_t requested),
                    const void *context)
{
    uint32_t index = ml_blocks_holding(blocks, addr);
    while (index != 0 && blocks->nodes[index].state != ML_BLOCK_INACTIVE) {
        ml_block_node *node = &blocks->nodes[index];
        uint64_t kept = addr - node->addr;
        if (kept == 0 || kept < tight(context, node->requested)) {
            ml_blocks_release(blocks, index);
        }
        else {
            ml_blocks_uncount(blocks, node);
            uint32_t right = ml_blocks_split(blocks, index, kept);
            ml_blocks_count(blocks, node);
            if (right == 0) {
                return 0;
            }
            ml_blocks_merge(blocks, right);
        }
        index = ml_blocks_holding(blocks, addr);
    }
    if (index != 0 && blocks->nodes[index].addr < addr) {
        index = ml_blocks_split(blocks, index, addr - blocks->nodes[index].addr);
    }
    if (index == 0) {
        return 0;
    }
    const ml_block_node *node = &blocks->nodes[index];
    while (node->size < bytes && node->next != 0) {
        /* There is a free neighbour only if the cut above could not be merged yet. */
        if (blocks->nodes[node->next].state == ML_BLOCK_INACTIVE) {
            join_blocks(blocks, index, node->next);
        }
        else {
            ml_blocks_release(blocks, node->next);
        }
    }
    return index;
}

/* Frees every block of SPAN that reaches into [LOW, HIGH).  Returns their number. */
static uint64_t
release_range(ml_blocks *blocks, uint32_t span, uint64_t low, uint64_t high)
{
    uint64_t count = 0;
    uint32_t index = blocks->spans[span].head;
    while (index != 0 && blocks->nodes[index].addr < high) {
        const ml_block_node *node = &blocks->nodes[index];
        if (node->addr + node->size > low && node->state != ML_BLOCK_INACTIVE) {
            index = ml_blocks_release(blocks, index);
            count++;
        }
        index = blocks->nodes[index].next;
    }
    return count;
}

/* Takes free block INDEX out of segment SPAN, which may split in two or vanish. */
static void
remove_block(ml_blocks *blocks, uint32_t span_index, uint32_t index)
{
    ml_block_span *span = &blocks->spans[span_index];
    const ml_block_node gone = blocks->nodes[index];
    uint64_t end = span->addr + span->total;
    uint64_t gone_end = gone.addr + gone.size;
    ml_blocks_drop(blocks, index);
    blocks->totals.reserved -= gone.size;
    if (blocks->counting) {
        blocks->counts.of[gone.pool][ML_POOL_STAT_reserved_bytes] -= gone.size;
    }
    if (gone.prev == 0 && gone.next == 0) {
        ml_spans_drop(blocks, span_index);
        return;
    }
    if (gone.next != 0) {
        uint32_t rest_index = gone.prev == 0 ? span_index : ml_spans_add(blocks);
        ml_block_span *rest = &blocks->spans[rest_index];
        *rest = *span;
        rest->addr = gone_end;
        rest->total = end - gone_end;
        rest->head = gone.next;
        if (rest_index != span_index) {
            ml_spans_link(blocks, rest_index);
        }
        blocks->nodes[gone.next].prev = 0;
        blocks->nodes[gone.next].segment = rest_index;
        blocks->nodes[rest->tail].segment = rest_index;
    }
    if (gone.prev != 0) {
        span->total = gone.addr - span->addr;
        span->tail = gone.prev;
        blocks->nodes[gone.prev].next = 0;
        blocks->nodes[gone.prev].segment = span_index;
    }
}

static void
unmap(ml_blocks *blocks, uint32_t span, uint64_t low, uint64_t high,
      ml_cleared *cleared)
{
    cleared->in_use += release_range(blocks, span, low, high);
    /* All of it is free now, and so one block. */
    uint32_t index = ml_blocks_holding(blocks, low);
    const ml_block_node *node = &blocks->nodes[index];
    if (high < node->addr + node->size &&
        ml_blocks_split(blocks, index, high - node->addr) == 0) {
        cleared->full = true;
    }
    if (node->addr < low) {
        uint32_t right = ml_blocks_split(blocks, index, low - node->addr);
        cleared->full = cleared->full || right == 0;
        index = right == 0 ? index : right;
    }
    remove_block(blocks, span, index);
}

ml_cleared
ml_blocks_clear_range(ml_blocks *blocks, uint64_t low, uint64_t high)
{
    ml_cleared cleared = {0, 0, false};
    uint32_t index = ml_blocks_span_holding(blocks, low);
    if (index == 0) {
        index = ml_blocks_span_above(blocks, low);
    }
    while (index != 0 && blocks->spans[index].addr < high) {
        const ml_block_span *span = &blocks->spans[index];
        uint64_t from = span->addr > low ? span->addr : low;
        uint64_t to = span->addr + span->total;
        to = to < high ? to : high;
        cleared.bytes += to - from;
        if (span->expandable) {
            unmap(blocks, index, from, to, &cleared);
        }
        else {
            cleared.in_use += ml_blocks_drop_span(blocks, index);
        }
        index = ml_blocks_span_above(blocks, from);
    }
    return cleared;
}
