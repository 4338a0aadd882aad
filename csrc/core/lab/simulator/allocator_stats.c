/* The output of the allocator model: the events that it would trace, totals and their
 * peaks. */
#include "lab/simulator/allocator_parts.h"

const ml_allocator_stats *
ml_allocator_get_stats(const ml_allocator *a)
{
    return &a->figures;
}

void
ml_allocator_stats_trace(ml_allocator *a, unsigned action, uint64_t addr, uint64_t size,
                         uint64_t stream, uint32_t pool, uint64_t block_bytes)
{
    a->figures.events++;
    if (a->driver.event == NULL) {
        return;
    }
    ml_event event = {0};
    event.action = (uint8_t)action;
    event.addr = addr;
    event.size = size;
    event.stream = stream;
    event.pool[0] = a->pools[pool].id[0];
    event.pool[1] = a->pools[pool].id[1];
    event.block_bytes = block_bytes;
    event.flags = ML_EVENT_POOL_KNOWN;
    if (block_bytes != 0) {
        event.flags |= ML_EVENT_BLOCK_KNOWN;
    }
    a->driver.event(a->driver.self, &event);
}

void
ml_allocator_stats_trace_node(ml_allocator *a, unsigned action, uint64_t addr,
                              uint64_t size, const ml_node *node)
{
    ml_allocator_stats_trace(a, action, addr, size, node->stream, node->pool, 0);
}

void
ml_allocator_stats_trace_block(ml_allocator *a, unsigned action, const ml_node *node)
{
    ml_allocator_stats_trace(a, action, node->addr, node->requested, node->stream,
                             node->pool, node->size);
}

static inline void
raise_to(uint64_t *peak, uint64_t value)
{
    if (value > *peak) {
        *peak = value;
    }
}

void
ml_allocator_stats_reserved_grew(ml_allocator *a, uint64_t bytes)
{
    a->figures.current.reserved += bytes;
    raise_to(&a->figures.peak.reserved, a->figures.current.reserved);
}

void
ml_allocator_stats_inactive_split_grew(ml_allocator *a, uint64_t bytes)
{
    a->figures.inactive_split += bytes;
    raise_to(&a->figures.inactive_split_peak, a->figures.inactive_split);
}

void
ml_allocator_stats_count_allocated(ml_allocator *a, const ml_node *node)
{
    ml_totals *current = &a->figures.current, *peak = &a->figures.peak;
    current->allocated += node->size;
    current->active += node->size;
    current->requested += node->requested;
    raise_to(&peak->allocated, current->allocated);
    raise_to(&peak->active, current->active);
    raise_to(&peak->requested, current->requested);
}
