/* Expandable segments of the allocator model: address space into which pages are
 * mapped. */
#include "lab/simulator/allocator_parts.h"

#include <string.h>

uint64_t
ml_expandable_page(const ml_allocator *a, bool small)
{
    return small ? ML_SMALL_SEGMENT_BYTES : a->settings.large_segment_bytes;
}

/* torch reserves 9/8 of the device, so that pages that went can come back at the
 * end; less where the settings say so. */
uint64_t
ml_expandable_bytes(const ml_allocator *a, bool small)
{
    uint64_t page = ml_expandable_page(a, small);
    uint64_t bytes = a->total_bytes + a->total_bytes / 8;
    double unit =
        a->settings.reserve_in_gib ? (double)(1 << 30) : (double)a->total_bytes;
    double reserve = a->settings.reserve * unit;
    if (reserve > 0 && reserve < (double)bytes) {
        bytes = (uint64_t)reserve;
    }
    return (bytes + page - 1) / page * page;
}

int
ml_expandable_add(ml_allocator *a, uint64_t addr, uint64_t bytes, const ml_node *like,
                  uint32_t *out)
{
    int error = ml_grow((void **)&a->spaces, &a->space_capacity, a->space_count + 1,
                        sizeof(*a->spaces));
    if (error == 0) {
        error = ml_nodes_reserve(a, 1);
    }
    if (error != 0) {
        return error;
    }
    ml_space *space = &a->spaces[a->space_count];
    space->addr = addr;
    space->size = bytes;
    space->page = ml_expandable_page(a, like->small);
    ml_node node = {0};
    node.stream = like->stream;
    node.pool = like->pool;
    node.small = like->small;
    node.addr = addr;
    node.size = bytes;
    node.space = (uint32_t)a->space_count++;
    if (a->settings.order == ML_ORDER_SEGMENT) {
        node.counter = ++a->counter;
    }
    *out = ml_node_new(a, &node);
    ml_node_to_pool(a, *out);
    return 0;
}

/* Whether BYTES from INDEX on are free or unmapped. */
static bool
has_room(const ml_allocator *a, uint32_t index, uint64_t bytes)
{
    uint64_t room = 0;
    while (room < bytes && index != 0 && a->nodes[index].state == ML_NODE_FREE) {
        room += a->nodes[index].size;
        index = a->nodes[index].next;
    }
    return room >= bytes;
}

/* The lowest place for the request: an unmapped range, or the free block before it,
 * with enough room after it.  If there is none, a new address space. */
static int
find_place(ml_allocator *a, const ml_request *r, uint32_t *out)
{
    const ml_set *set = &a->pools[r->pool].of[r->small].unmapped;
    ml_set_place place;
    for (uint32_t at = ml_set_find(set, r->stream, 0, &place);
         at != 0 && a->nodes[at].stream == r->stream; at = ml_set_next(a, set, at)) {
        uint32_t from = a->nodes[at].prev;
        if (from == 0 || a->nodes[from].state != ML_NODE_FREE) {
            from = at;
        }
        if (has_room(a, from, r->bytes)) {
            *out = from;
            return 1;
        }
    }
    uint64_t bytes = ml_expandable_bytes(a, r->small);
    uint64_t addr = a->driver.reserve(a->driver.self, bytes, r->stream,
                                      a->pools[r->pool].id, r->small);
    if (addr == 0) {
        return 0;
    }
    if (bytes < r->bytes && a->settings.gives_space_back) {
        a->driver.release(a->driver.self, addr, bytes);
        return 0;
    }
    ml_node like = {0};
    like.stream = r->stream;
    like.pool = r->pool;
    like.small = r->small;
    int error = ml_expandable_add(a, addr, bytes, &like, out);
    /* Up to torch 2.14 the space stays also where no device of this size has so much. */
    return error != 0 ? error : bytes >= r->bytes;
}

