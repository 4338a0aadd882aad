/* The ordered sets of the allocator model: treaps through the nodes, without memory of
 * their own.
 *
 * Blocks come and go far more often than they are walked, and a treap's two operations
 * are short loops.  Priorities come from a fixed generator, so runs are repeatable. */
#include "lab/simulator/allocator_parts.h"

/* Whether A comes before B. */
static inline bool
is_before(const ml_node *a, const ml_node *b)
{
    if (a->key_size != b->key_size && a->stream == b->stream) {
        return a->key_size < b->key_size;
    }
    if (a->stream != b->stream) {
        return a->stream < b->stream;
    }
    if (a->key_tie != b->key_tie) {
        return a->key_tie < b->key_tie;
    }
    if (a->addr != b->addr) {
        return a->addr < b->addr;
    }
    return a < b;
}

static uint32_t
next_priority(ml_allocator *a)
{
    uint32_t value = a->random;
    value ^= value << 13;
    value ^= value >> 17;
    value ^= value << 5;
    a->random = value;
    return value;
}

void
ml_set_insert(ml_allocator *a, uint32_t *root, uint32_t index)
{
    ml_node *nodes = a->nodes;
    ml_node *node = &nodes[index];
    uint32_t priority = next_priority(a);
    node->priority = priority;
    uint32_t *link = root;
    while (*link != 0 && nodes[*link].priority >= priority) {
        ml_node *at = &nodes[*link];
        link = is_before(node, at) ? &at->left : &at->right;
    }
    /* The node splits the subtree there and takes its place. */
    uint32_t rest = *link;
    *link = index;
    uint32_t *low = &node->left, *high = &node->right;
    while (rest != 0) {
        ml_node *at = &nodes[rest];
        if (is_before(at, node)) {
            *low = rest;
            low = &at->right;
            rest = *low;
        }
        else {
            *high = rest;
            high = &at->left;
            rest = *high;
        }
    }
    *low = 0;
    *high = 0;
}

void
ml_set_remove(ml_allocator *a, uint32_t *root, uint32_t index)
{
    ml_node *nodes = a->nodes;
    ml_node *node = &nodes[index];
    uint32_t *link = root;
    while (*link != index) {
        ML_ASSERT(*link != 0);
        ml_node *at = &nodes[*link];
        link = is_before(node, at) ? &at->left : &at->right;
    }
    uint32_t low = node->left, high = node->right;
    while (low != 0 && high != 0) {
        if (nodes[low].priority >= nodes[high].priority) {
            *link = low;
            link = &nodes[low].right;
            low = *link;
        }
        else {
            *link = high;
            link = &nodes[high].left;
            high = *link;
        }
    }
    *link = low != 0 ? low : high;
}

uint32_t
ml_set_find(const ml_allocator *a, uint32_t root, uint64_t stream, uint64_t size)
{
    const ml_node *nodes = a->nodes;
    uint32_t found = 0;
    while (root != 0) {
        const ml_node *at = &nodes[root];
        bool below = at->stream != stream ? at->stream < stream : at->key_size < size;
        if (below) {
            root = at->right;
        }
        else {
            found = root;
            root = at->left;
        }
    }
    return found;
}

uint32_t
ml_set_find_range(const ml_allocator *a, uint32_t root, uint64_t stream, uint64_t addr)
{
    const ml_node *nodes = a->nodes;
    uint32_t found = 0;
    while (root != 0) {
        const ml_node *at = &nodes[root];
        bool above = at->stream != stream ? at->stream > stream : at->addr > addr;
        if (above) {
            root = at->left;
        }
        else {
            found = root;
            root = at->right;
        }
    }
    return found != 0 && nodes[found].stream == stream ? found : 0;
}

uint32_t
ml_set_next(const ml_allocator *a, uint32_t root, uint32_t index)
{
    const ml_node *nodes = a->nodes;
    const ml_node *node = &nodes[index];
    uint32_t found = 0;
    while (root != 0) {
        const ml_node *at = &nodes[root];
        if (index == 0 || is_before(node, at)) {
            found = root;
            root = at->left;
        }
        else {
            root = at->right;
        }
    }
    return found;
}

uint32_t
ml_set_previous(const ml_allocator *a, uint32_t root, uint32_t index)
{
    const ml_node *nodes = a->nodes;
    const ml_node *node = &nodes[index];
    uint32_t found = 0;
    while (root != 0) {
        const ml_node *at = &nodes[root];
        if (index == 0 || is_before(at, node)) {
            found = root;
            root = at->right;
        }
        else {
            root = at->left;
        }
    }
    return found;
}
