/* Frees of the allocator model, and what they wait for.
 *
 * Owns the streams that use other streams' blocks, the events that torch would have
 * queued for them, and the frees that a capture or the caller delays. */
#include "lab/simulator/allocator_parts.h"

#include <stdlib.h>

/* FREE_COMPLETED: to the pool, merged with its neighbours. */
static void
free_block(ml_allocator *a, uint32_t index)
{
    ml_node *node = &a->nodes[index];
    ml_allocator_stats_trace_block(a, ML_ACTION_FREE_COMPLETED, node);
    ml_slots_remove(a, index);
    a->figures.current.active -= node->size;
    a->figures.current.requested -= node->requested;
    uint64_t swallowed = ml_node_merge(a, index, node->prev);
    swallowed += ml_node_merge(a, index, node->next);
    ml_node_to_pool(a, index);
    if (node->space == 0) {
        uint64_t now = ml_node_is_split(node) ? node->size : 0;
        if (now >= swallowed) {
            ml_allocator_stats_inactive_split_grew(a, now - swallowed);
        }
        else {
            a->figures.inactive_split -= swallowed - now;
        }
    }
}

/* ---- Streams that use a block ---- */

static void
drop_use(ml_allocator *a, uint32_t use)
{
    a->uses[use].next = a->free_use;
    a->free_use = use;
}

int
ml_allocator_record_stream(ml_allocator *a, uint64_t addr, uint64_t stream)
{
    uint32_t index = ml_slots_find(a, addr);
    if (index == 0 || a->nodes[index].state != ML_NODE_ALLOCATED) {
        return ML_EINVALID;
    }
    ml_node *node = &a->nodes[index];
    if (stream == node->stream) {
        return 0;
    }
    for (uint32_t use = node->uses; use != 0; use = a->uses[use].next) {
        if (a->uses[use].stream == stream) {
            a->uses[use].captured |= ml_allocator_is_capturing(a);
            return 0;
        }
    }
    uint32_t use = a->free_use;
    if (use != 0) {
        a->free_use = a->uses[use].next;
    }
    else {
        int error = ml_grow((void **)&a->uses, &a->use_capacity, a->use_count + 1,
                            sizeof(*a->uses));
        if (error != 0) {
            return error;
        }
        use = (uint32_t)a->use_count++;
    }
    a->uses[use].stream = stream;
    a->uses[use].captured = ml_allocator_is_capturing(a);
    a->uses[use].next = node->uses;
    node->uses = use;
    return 0;
}

/* Adds an event on each stream that uses NODE.  AFTER_CAPTURE leaves out streams of
 * ended captures. */
static int
insert_events(ml_allocator *a, uint32_t index, bool after_capture)
{
    ml_node *node = &a->nodes[index];
    while (node->uses != 0) {
        uint32_t use = node->uses;
        if (!after_capture || !a->uses[use].captured) {
            int error = ml_grow((void **)&a->waits, &a->wait_capacity,
                                a->wait_count + 1, sizeof(*a->waits));
            if (error != 0) {
                return error;
            }
            ml_wait *wait = &a->waits[a->wait_count++];
            wait->stream = a->uses[use].stream;
            wait->number = a->wait_number++;
            wait->node = index;
            node->events++;
        }
        node->uses = a->uses[use].next;
        drop_use(a, use);
    }
    return 0;
}

/* NODE has uses. */
static int
free_used(ml_allocator *a, uint32_t index)
{
    a->nodes[index].state = ML_NODE_WAITING;
    if (!ml_allocator_is_capturing(a)) {
        return insert_events(a, index, false);
    }
    int error = ml_grow((void **)&a->held, &a->held_capacity, a->held_count + 1,
                        sizeof(*a->held));
    if (error == 0) {
        a->held[a->held_count++] = index;
    }
    return error;
}

void
ml_frees_defer(ml_allocator *a, uint32_t index)
{
    ml_node *node = &a->nodes[index];
    node->state = ML_NODE_DEFERRED;
    node->left = a->deferred_last;
    node->right = 0;
    *(node->left != 0 ? &a->nodes[node->left].right : &a->deferred_first) = index;
    a->deferred_last = index;
}

