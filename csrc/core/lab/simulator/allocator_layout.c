/* The memory layout of the allocator model: its beginning, the memory before the first
 * event, its snapshot, and its validation. */
#include <stdlib.h>
#include <string.h>

#include "lab/simulator/allocator_parts.h"

/* ---- Making one ---- */

static void
take_settings(ml_allocator *a, const ml_allocator_settings *settings)
{
    a->settings = *settings;
    a->rules = ml_allocator_settings_rules(settings);
    a->allowed = UINT64_MAX;
    /* After torch 2.8, a fraction of 1 is no limit and disables garbage collection. */
    a->settings.limited &= settings->memory_fraction < 1 || settings->version <= 208;
    if (a->settings.limited) {
        a->allowed = (uint64_t)(settings->memory_fraction * (double)a->total_bytes);
    }
}

/* Index 0 of nodes, spaces and uses means none; index 0 of pools, the default pool. */
static int
make_first(ml_allocator *a)
{
    int error = ml_nodes_reserve(a, 64);
    if (error == 0) {
        error = ml_grow((void **)&a->pools, &a->pool_capacity, 1, sizeof(*a->pools));
    }
    if (error == 0) {
        error = ml_grow((void **)&a->spaces, &a->space_capacity, 1, sizeof(*a->spaces));
    }
    if (error == 0) {
        error = ml_grow((void **)&a->uses, &a->use_capacity, 1, sizeof(*a->uses));
    }
    if (error != 0) {
        return error;
    }
    memset(&a->nodes[0], 0, sizeof(a->nodes[0]));
    memset(&a->pools[0], 0, sizeof(a->pools[0]));
    memset(&a->spaces[0], 0, sizeof(a->spaces[0]));
    memset(&a->uses[0], 0, sizeof(a->uses[0]));
    a->node_count = a->pool_count = a->space_count = a->use_count = 1;
    a->pools[0].use_count = 1;
    return ml_intern_add(&a->pool_ids, 0);
}

int
ml_allocator_new(const ml_allocator_settings *settings,
                 const ml_allocator_driver *driver, uint64_t total_bytes,
                 ml_allocator **out)
{
    ml_allocator *a = ml_alloc_zeroed(1, sizeof(*a));
    if (a == NULL) {
        return ML_ENOMEM;
    }
    a->driver = *driver;
    a->total_bytes = total_bytes < ML_REQUEST_MAX ? total_bytes : ML_REQUEST_MAX;
    a->figures.slack.split_high = UINT64_MAX;
    a->figures.slack.rounding_high = UINT64_MAX;
    take_settings(a, settings);
    int error = make_first(a);
    if (error != 0) {
        ml_allocator_delete(a);
        return error;
    }
    *out = a;
    return 0;
}

void
ml_allocator_delete(ml_allocator *a)
{
    if (a == NULL) {
        return;
    }
    ml_free(a->nodes);
    for (size_t i = 0; i < a->pool_count * 2; i++) {
        ml_set_fini(&a->pools[i / 2].of[i % 2].blocks);
        ml_set_fini(&a->pools[i / 2].of[i % 2].unmapped);
    }
    ml_free(a->pools);
    ml_intern_fini(&a->pool_ids);
    ml_free(a->spaces);
    ml_free(a->uses);
    ml_free(a->waits);
    ml_free(a->held);
    ml_free(a->scratch);
    ml_free(a->slots);
    ml_free(a);
}

int
ml_allocator_change_settings(ml_allocator *a, const ml_allocator_settings *settings)
{
    if (settings->order != a->settings.order) {
        return ML_EINVALID; /* free blocks have this order */
    }
    take_settings(a, settings);
    return 0;
}

/* ---- Before the first event ---- */

static bool
fills(const ml_segment *segment, const ml_block *blocks, size_t count)
{
    uint64_t at = segment->addr;
    for (size_t i = 0; i < count; i++) {
        if (blocks[i].addr != at || blocks[i].size == 0 ||
            blocks[i].size > segment->addr + segment->total - at) {
            return false;
        }
        at += blocks[i].size;
    }
    return count > 0 && at == segment->addr + segment->total;
}