/* Maps the first BYTES of the unmapped range INDEX, in whole pages. */
static int
map_block(ml_allocator *a, uint32_t index, uint64_t bytes)
{
    int error = ml_nodes_reserve(a, 1);
    if (error != 0) {
        return error;
    }
    ml_node *node = &a->nodes[index];
    uint64_t page = a->spaces[node->space].page, addr = node->addr;
    uint64_t size = (bytes + page - 1) / page * page;
    if (size > node->size) {
        size = node->size; /* the recording cut the space short */
    }
    if (!a->driver.map(a->driver.self, addr, size)) {
        return 0;
    }
    ml_node_from_pool(a, index);
    if (size < node->size) {
        uint32_t rest = ml_node_new(a, node);
        a->nodes[rest].addr += size;
        a->nodes[rest].size -= size;
        ml_node_splice(a, rest, index, node->next);
        ml_node_to_pool(a, rest);
        node->size = size;
    }
    node->mapped = 1;
    ml_node_merge(a, index, node->prev);
    ml_node_merge(a, index, node->next);
    ml_node_to_pool(a, index);
    ml_allocator_stats_reserved_grew(a, size);
    a->figures.counters.of[ML_SOURCE_COUNTER_num_device_alloc]++;
    ml_allocator_stats_trace_node(a, ML_ACTION_SEGMENT_MAP, addr, size, node);
    return 1;
}

static uint64_t
smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int
ml_expandable_alloc(ml_allocator *a, ml_request *r)
{
    uint32_t index;
    int found = find_place(a, r, &index);
    if (found == 1 && !a->nodes[index].mapped) {
        found = map_block(a, index, smaller(a->nodes[index].size, r->bytes));
    }
    while (found == 1 && a->nodes[index].size < r->bytes) {
        uint32_t next = a->nodes[index].next;
        uint64_t missing = r->bytes - a->nodes[index].size;
        found = map_block(a, next, smaller(missing, a->nodes[next].size));
        index = next;
    }
    if (found == 1) {
        ml_node_from_pool(a, index);
        r->block = index;
    }
    return found;
}

/* Returns the parts of the free block INDEX outside [LOW, HIGH) to the pool. */
static void
trim(ml_allocator *a, uint32_t index, uint64_t low, uint64_t high)
{
    ml_node *node = &a->nodes[index];
    uint64_t end = node->addr + node->size;
    if (node->addr < low) {
        uint32_t before = ml_node_new(a, node);
        a->nodes[before].size = low - node->addr;
        ml_node_splice(a, before, node->prev, index);
        ml_node_to_pool(a, before);
    }
    if (high < end) {
        uint32_t after = ml_node_new(a, node);
        a->nodes[after].addr = high;
        a->nodes[after].size = end - high;
        ml_node_splice(a, after, index, node->next);
        ml_node_to_pool(a, after);
    }
    node->addr = low;
    node->size = high - low;
}

int
ml_expandable_release(ml_allocator *a, uint32_t index)
{
    int error = ml_nodes_reserve(a, 2);
    if (error != 0) {
        return error;
    }
    ml_node *node = &a->nodes[index];
    ml_space *space = &a->spaces[node->space];
    uint64_t page = space->page;
    uint64_t from = node->addr - space->addr, to = from + node->size;
    uint64_t low = (from + page - 1) / page * page, high = to / page * page;
    if (low >= high) {
        return 0;
    }
    low += space->addr;
    high += space->addr;
    ml_node_from_pool(a, index);
    trim(a, index, low, high);
    a->driver.unmap(a->driver.self, low, high - low);
    node->mapped = 0;
    ml_node_merge(a, index, node->prev);
    ml_node_merge(a, index, node->next);
    ml_node_to_pool(a, index);
    a->figures.current.reserved -= high - low;
    a->figures.counters.of[ML_SOURCE_COUNTER_num_device_free]++;
    ml_allocator_stats_trace_node(a, ML_ACTION_SEGMENT_UNMAP, low, high - low, node);
    if (!ml_node_is_split(node)) {
        a->driver.release(a->driver.self, space->addr, space->size);
        space->size = 0;
        ml_node_from_pool(a, index);
        ml_node_drop(a, index);
    }
    return 0;
}