/* NODE was deferred. */
static void
complete(ml_allocator *a, uint32_t index)
{
    ml_node *node = &a->nodes[index];
    *(node->left != 0 ? &a->nodes[node->left].right : &a->deferred_first) = node->right;
    *(node->right != 0 ? &a->nodes[node->right].left : &a->deferred_last) = node->left;
    while (node->uses != 0) { /* the caller knows that all of them are done */
        uint32_t use = node->uses;
        node->uses = a->uses[use].next;
        drop_use(a, use);
    }
    free_block(a, index);
}

/* torch keeps a queue for each stream and leaves the order of streams open. */
static int
compare_waits(const void *left, const void *right)
{
    const ml_wait *a = left, *b = right;
    if (a->stream != b->stream) {
        return a->stream < b->stream ? -1 : 1;
    }
    return a->number < b->number ? -1 : 1;
}

/* Adds the events that a capture delayed, once no capture is underway. */
static int
insert_held(ml_allocator *a)
{
    for (size_t i = 0; i < a->held_count; i++) {
        int error = insert_events(a, a->held[i], true);
        if (error != 0) {
            return error;
        }
        if (a->nodes[a->held[i]].events == 0) {
            free_block(a, a->held[i]);
        }
    }
    a->held_count = 0;
    return 0;
}

int
ml_frees_finish(ml_allocator *a, bool everything)
{
    int error = insert_held(a);
    if (error != 0) {
        return error;
    }
    if (a->wait_count > 1) {
        qsort(a->waits, a->wait_count, sizeof(*a->waits), compare_waits);
    }
    for (size_t i = 0; i < a->wait_count; i++) {
        if (--a->nodes[a->waits[i].node].events == 0) {
            free_block(a, a->waits[i].node);
        }
    }
    a->wait_count = 0;
    while (everything && a->deferred_first != 0) {
        complete(a, a->deferred_first);
    }
    return a->error;
}

int
ml_frees_finish_pool(ml_allocator *a, uint32_t pool)
{
    int error = insert_held(a);
    if (error != 0) {
        return error;
    }
    if (a->wait_count > 1) {
        qsort(a->waits, a->wait_count, sizeof(*a->waits), compare_waits);
    }
    size_t kept = 0;
    for (size_t i = 0; i < a->wait_count; i++) {
        ml_node *node = &a->nodes[a->waits[i].node];
        if (node->pool != pool) {
            a->waits[kept++] = a->waits[i];
        }
        else if (--node->events == 0) {
            free_block(a, a->waits[i].node);
        }
    }
    a->wait_count = kept;
    return a->error;
}

/* ---- What callers ask for ---- */

/* The block in use at ADDR, with its free requested; 0: no block there. */
static uint32_t
request_free(ml_allocator *a, uint64_t addr)
{
    uint32_t index = ml_slots_find(a, addr);
    ml_node *node = &a->nodes[index];
    if (index == 0 || node->state != ML_NODE_ALLOCATED) {
        return 0;
    }
    a->figures.current.allocated -= node->size;
    ml_allocator_stats_trace_block(a, ML_ACTION_FREE_REQUESTED, node);
    return index;
}

int
ml_allocator_free(ml_allocator *a, uint64_t addr)
{
    uint32_t index = request_free(a, addr);
    if (index == 0) {
        return ML_EINVALID;
    }
    if (a->nodes[index].uses != 0) {
        return free_used(a, index);
    }
    free_block(a, index);
    return a->error;
}

int
ml_allocator_free_deferred(ml_allocator *a, uint64_t addr)
{
    uint32_t index = request_free(a, addr);
    if (index == 0) {
        return ML_EINVALID;
    }
    ml_frees_defer(a, index);
    return 0;
}

int
ml_allocator_complete(ml_allocator *a, uint64_t addr)
{
    uint32_t index = ml_slots_find(a, addr);
    if (index == 0 || a->nodes[index].state != ML_NODE_DEFERRED) {
        return ML_EINVALID;
    }
    complete(a, index);
    return a->error;
}

int
ml_allocator_process_events(ml_allocator *a)
{
    return ml_allocator_is_capturing(a) ? 0 : ml_frees_finish(a, false);
}
