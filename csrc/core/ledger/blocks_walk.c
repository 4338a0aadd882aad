/* Walks over the whole block table: the visit in address order, and the check of every
 * invariant in blocks.h. */
#include "ledger/blocks.h"

#include <string.h>

/* ---- Sorting: a heap sort, in place, and no worse on sorted input ---- */

static void
sift_down(ml_place *items, uint32_t root, uint32_t count)
{
    ml_place moved = items[root];
    for (;;) {
        uint32_t child = 2 * root + 1;
        if (child >= count) {
            break;
        }
        if (child + 1 < count && items[child].addr < items[child + 1].addr) {
            child++;
        }
        if (items[child].addr <= moved.addr) {
            break;
        }
        items[root] = items[child];
        root = child;
    }
    items[root] = moved;
}

static void
sort_places(ml_place *items, uint32_t count)
{
    for (uint32_t i = count / 2; i-- > 0;) {
        sift_down(items, i, count);
    }
    for (uint32_t i = count; i-- > 1;) {
        ml_place last = items[i];
        items[i] = items[0];
        items[0] = last;
        sift_down(items, 0, i);
    }
}

static uint32_t
order_spans(const ml_blocks *blocks)
{
    uint32_t count = 0;
    for (uint32_t i = 1; i < blocks->span_end; i++) {
        if (blocks->spans[i].used) {
            blocks->order[count++] = (ml_place){blocks->spans[i].addr, i};
        }
    }
    sort_places(blocks->order, count);
    return count;
}

static uint32_t
order_nodes(const ml_blocks *blocks)
{
    uint32_t count = 0;
    for (uint32_t i = 1; i < blocks->node_end; i++) {
        if (blocks->nodes[i].state != ML_BLOCK_UNUSED) {
            blocks->order[count++] = (ml_place){blocks->nodes[i].addr, i};
        }
    }
    sort_places(blocks->order, count);
    return count;
}

/* ---- Visiting ---- */

static void
add_to_segment(ml_segment *segment, const ml_block_node *node)
{
    if (node->state != ML_BLOCK_INACTIVE) {
        segment->allocated += node->state == ML_BLOCK_ALLOCATED ? node->size : 0;
        segment->active += node->size;
        segment->requested += node->requested;
    }
    segment->block_count++;
}

static int
show_segment(const ml_ledger_visitor *visitor, const ml_segment *segment)
{
    return visitor->segment == NULL ? 0 : visitor->segment(visitor->context, segment);
}

static int
show_block(const ml_ledger_visitor *visitor, const ml_block *block, uint64_t birth)
{
    return visitor->block == NULL ? 0 : visitor->block(visitor->context, block, birth);
}

