/* Where requests go: the streams and memory pools of a device, each pair once.
 *
 * An event may lack its pool.  It is then that of the final segment at its address, unless
 * that segment came later. */
#ifndef ML_STREAM_POOLS_H
#define ML_STREAM_POOLS_H

#include <stdbool.h>

#include "base/base.h"
#include "recording/recording.h"

typedef struct ml_stream_pool {
    uint64_t stream;
    uint32_t pool[2]; /* memory pool id */
} ml_stream_pool;

typedef struct ml_stream_pools {
    /* Owned.  The first is stream 0 and the default pool, of a demand without more. */
    ml_stream_pool *list;
    size_t count;
    size_t capacity;
    uint32_t last; /* index of the one found last */
    ml_intern interned;
    const ml_device_trace *trace; /* borrowed */
    /* Owned; by segment at the end, the event that made it; 0: there from the start. */
    size_t *since;
    bool
        private_pools; /* a segment at the end is of another pool than the default one */
} ml_stream_pools;

/* 0, or ML_ENOMEM with nothing to free. */
int ml_stream_pools_init(ml_stream_pools *pools, const ml_device_trace *trace);
void ml_stream_pools_fini(ml_stream_pools *pools);

/* Each sets *NUMBER to the index of the pair, which is added if it is new.  0 or
 * ML_ENOMEM. */
/* Of EVENT, which is event INDEX. */
int ml_stream_pools_of_event(ml_stream_pools *pools, size_t index,
                             const ml_event *event, uint32_t *number);
/* Of the block at ADDR in one of COUNT SEGMENTS, by address. */
int ml_stream_pools_of_block(ml_stream_pools *pools, const ml_segment *segments,
                             size_t count, uint64_t addr, uint32_t *number);

#endif
