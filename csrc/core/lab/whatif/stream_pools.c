/* Finds the streams and memory pools of requests.  See stream_pools.h. */
#include "lab/whatif/stream_pools.h"

#include <string.h>

/* By segment at the end, the event that made it; 0: there from the start. */
static size_t *
find_comings(const ml_device_trace *trace)
{
    size_t *since = ml_alloc_zeroed(trace->segment_count + 1, sizeof(*since));
    size_t i = 0;
    while (since != NULL && trace->segment_count != 0 && i < trace->event_count) {
        i = ml_events_find_action(&trace->events, trace->event_count, i,
                                  ML_ACTION_SEGMENT_ALLOC);
        if (i == trace->event_count) {
            break;
        }
        uint64_t addr = ml_events_addr(&trace->events, i);
        size_t at = ml_find_address(trace->segments, sizeof(ml_segment),
                                    trace->segment_count, addr);
        if (at < trace->segment_count && trace->segments[at].addr == addr) {
            since[at] = i;
        }
        i++;
    }
    return since;
}

void
ml_stream_pools_fini(ml_stream_pools *pools)
{
    ml_free(pools->list);
    ml_free(pools->since);
    ml_intern_fini(&pools->interned);
    *pools = (ml_stream_pools){0};
}

typedef struct sought {
    const ml_stream_pool *list;
    ml_stream_pool of;
} sought;

static bool
is_sought(const void *context, uint32_t id)
{
    const sought *s = context;
    const ml_stream_pool *at = &s->list[id];
    return at->stream == s->of.stream && at->pool[0] == s->of.pool[0] &&
           at->pool[1] == s->of.pool[1];
}

static int
find_pool(ml_stream_pools *pools, ml_stream_pool of, uint32_t *number)
{
    sought s = {pools->list, of};
    *number = pools->last;
    if (*number < pools->count && is_sought(&s, *number)) {
        return 0;
    }
    uint64_t pool = (uint64_t)of.pool[0] << 32 | of.pool[1];
    uint64_t hash = ml_hash_u64(of.stream ^ ml_hash_u64(pool));
    if (ml_intern_find(&pools->interned, hash, is_sought, &s, number) == 0) {
        *number = (uint32_t)pools->count;
        void *list = pools->list;
        if (ml_grow(&list, &pools->capacity, pools->count + 1, sizeof(of)) < 0) {
            return ML_ENOMEM;
        }
        pools->list = list;
        if (ml_intern_add(&pools->interned, hash) < 0) {
            return ML_ENOMEM;
        }
        pools->list[pools->count++] = of;
    }
    pools->last = *number;
    return 0;
}

int
ml_stream_pools_init(ml_stream_pools *pools, const ml_device_trace *trace)
{
    *pools = (ml_stream_pools){.trace = trace, .since = find_comings(trace)};
    for (size_t i = 0; i < trace->segment_count; i++) {
        const ml_segment *segment = &trace->segments[i];
        pools->private_pools |= segment->pool[0] != 0 || segment->pool[1] != 0;
    }
    uint32_t number;
    int error = pools->since == NULL ? ML_ENOMEM
                                     : find_pool(pools, (ml_stream_pool){0}, &number);
    if (error < 0) {
        ml_stream_pools_fini(pools);
    }
    return error;
}

/* The last of COUNT SEGMENTS, by address, that begins at ADDR or below; NULL: none. */
static const ml_segment *
segment_at(const ml_segment *segments, size_t count, uint64_t addr)
{
    size_t at = ml_find_address(segments, sizeof(ml_segment), count, addr);
    if (at == count || segments[at].addr != addr) {
        return at == 0 ? NULL : &segments[at - 1];
    }
    return &segments[at];
}

int
ml_stream_pools_of_event(ml_stream_pools *pools, size_t index, const ml_event *event,
                         uint32_t *number)
{
    const ml_device_trace *trace = pools->trace;
    ml_stream_pool of = {.stream = event->stream};
    if ((event->flags & ML_EVENT_POOL_KNOWN) != 0) {
        memcpy(of.pool, event->pool, sizeof(of.pool));
        return find_pool(pools, of, number);
    }
    const ml_segment *segment =
        pools->private_pools
            ? segment_at(trace->segments, trace->segment_count, event->addr)
            : NULL;
    if (segment != NULL && pools->since[segment - trace->segments] <= index &&
        event->addr - segment->addr < segment->total) {
        of.pool[0] = (uint32_t)segment->pool[0];
        of.pool[1] = (uint32_t)segment->pool[1];
    }
    return find_pool(pools, of, number);
}

int
ml_stream_pools_of_block(ml_stream_pools *pools, const ml_segment *segments,
                         size_t count, uint64_t addr, uint32_t *number)
{
    const ml_segment *segment = segment_at(segments, count, addr);
    ml_stream_pool of = {0};
    if (segment != NULL) {
        of = (ml_stream_pool){
            .stream = segment->stream,
            .pool = {(uint32_t)segment->pool[0], (uint32_t)segment->pool[1]}};
    }
    return find_pool(pools, of, number);
}
