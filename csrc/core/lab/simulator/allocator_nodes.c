/* The blocks of the allocator model: their neighbours, and the blocks in use by
 * address. */
#include "lab/simulator/allocator_parts.h"

#include <string.h>

int
ml_nodes_reserve(ml_allocator *a, size_t count)
{
    if (a->node_count + count < a->node_capacity) {
        return 0; /* without walking its free blocks */
    }
    if (a->node_count + count >= UINT32_MAX) {
        return ML_ENOMEM;
    }
    return ml_grow((void **)&a->nodes, &a->node_capacity, a->node_count + count + 1,
                   sizeof(*a->nodes));
}

uint32_t
ml_node_new(ml_allocator *a, const ml_node *like)
{
    uint32_t index = a->free_node;
    if (index != 0) {
        a->free_node = a->nodes[index].next;
    }
    else {
        ML_ASSERT(a->node_count < a->node_capacity);
        index = (uint32_t)a->node_count++;
    }
    a->nodes[index] = *like;
    if (a->settings.order == ML_ORDER_BLOCK) {
        a->nodes[index].counter = ++a->counter;
    }
    return index;
}

void
ml_node_drop(ml_allocator *a, uint32_t index)
{
    a->nodes[index].state = ML_NODE_UNUSED;
    a->nodes[index].next = a->free_node;
    a->free_node = index;
}

void
ml_node_splice(ml_allocator *a, uint32_t index, uint32_t before, uint32_t after)
{
    ml_node *node = &a->nodes[index];
    node->prev = before;
    node->next = after;
    if (before != 0) {
        a->nodes[before].next = index;
    }
    if (after != 0) {
        a->nodes[after].prev = index;
    }
}

void
ml_node_to_pool(ml_allocator *a, uint32_t index)
{
    ml_node *node = &a->nodes[index];
    ml_block_pool *pool = ml_pool_of(a, node);
    node->state = ML_NODE_FREE;
    if (node->mapped) {
        node->gc_base = pool->lookups;
        ml_set_insert(a, &pool->blocks, index);
    }
    else {
        ml_set_insert(a, &pool->unmapped, index);
    }
}

void
ml_node_from_pool(ml_allocator *a, uint32_t index)
{
    const ml_node *node = &a->nodes[index];
    ml_block_pool *pool = ml_pool_of(a, node);
    ml_set_remove(a, node->mapped ? &pool->blocks : &pool->unmapped, index);
}

uint64_t
ml_node_merge(ml_allocator *a, uint32_t index, uint32_t other)
{
    ml_node *node = &a->nodes[index];
    if (other == 0) {
        return 0;
    }
    const ml_node *swallowed = &a->nodes[other];
    if (swallowed->state != ML_NODE_FREE || swallowed->mapped != node->mapped) {
        return 0;
    }
    ml_node_from_pool(a, other);
    if (node->prev == other) {
        node->addr = swallowed->addr;
        node->prev = swallowed->prev;
        if (node->prev != 0) {
            a->nodes[node->prev].next = index;
        }
    }
    else {
        node->next = swallowed->next;
        if (node->next != 0) {
            a->nodes[node->next].prev = index;
        }
    }
    uint64_t bytes = swallowed->size;
    node->size += bytes;
    ml_node_drop(a, other);
    return bytes;
}

/* ---- Blocks in use, by address ---- */

static inline size_t
home(const ml_allocator *a, uint64_t addr)
{
    return (size_t)ml_hash_u64(addr) & (a->slot_count - 1);
}

static void
put_node(ml_allocator *a, uint32_t index)
{
    size_t at = home(a, a->nodes[index].addr);
    while (a->slots[at] != 0) {
        at = (at + 1) & (a->slot_count - 1);
    }
    a->slots[at] = index;
}

int
ml_slots_reserve(ml_allocator *a)
{
    if ((a->slot_used + 1) * 2 <= a->slot_count) {
        return 0;
    }
    size_t old_count = a->slot_count;
    uint32_t *old = a->slots;
    size_t count = old_count == 0 ? 256 : old_count * 2;
    uint32_t *slots = ml_alloc_zeroed(count, sizeof(*slots));
    if (slots == NULL) {
        return ML_ENOMEM;
    }
    a->slots = slots;
    a->slot_count = count;
    for (size_t i = 0; i < old_count; i++) {
        if (old[i] != 0) {
            put_node(a, old[i]);
        }
    }
    ml_free(old);
    return 0;
}

void
ml_slots_add(ml_allocator *a, uint32_t index)
{
    put_node(a, index);
    a->slot_used++;
}

void
ml_slots_remove(ml_allocator *a, uint32_t index)
{
    size_t mask = a->slot_count - 1;
    size_t hole = home(a, a->nodes[index].addr);
    while (a->slots[hole] != index) {
        ML_ASSERT(a->slots[hole] != 0);
        hole = (hole + 1) & mask;
    }
    /* Entries after the hole that a search would no longer find move into it. */
    for (size_t at = (hole + 1) & mask; a->slots[at] != 0; at = (at + 1) & mask) {
        size_t wanted = home(a, a->nodes[a->slots[at]].addr);
        if (((at - wanted) & mask) >= ((at - hole) & mask)) {
            a->slots[hole] = a->slots[at];
            hole = at;
        }
    }
    a->slots[hole] = 0;
    a->slot_used--;
}

uint32_t
ml_slots_find(const ml_allocator *a, uint64_t addr)
{
    if (a->slot_count == 0) {
        return 0;
    }
    for (size_t at = home(a, addr); a->slots[at] != 0;
         at = (at + 1) & (a->slot_count - 1)) {
        if (a->nodes[a->slots[at]].addr == addr) {
            return a->slots[at];
        }
    }
    return 0;
}
