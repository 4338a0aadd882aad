/* The allocator model: requests, and how blocks are found, split and merged for
 * them. */
#include "lab/simulator/allocator.h"

#include "lab/simulator/allocator_parts.h"

/* ---- A block for a request ---- */

static bool
collects_garbage(const ml_allocator *a)
{
    return a->settings.limited && a->settings.gc_threshold > 0;
}

/* The largest size that an expandable block could grow to. */
static uint64_t
expanded_size(const ml_allocator *a, uint32_t index)
{
    const ml_node *node = &a->nodes[index];
    const ml_node *next = &a->nodes[node->next];
    return node->size + (node->next != 0 && !next->mapped ? next->size : 0);
}

/* The first free block from INDEX, at *PLACE, on that the request may use, by the rules for
 * expandable segments; 0: none. */
static uint32_t
pass_expandable(const ml_allocator *a, const ml_set *set, uint32_t index,
                const ml_request *r, ml_set_place *place)
{
    const ml_node *nodes = a->nodes;
    if (r->expandable) {
        ml_set_place after = *place;
        uint32_t next = ml_set_step(set, &after);
        while (nodes[index].space != 0 && next != 0 &&
               nodes[next].stream == r->stream &&
               expanded_size(a, next) < expanded_size(a, index)) {
            index = next;
            *place = after;
            next = ml_set_step(set, &after);
        }
        return index;
    }
    do {
        index = ml_set_step(set, place);
    } while (index != 0 && nodes[index].space != 0 && nodes[index].stream == r->stream);
    return index != 0 && nodes[index].stream == r->stream ? index : 0;
}

/* Whether BYTES are below max_split_size.  Notes for which values of that setting the
 * answer holds. */
static bool
is_below_split(ml_allocator *a, uint64_t bytes)
{
    ml_allocator_slack *slack = &a->figures.slack;
    bool below = bytes < a->settings.max_split_bytes;
    if (below && slack->split_low <= bytes) {
        slack->split_low = bytes + 1;
    }
    else if (!below && slack->split_high > bytes) {
        slack->split_high = bytes;
    }
    return below;
}

/* Whether a block with MORE bytes than requested is too large to give out whole. */
static bool
is_too_large(ml_allocator *a, uint64_t more)
{
    ml_allocator_slack *slack = &a->figures.slack;
    bool large = more >= a->settings.max_non_split_rounding;
    if (large && slack->rounding_high > more) {
        slack->rounding_high = more;
    }
    else if (!large && slack->rounding_low <= more) {
        slack->rounding_low = more + 1;
    }
    return large;
}

/* torch's get_free_block: the best fit, taken out of its set. */
static bool
find_free_block(ml_allocator *a, ml_request *r)
{
    ml_block_pool *pool = &a->pools[r->pool].of[r->small];
    if (collects_garbage(a)) {
        pool->lookups++;
    }
    ml_set_place place;
    uint32_t index = ml_set_find(&pool->blocks, r->stream, r->bytes, &place);
    if (index == 0 || a->nodes[index].stream != r->stream) {
        return false;
    }
    if (a->nodes[index].space != 0) {
        index = pass_expandable(a, &pool->blocks, index, r, &place);
        if (index == 0) {
            return false;
        }
    }
    /* torch checks only this block; it does not look for a larger one. */
    uint64_t size = a->nodes[index].size;
    if (is_below_split(a, r->bytes) ? !is_below_split(a, size)
                                    : is_too_large(a, size - r->bytes)) {
        return false;
    }
    ml_set_take(&pool->blocks, place);
    r->block = index;
    return true;
}

static bool
should_split(ml_allocator *a, const ml_request *r)
{
    const ml_node *node = &a->nodes[r->block];
    if ((a->pools[node->pool].flags & ML_POOL_NO_SPLIT) != 0) {
        return false;
    }
    uint64_t rest = node->size - r->bytes;
    if (node->small || r->expandable) {
        return rest >= ML_MINIMUM_BLOCK;
    }
    return rest > ML_SMALL_BLOCK_BYTES && is_below_split(a, r->bytes);
}

/* throw_on_cudamalloc_oom: the driver was not asked, and nothing else is tried. */
#define REJECTED 2

/* torch's alloc_block: memory from the driver.  1: done; 0: no memory left; REJECTED;
 * or ML_E*.  As in torch, the limit is checked before the rejection. */
static int
new_segment(ml_allocator *a, ml_request *r, bool retry)
{
    uint64_t bytes = r->segment_bytes, reserved = a->figures.current.reserved;
    if (retry) {
        a->figures.counters.of[ML_SOURCE_COUNTER_num_alloc_retries]++;
    }
    if (bytes > UINT64_MAX - reserved || reserved + bytes > a->allowed) {
        return 0;
    }
    if (a->settings.reject_early &&
        (double)reserved + (double)bytes >
            a->settings.memory_fraction * (double)a->total_bytes) {
        a->figures.counters.of[ML_SOURCE_COUNTER_num_oom_rejections]++;
        return REJECTED;
    }
    if (r->expandable) {
        return ml_expandable_alloc(a, r);
    }
    int error = ml_nodes_reserve(a, 1);
    if (error != 0) {
        return error;
    }
    uint64_t addr = a->driver.segment_alloc(a->driver.self, bytes, r->stream,
                                            a->pools[r->pool].id, r->small);
    if (addr == 0) {
        return 0;
    }
    ml_node block = {0};
    block.stream = r->stream;
    block.addr = addr;
    block.size = bytes;
    block.pool = r->pool;
    block.small = r->small;
    block.mapped = 1;
    if (a->settings.order == ML_ORDER_SEGMENT) {
        block.counter = ++a->counter;
    }
    r->block = ml_node_new(a, &block);
    ml_allocator_stats_reserved_grew(a, bytes);
    a->figures.counters.of[ML_SOURCE_COUNTER_num_device_alloc]++;
    ml_allocator_stats_trace_node(a, ML_ACTION_SEGMENT_ALLOC, addr, bytes, &block);
    return 1;
}