/* Sets *OUT to the unmapped range that holds all of SEGMENT, made if needed. */
static int
find_space(ml_allocator *a, const ml_segment *segment, const ml_node *like,
           uint64_t reserved_addr, uint64_t reserved_bytes, uint32_t *out)
{
    const ml_set *set = &a->pools[like->pool].of[like->small].unmapped;
    uint32_t at = ml_set_find_range(set, like->stream, segment->addr);
    const ml_node *node = &a->nodes[at];
    if (at != 0 && segment->addr - node->addr < node->size &&
        segment->total <= node->size - (segment->addr - node->addr)) {
        *out = at;
        return 0;
    }
    if (reserved_bytes == 0) {
        /* Unknown: as torch would place it if this were its first page. */
        reserved_addr = segment->addr;
        reserved_bytes = ml_expandable_bytes(a, like->small);
        if (reserved_bytes < segment->total) {
            reserved_bytes = segment->total;
        }
    }
    if (reserved_addr > segment->addr || reserved_bytes > UINT64_MAX - reserved_addr ||
        segment->total > reserved_addr + reserved_bytes - segment->addr) {
        return ML_EINVALID;
    }
    return ml_expandable_add(a, reserved_addr, reserved_bytes, like, out);
}

/* Cuts SEGMENT's range out of address space; *OUT: its node. */
static int
map_seed(ml_allocator *a, const ml_segment *segment, const ml_node *like,
         uint64_t reserved_addr, uint64_t reserved_bytes, uint32_t *out)
{
    uint32_t index;
    int error = find_space(a, segment, like, reserved_addr, reserved_bytes, &index);
    if (error == 0) {
        error = ml_nodes_reserve(a, 2);
    }
    if (error != 0) {
        return error;
    }
    ml_node_from_pool(a, index);
    ml_node *node = &a->nodes[index];
    uint64_t end = node->addr + node->size, mapped_end = segment->addr + segment->total;
    if (node->addr < segment->addr) {
        uint32_t before = ml_node_new(a, node);
        a->nodes[before].size = segment->addr - node->addr;
        ml_node_splice(a, before, node->prev, index);
        ml_node_to_pool(a, before);
    }
    if (mapped_end < end) {
        uint32_t after = ml_node_new(a, node);
        a->nodes[after].addr = mapped_end;
        a->nodes[after].size = end - mapped_end;
        ml_node_splice(a, after, index, node->next);
        ml_node_to_pool(a, after);
    }
    node->addr = segment->addr;
    node->size = segment->total;
    node->mapped = 1;
    *out = index;
    return 0;
}

/* Splits the node INDEX, which is SEGMENT, into its COUNT blocks. */
static int
cut_seed(ml_allocator *a, uint32_t index, const ml_block *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int error = ml_slots_reserve(a);
        if (error != 0) {
            return error;
        }
        uint32_t rest = 0;
        if (i + 1 < count) {
            rest = ml_node_new(a, &a->nodes[index]); /* the room was reserved */
            a->nodes[rest].addr += blocks[i].size;
            a->nodes[rest].size -= blocks[i].size;
            ml_node_splice(a, rest, index, a->nodes[index].next);
        }
        ml_node *node = &a->nodes[index];
        node->size = blocks[i].size;
        node->requested = blocks[i].requested;
        if (blocks[i].state == ML_BLOCK_INACTIVE) {
            ml_node_to_pool(a, index);
            if (node->space == 0 && ml_node_is_split(node)) {
                a->figures.inactive_split += node->size;
            }
        }
        else {
            node->state = ML_NODE_ALLOCATED;
            ml_slots_add(a, index);
            a->figures.current.active += node->size;
            a->figures.current.requested += node->requested;
            if (blocks[i].state == ML_BLOCK_PENDING_FREE) {
                ml_frees_defer(a, index);
            }
            else {
                a->figures.current.allocated += node->size;
            }
        }
        index = rest;
    }
    return 0;
}

