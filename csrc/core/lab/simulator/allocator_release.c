/* Memory that the allocator model gives back to the driver: all free memory, oversize
 * blocks for a request that found none, and old blocks by garbage collection. */
#include <stdlib.h>

#include "lab/simulator/allocator_parts.h"

/* Whether a free block is a whole segment, which can go back to the driver. */
static bool
is_segment(const ml_node *node)
{
    return !ml_node_is_split(node) && node->space == 0;
}

static void
release_segment(ml_allocator *a, uint32_t index)
{
    ml_node node = a->nodes[index];
    a->figures.counters.of[ML_SOURCE_COUNTER_num_device_free]++;
    ml_allocator_stats_trace_node(a, ML_ACTION_SEGMENT_FREE, node.addr, node.size,
                                  &node);
    a->driver.segment_free(a->driver.self, node.addr, node.size);
    a->figures.current.reserved -= node.size;
    ml_node_from_pool(a, index);
    ml_node_drop(a, index);
}

/* The age of a block for garbage collection; torch keeps it in an int. */
static uint64_t
age(const ml_allocator *a, const ml_node *node)
{
    return (uint64_t)(int32_t)(uint32_t)(a->pools[0].of[0].lookups - node->gc_base);
}

/* Releases segments of at least AGE from the large blocks, and removes them from *AGES
 * and *COUNT.  Returns their bytes. */
static uint64_t
release_old(ml_allocator *a, double least, uint64_t *ages, uint64_t *count)
{
    uint64_t released = 0;
    const ml_set *set = &a->pools[0].of[0].blocks;
    uint32_t next;
    for (uint32_t at = ml_set_next(a, set, 0); at != 0; at = next) {
        const ml_node *node = &a->nodes[at];
        next = ml_set_next(a, set, at);
        if (is_segment(node) && (double)age(a, node) >= least) {
            released += node->size;
            *ages -= age(a, node);
            --*count;
            release_segment(a, at);
        }
    }
    return released;
}

void
ml_release_collect_garbage(ml_allocator *a)
{
    uint64_t most = (uint64_t)(a->settings.gc_threshold * (double)a->allowed);
    if (a->figures.current.reserved <= most) {
        return;
    }
    uint64_t target = a->figures.current.reserved - most;
    uint64_t ages = 0, count = 0, released = 0;
    const ml_set *set = &a->pools[0].of[0].blocks;
    for (uint32_t at = ml_set_next(a, set, 0); at != 0; at = ml_set_next(a, set, at)) {
        /* torch counts expandable blocks too, though it cannot release them. */
        if (!ml_node_is_split(&a->nodes[at])) {
            ages += age(a, &a->nodes[at]);
            count++;
        }
    }
    while (released < target && count > 0) {
        uint64_t more = release_old(a, (double)ages / (double)count, &ages, &count);
        if (more == 0) {
            break;
        }
        released += more;
    }
}

bool
ml_release_oversize(ml_allocator *a, const ml_request *r)
{
    uint64_t most = a->settings.max_split_bytes;
    a->figures.slack.split_low = a->figures.slack.split_high = most;
    if (most == UINT64_MAX) {
        return false;
    }
    const ml_set *set = &a->pools[r->pool].of[r->small].blocks;
    uint64_t wanted = r->bytes < most ? most : r->bytes;
    ml_set_place place;
    uint32_t at = ml_set_find(set, r->stream, wanted, &place);
    if (at != 0 && a->nodes[at].stream == r->stream && is_segment(&a->nodes[at])) {
        release_segment(a, at);
        return true;
    }
    uint64_t released = 0;
    at = ml_set_previous(a, set, at);
    while (at != 0 && released < wanted && a->nodes[at].size >= most &&
           a->nodes[at].stream == r->stream) {
        uint32_t before = ml_set_previous(a, set, at);
        if (is_segment(&a->nodes[at])) {
            released += a->nodes[at].size;
            release_segment(a, at);
        }
        at = before;
    }
    return released >= wanted;
}