static bool
is_lent(const ml_allocator *a)
{
    size_t i = 1;
    while (i < a->pool_count && (a->pools[i].flags & ML_POOL_USE_ON_OOM) == 0) {
        i++;
    }
    return i < a->pool_count;
}

/* A free block from a pool that lends them, for a request of the default pool. */
static bool
borrow(ml_allocator *a, ml_request *r)
{
    /* with more than one such pool, torch's order matters */
    if (r->pool != 0 || !is_lent(a)) {
        return false;
    }
    for (size_t i = ml_pool_next(a, 0); i != 0; i = ml_pool_next(a, i)) {
        if ((a->pools[i].flags & ML_POOL_USE_ON_OOM) != 0) {
            ml_request lent = *r;
            lent.pool = (uint32_t)i;
            lent.expandable = r->expandable && !a->settings.lend_first;
            if (find_free_block(a, &lent)) {
                *r = lent;
                return true;
            }
        }
    }
    return false;
}

/* Memory for a request that no free block serves.  Returns as new_segment. */
static int
find_memory(ml_allocator *a, ml_request *r)
{
    if (collects_garbage(a)) {
        ml_release_collect_garbage(a);
    }
    int found = new_segment(a, r, false);
    if (found == 0 && a->settings.lend_first && borrow(a, r)) {
        return 1;
    }
    if (found == 0 && ml_release_oversize(a, r)) {
        found = new_segment(a, r, false);
    }
    if (found == 0 && !ml_allocator_is_capturing(a)) {
        found = ml_release_all(a);
        if (found == 0) {
            found = new_segment(a, r, true);
        }
    }
    if (found == 0 && !a->settings.lend_first && borrow(a, r)) {
        return 1;
    }
    if (found == 0) {
        uint64_t left =
            a->driver.free_bytes != NULL ? a->driver.free_bytes(a->driver.self) : 0;
        a->figures.counters.of[ML_SOURCE_COUNTER_num_ooms]++;
        ml_allocator_stats_trace(a, ML_ACTION_OOM, left, r->bytes, r->stream, r->pool,
                                 0);
    }
    return found;
}

/* torch's alloc_found_block: hands out the front of the block, or all of it. */
static uint64_t
take_block(ml_allocator *a, const ml_request *r, uint64_t requested)
{
    uint32_t index = r->block;
    ml_node *node = &a->nodes[index];
    bool was_split = ml_node_is_split(node), own = node->space == 0;
    if (should_split(a, r)) {
        uint32_t rest = index;
        index = ml_node_new(a, node); /* malloc reserved the room */
        ml_node *front = &a->nodes[index], *tail = &a->nodes[rest];
        front->size = r->bytes;
        tail->addr += r->bytes;
        tail->size -= r->bytes;
        ml_node_splice(a, index, tail->prev, rest);
        ml_node_to_pool(a, rest);
        if (own && was_split) {
            a->figures.inactive_split -= r->bytes;
        }
        else if (own) {
            ml_allocator_stats_inactive_split_grew(a, tail->size);
        }
        node = front;
    }
    else if (own && was_split) {
        a->figures.inactive_split -= node->size;
    }
    node->state = ML_NODE_ALLOCATED;
    node->requested = requested;
    ml_allocator_stats_trace_block(a, ML_ACTION_ALLOC, node);
    ml_slots_add(a, index);
    ml_allocator_stats_count_allocated(a, node);
    return node->addr;
}

int
ml_allocator_malloc(ml_allocator *a, uint64_t bytes, uint64_t stream,
                    const uint32_t pool[2], uint64_t *addr)
{
    if (bytes == 0 || bytes > ML_REQUEST_MAX / 2) {
        return ML_EINVALID;
    }
    int64_t number = ml_allocator_pool(a, pool);
    if (number < 0) {
        return (int)number;
    }
    int error = ml_slots_reserve(a);
    if (error != 0) {
        return error;
    }
    ml_request r = {0};
    r.bytes = ml_allocator_round(&a->rules, bytes);
    r.stream = stream;
    r.pool = (uint32_t)number;
    r.small = r.bytes <= ML_SMALL_BLOCK_BYTES;
    r.segment_bytes = ml_segment_bytes(r.bytes, a->settings.large_segment_bytes);
    r.expandable = a->settings.expandable_segments &&
                   (a->pools[number].flags & ML_POOL_CUSTOM) == 0;
    if (!find_free_block(a, &r)) {
        int found = find_memory(a, &r);
        if (found < 0 || a->error != 0) {
            return found < 0 ? found : a->error;
        }
        if (found != 1) {
            return ML_ALLOCATOR_OOM;
        }
    }
    error = ml_nodes_reserve(a, 1);
    if (error != 0) {
        return error;
    }
    *addr = take_block(a, &r, bytes);
    return a->error;
}

int
ml_allocator_empty_cache(ml_allocator *a)
{
    return ml_release_all(a);
}