int
ml_allocator_seed_segment(ml_allocator *a, const ml_segment *segment,
                          const ml_block *blocks, size_t count, uint64_t reserved_addr,
                          uint64_t reserved_bytes)
{
    if (segment->total == 0 || segment->total > UINT64_MAX - segment->addr ||
        segment->total > UINT64_MAX - a->figures.current.reserved ||
        segment->pool[0] > UINT32_MAX || segment->pool[1] > UINT32_MAX ||
        !fills(segment, blocks, count)) {
        return ML_EINVALID;
    }
    uint32_t id[2] = {(uint32_t)segment->pool[0], (uint32_t)segment->pool[1]};
    int64_t pool = ml_allocator_pool(a, id);
    int error = pool < 0 ? (int)pool : ml_nodes_reserve(a, count);
    if (error != 0) {
        return error;
    }
    ml_node node = {0};
    node.stream = segment->stream;
    node.pool = (uint32_t)pool;
    node.small = segment->small != 0;
    node.addr = segment->addr;
    node.size = segment->total;
    node.mapped = 1;
    uint32_t index;
    if (segment->expandable) {
        error = map_seed(a, segment, &node, reserved_addr, reserved_bytes, &index);
        if (error == 0) {
            error = ml_nodes_reserve(a, count);
        }
        if (error != 0) {
            return error;
        }
    }
    else {
        if (a->settings.order == ML_ORDER_SEGMENT) {
            node.counter = ++a->counter;
        }
        index = ml_node_new(a, &node);
    }
    ml_allocator_stats_reserved_grew(a, segment->total);
    error = cut_seed(a, index, blocks, count);
    a->figures.peak = a->figures.current;
    a->figures.inactive_split_peak = a->figures.inactive_split;
    return error != 0 ? error : a->error;
}

/* ---- As a snapshot ---- */

typedef struct head {
    uint64_t addr;
    uint32_t node;
} head;