static int
visit_bare(const ml_blocks *blocks, const ml_ledger_visitor *visitor)
{
    uint32_t count = order_nodes(blocks);
    for (uint32_t i = 0; i < count; i++) {
        const ml_block_node *node = &blocks->nodes[blocks->order[i].index];
        ml_block block = ml_blocks_show(node);
        ml_segment segment = {.addr = node->addr,
                              .total = node->size,
                              .stack = node->stack,
                              .first_block = i};
        add_to_segment(&segment, node);
        int result = show_segment(visitor, &segment);
        if (result == 0) {
            result = show_block(visitor, &block, node->birth);
        }
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

int
ml_blocks_visit(const ml_blocks *blocks, bool has_segments,
                const ml_ledger_visitor *visitor)
{
    if (!has_segments) {
        return visit_bare(blocks, visitor);
    }
    uint32_t count = order_spans(blocks);
    size_t first_block = 0;
    for (uint32_t i = 0; i < count; i++) {
        const ml_block_span *span = &blocks->spans[blocks->order[i].index];
        ml_segment segment = {.addr = span->addr,
                              .total = span->total,
                              .stream = span->stream,
                              .pool = {span->pool[0], span->pool[1]},
                              .stack = span->stack,
                              .small = span->small,
                              .expandable = span->expandable,
                              .split = span->split,
                              .first_block = first_block};
        for (uint32_t j = span->head; j != 0; j = blocks->nodes[j].next) {
            add_to_segment(&segment, &blocks->nodes[j]);
        }
        first_block += segment.block_count;
        int result = show_segment(visitor, &segment);
        for (uint32_t j = span->head; j != 0 && result == 0;
             j = blocks->nodes[j].next) {
            ml_block block = ml_blocks_show(&blocks->nodes[j]);
            result = show_block(visitor, &block, blocks->nodes[j].birth);
        }
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

/* ---- Counting ---- */

void
ml_blocks_start_counting(ml_blocks *blocks)
{
    memset(&blocks->counts, 0, sizeof(blocks->counts));
    blocks->counting = true;
    for (uint32_t i = 1; i < blocks->span_end; i++) {
        const ml_block_span *span = &blocks->spans[i];
        if (!span->used) {
            continue;
        }
        ml_blocks_count_span(blocks, span);
        for (uint32_t j = span->head; j != 0; j = blocks->nodes[j].next) {
            const ml_block_node *node = &blocks->nodes[j];
            if (node->state == ML_BLOCK_INACTIVE) {
                ml_blocks_count_rest(blocks, node);
            }
            else {
                ml_blocks_count_in_pool(blocks, node);
            }
        }
    }
}

/* ---- Checking ---- */

typedef struct block_sums {
    ml_totals totals;
    ml_pool_stats counts;
    uint64_t in_use;
    uint64_t nodes;
} block_sums;

static const char *
check_node(const ml_blocks *blocks, uint32_t index, block_sums *total)
{
    const ml_block_node *node = &blocks->nodes[index];
    if (ml_blocks_find(blocks, node->addr) != index) {
        return "a block is not found by its address";
    }
    uint64_t *counts = total->counts.of[node->pool];
    total->nodes++;
    switch (node->state) {
    case ML_BLOCK_INACTIVE:
        if (ml_blocks_is_rest(node)) {
            counts[ML_POOL_STAT_inactive_split]++;
            counts[ML_POOL_STAT_inactive_split_bytes] += node->size;
        }
        return NULL;
    case ML_BLOCK_ALLOCATED:
        total->totals.allocated += node->size;
        counts[ML_POOL_STAT_allocation]++;
        counts[ML_POOL_STAT_allocated_bytes] += node->size;
        counts[ML_POOL_STAT_oversize_allocations] += node->size >= blocks->oversize;
        break;
    case ML_BLOCK_PENDING_FREE:
        break;
    default:
        return "a block has no state";
    }
    total->totals.active += node->size;
    total->totals.requested += node->requested;
    total->in_use++;
    counts[ML_POOL_STAT_active]++;
    counts[ML_POOL_STAT_active_bytes] += node->size;
    counts[ML_POOL_STAT_requested_bytes] += node->requested;
    return NULL;
}

static const char *
check_span(const ml_blocks *blocks, uint32_t index, block_sums *total)
{
    const ml_block_span *span = &blocks->spans[index];
    const ml_block_node *head = &blocks->nodes[span->head];
    const ml_block_node *tail = &blocks->nodes[span->tail];
    if (head->prev != 0 || tail->next != 0 || head->segment != index ||
        tail->segment != index) {
        return "the ends of a segment are not its own";
    }
    if (ml_blocks_span_at_most(blocks, span->addr) != index) {
        return "a segment is not found by its address";
    }
    uint64_t addr = span->addr;
    uint32_t prev = 0;
    for (uint32_t i = span->head; i != 0; i = blocks->nodes[i].next) {
        const ml_block_node *node = &blocks->nodes[i];
        if (node->prev != prev || node->addr != addr || node->size == 0) {
            return "the blocks of a segment do not follow on one another";
        }
        if (node->expandable != span->expandable ||
            node->pool != (span->small ? ML_POOL_SMALL : ML_POOL_LARGE)) {
            return "a block and its segment differ in kind";
        }
        if (prev != 0 && node->state == ML_BLOCK_INACTIVE &&
            blocks->nodes[prev].state == ML_BLOCK_INACTIVE) {
            return "two free neighbours are not merged";
        }
        const char *wrong = check_node(blocks, i, total);
        if (wrong != NULL) {
            return wrong;
        }
        addr += node->size;
        prev = i;
    }
    if (addr != span->addr + span->total || prev != span->tail) {
        return "the blocks of a segment do not fill it";
    }
    total->totals.reserved += span->total;
    uint64_t *counts = total->counts.of[head->pool];
    counts[ML_POOL_STAT_reserved_bytes] += span->total;
    counts[ML_POOL_STAT_segment] += !span->expandable;
    counts[ML_POOL_STAT_oversize_segments] += ml_blocks_is_oversize(blocks, span);
    return NULL;
}

static const char *
check_hash(const ml_blocks *blocks)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < blocks->bucket_count; i++) {
        for (uint32_t j = blocks->buckets[i]; j != 0; j = blocks->nodes[j].chain) {
            if (ml_blocks_bucket(blocks, blocks->nodes[j].addr) != i) {
                return "a block hangs in a wrong bucket";
            }
            if (++count > blocks->node_count) {
                return "the hash holds more blocks than there are";
            }
        }
    }
    return count == blocks->node_count ? NULL : "the hash lacks blocks";
}

static const char *
check_unused(const ml_blocks *blocks)
{
    uint64_t count = 0;
    for (uint32_t i = blocks->node_unused; i != 0; i = blocks->nodes[i].next) {
        if (blocks->nodes[i].state != ML_BLOCK_UNUSED || ++count > blocks->limit) {
            return "the list of unused nodes is broken";
        }
    }
    if (count + blocks->node_count + 1 != blocks->node_end) {
        return "nodes are lost";
    }
    count = 0;
    for (uint32_t i = blocks->span_unused; i != 0; i = blocks->spans[i].head) {
        if (blocks->spans[i].used || ++count > blocks->limit) {
            return "the list of unused segments is broken";
        }
    }
    return count + blocks->segments + 1 == blocks->span_end ? NULL
                                                            : "segments are lost";
}

const char *
ml_blocks_validate(const ml_blocks *blocks, bool has_segments)
{
    block_sums total;
    memset(&total, 0, sizeof(total));
    uint64_t end = 0;
    uint32_t count = has_segments ? order_spans(blocks) : order_nodes(blocks);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = blocks->order[i].index;
        const char *wrong = has_segments ? check_span(blocks, index, &total)
                                         : check_node(blocks, index, &total);
        if (wrong != NULL) {
            return wrong;
        }
        if (has_segments && i > 0 && blocks->spans[index].addr < end) {
            return "two segments overlap";
        }
        end = blocks->spans[has_segments ? index : 0].addr +
              blocks->spans[has_segments ? index : 0].total;
    }
    if (!has_segments) {
        total.totals.reserved = total.totals.allocated;
    }
    if (total.nodes != blocks->node_count || total.in_use != blocks->in_use) {
        return "blocks are counted wrong";
    }
#define XX(name) \
    if (total.totals.name != blocks->totals.name) { \
        return #name " bytes are counted wrong"; \
    }
    ML_TOTALS(XX)
#undef XX
    if (has_segments && blocks->counting &&
        memcmp(&total.counts, &blocks->counts, sizeof(total.counts)) != 0) {
        return "torch's counts of a pool are wrong";
    }
    const char *wrong = check_hash(blocks);
    return wrong != NULL ? wrong : check_unused(blocks);
}