/* Releases all free segments and pages of a set. */
static int
release_blocks(ml_allocator *a, size_t pool, bool small)
{
    const ml_set *set = &a->pools[pool].of[small].blocks;
    size_t count = 0;
    uint32_t next;
    for (uint32_t at = ml_set_next(a, set, 0); at != 0; at = next) {
        next = ml_set_next(a, set, at);
        if (a->nodes[at].space != 0) {
            int error = ml_grow((void **)&a->scratch, &a->scratch_capacity, count + 1,
                                sizeof(*a->scratch));
            if (error != 0) {
                return error;
            }
            /* after the walk, because releasing changes the set */
            a->scratch[count++] = at;
        }
        else if (!ml_node_is_split(&a->nodes[at])) {
            release_segment(a, at);
        }
    }
    for (size_t i = 0; i < count; i++) {
        int error = ml_expandable_release(a, a->scratch[i]);
        if (error != 0) {
            return error;
        }
    }
    return a->error;
}

/* POOL has no user. */
static int
release_pool(ml_allocator *a, uint32_t pool)
{
    a->figures.counters.of[ML_SOURCE_COUNTER_num_sync_all_streams]++;
    int error = ml_frees_finish_pool(a, pool);
    if (error == 0) {
        error = release_blocks(a, pool, true);
    }
    return error != 0 ? error : release_blocks(a, pool, false);
}

int
ml_allocator_pool_empty(ml_allocator *a, const uint32_t id[2])
{
    int64_t index = ml_allocator_pool(a, id);
    if (index <= 0 || a->pools[index].use_count != 0 || ml_allocator_is_capturing(a)) {
        return index < 0 ? (int)index : ML_EINVALID;
    }
    return release_pool(a, (uint32_t)index);
}

/* Whether torch would look only at the pool that takes requests now: up to 2.7, if that
 * pool has a user. */
static bool
looks_at_one_pool(const ml_allocator *a)
{
    bool found = false;
    for (size_t i = 1; i < a->pool_count && a->settings.version <= 207; i++) {
        found |= a->pools[i].begun != 0 && (a->pools[i].flags & ML_POOL_CAPTURE) == 0;
    }
    return found;
}

typedef struct unused_pool {
    uint64_t place;
    uint32_t index;
} unused_pool;

static int
compare_pools(const void *left, const void *right)
{
    const unused_pool *a = left, *b = right;
    if (a->place != b->place) {
        return a->place < b->place ? -1 : 1;
    }
    return a->index < b->index ? -1 : 1;
}

/* Whether POOL's free memory goes back once it has no user. */
static bool
is_releasable(const ml_memory_pool *pool)
{
    return pool->use_count == 0 && (!ml_set_is_empty(&pool->of[0].blocks) ||
                                    !ml_set_is_empty(&pool->of[1].blocks));
}

/* Releases pools without users, in the order of torch's table. */
static int
release_unused_pools(ml_allocator *a)
{
    size_t count = 0;
    for (size_t i = 1; i < a->pool_count; i++) {
        count += is_releasable(&a->pools[i]);
    }
    if (count == 0) {
        return 0;
    }
    unused_pool *pools = ml_alloc_zeroed(count, sizeof(*pools));
    if (pools == NULL) {
        return ML_ENOMEM;
    }
    count = 0;
    for (size_t i = 1; i < a->pool_count; i++) {
        if (is_releasable(&a->pools[i])) {
            pools[count++] = (unused_pool){ml_pool_place(&a->pools[i]), (uint32_t)i};
        }
    }
    qsort(pools, count, sizeof(*pools), compare_pools);
    int error = 0;
    for (size_t i = 0; i < 2 * count && error == 0; i++) {
        error = release_blocks(a, pools[i / 2].index, i % 2 == 0);
    }
    ml_free(pools);
    return error;
}

int
ml_release_all(ml_allocator *a)
{
    int error = 0;
    if (looks_at_one_pool(a)) {
        return 0;
    }
    if (!ml_allocator_is_capturing(a)) {
        a->figures.counters.of[ML_SOURCE_COUNTER_num_sync_all_streams]++;
        error = ml_frees_finish(a, true);
        for (int small = 0; small <= 1 && error == 0; small++) {
            error = release_blocks(a, 0, small != 0);
        }
    }
    return error != 0 ? error : release_unused_pools(a);
}