static int
compare_heads(const void *left, const void *right)
{
    const head *a = left, *b = right;
    return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* Whether a segment of the snapshot begins with NODE. */
static bool
is_head(const ml_allocator *a, const ml_node *node)
{
    return node->state != ML_NODE_UNUSED && node->mapped &&
           (node->prev == 0 || !a->nodes[node->prev].mapped);
}

static int
visit_segment(const ml_allocator *a, uint32_t first, const ml_ledger_visitor *visitor)
{
    const ml_node *node = &a->nodes[first];
    ml_segment segment = {0};
    segment.addr = node->addr;
    segment.stream = node->stream;
    segment.pool[0] = a->pools[node->pool].id[0];
    segment.pool[1] = a->pools[node->pool].id[1];
    segment.small = node->small;
    segment.expandable = node->space != 0;
    for (uint32_t at = first; at != 0 && a->nodes[at].mapped; at = a->nodes[at].next) {
        const ml_node *of = &a->nodes[at];
        segment.total += of->size;
        segment.allocated += of->state == ML_NODE_ALLOCATED ? of->size : 0;
        segment.active += of->state != ML_NODE_FREE ? of->size : 0;
        segment.requested += of->state != ML_NODE_FREE ? of->requested : 0;
        segment.block_count++;
    }
    int result =
        visitor->segment != NULL ? visitor->segment(visitor->context, &segment) : 0;
    for (uint32_t at = first;
         visitor->block != NULL && result == 0 && at != 0 && a->nodes[at].mapped;
         at = a->nodes[at].next) {
        const ml_node *of = &a->nodes[at];
        ml_block block = {0};
        block.addr = of->addr;
        block.size = of->size;
        block.requested = of->requested;
        block.state = of->state == ML_NODE_FREE        ? ML_BLOCK_INACTIVE
                      : of->state == ML_NODE_ALLOCATED ? ML_BLOCK_ALLOCATED
                                                       : ML_BLOCK_PENDING_FREE;
        result = visitor->block(visitor->context, &block, 0);
    }
    return result;
}

int
ml_allocator_visit(const ml_allocator *a, const ml_ledger_visitor *visitor)
{
    size_t count = 0;
    for (size_t i = 1; i < a->node_count; i++) {
        count += is_head(a, &a->nodes[i]);
    }
    if (count == 0) {
        return 0;
    }
    head *heads = ml_alloc_zeroed(count, sizeof(*heads));
    if (heads == NULL) {
        return ML_ENOMEM;
    }
    size_t filled = 0;
    for (size_t i = 1; i < a->node_count; i++) {
        if (is_head(a, &a->nodes[i])) {
            heads[filled].addr = a->nodes[i].addr;
            heads[filled++].node = (uint32_t)i;
        }
    }
    qsort(heads, count, sizeof(*heads), compare_heads);
    int result = 0;
    for (size_t i = 0; i < count && result == 0; i++) {
        result = visit_segment(a, heads[i].node, visitor);
    }
    ml_free(heads);
    return result;
}

/* ---- Whether it is whole ---- */

static const char *
check_node(const ml_allocator *a, uint32_t index)
{
    const ml_node *node = &a->nodes[index], *next = &a->nodes[node->next];
    if (node->size == 0 || (!node->mapped && node->space == 0)) {
        return "a block without memory";
    }
    if (node->next != 0) {
        if (next->prev != index || next->addr != node->addr + node->size ||
            next->space != node->space || next->pool != node->pool ||
            next->small != node->small || next->stream != node->stream) {
            return "neighbours that do not touch";
        }
        if (node->state == ML_NODE_FREE && next->state == ML_NODE_FREE &&
            node->mapped == next->mapped) {
            return "free neighbours that are not one";
        }
    }
    bool used = node->state != ML_NODE_FREE;
    if (used && (!node->mapped || ml_slots_find(a, node->addr) != index)) {
        return "a block in use that is not found by its address";
    }
    return NULL;
}

/* Checks the order of a set's nodes and adds their bytes to *BYTES. */
static const char *
check_set(const ml_allocator *a, const ml_set *set, bool mapped, size_t *count)
{
    uint32_t last = 0;
    for (uint32_t at = ml_set_next(a, set, 0); at != 0; at = ml_set_next(a, set, at)) {
        const ml_node *node = &a->nodes[at];
        if (node->state != ML_NODE_FREE || node->mapped != mapped) {
            return "a set with a block that is not its";
        }
        if (last != 0 && a->nodes[last].stream > node->stream) {
            return "a set out of order";
        }
        last = at;
        ++*count;
    }
    return NULL;
}

const char *
ml_allocator_validate(const ml_allocator *a)
{
    ml_totals totals = {0};
    uint64_t inactive_split = 0;
    size_t free_count = 0, in_sets = 0, in_use = 0;
    for (size_t i = 1; i < a->node_count; i++) {
        const ml_node *node = &a->nodes[i];
        if (node->state == ML_NODE_UNUSED) {
            continue;
        }
        const char *problem = check_node(a, (uint32_t)i);
        if (problem != NULL) {
            return problem;
        }
        bool is_free = node->state == ML_NODE_FREE;
        free_count += is_free;
        in_use += !is_free;
        totals.reserved += node->mapped ? node->size : 0;
        totals.allocated += node->state == ML_NODE_ALLOCATED ? node->size : 0;
        totals.active += is_free ? 0 : node->size;
        totals.requested += is_free ? 0 : node->requested;
        inactive_split +=
            is_free && node->space == 0 && ml_node_is_split(node) ? node->size : 0;
    }
    for (size_t i = 0; i < a->pool_count * 4; i++) {
        const ml_block_pool *pool = &a->pools[i / 4].of[i / 2 % 2];
        const char *problem =
            check_set(a, i % 2 ? &pool->blocks : &pool->unmapped, i % 2 != 0, &in_sets);
        if (problem != NULL) {
            return problem;
        }
    }
    if (in_sets != free_count || in_use != a->slot_used) {
        return "blocks that are in no set";
    }
    if (memcmp(&totals, &a->figures.current, sizeof(totals)) != 0) {
        return "totals that are not the sums of the blocks";
    }
    return inactive_split == a->figures.inactive_split
               ? NULL
               : "inactive split bytes that are not the sum of the blocks";
}
