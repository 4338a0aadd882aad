/* The allocator's counts of a device: the figures of torch.cuda.memory_stats() with a
 * current value, a peak, and sums added and taken.
 *
 * Owns their names and order. */
#ifndef ML_POOL_STATS_H
#define ML_POOL_STATS_H

#include <stdint.h>

/* Bytes if the name says so, else items; torch's names and order.  The last two are of
 * blocks and segments from max_split_size on, which torch does not count by pool. */
#define ML_POOL_STATS(XX) \
    XX(allocation) \
    XX(segment) \
    XX(active) \
    XX(inactive_split) \
    XX(allocated_bytes) \
    XX(reserved_bytes) \
    XX(active_bytes) \
    XX(inactive_split_bytes) \
    XX(requested_bytes) \
    XX(oversize_allocations) \
    XX(oversize_segments)

enum ml_pool_stat {
#define XX(name) ML_POOL_STAT_##name,
    ML_POOL_STATS(XX)
#undef XX
    ML_POOL_STAT_MAX
};

/* The pools that torch counts separately. */
enum ml_pool {
    ML_POOL_LARGE,
    ML_POOL_SMALL, /* blocks up to 1 MiB */
    ML_POOL_MAX
};

typedef struct ml_pool_stats {
    uint64_t of[ML_POOL_MAX][ML_POOL_STAT_MAX];
} ml_pool_stats;

#endif
