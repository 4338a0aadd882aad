/* Merges the events of an unordered source into one history, and finds the memory at
 * its end.  See unordered_events.h. */
#include "ledger/replay/unordered_events.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "ledger/ledger.h" /* ML_SMALL_BLOCK_BYTES */

/* ---- Events ---- */

/* The two events of a free have the same time, and may be in two lanes. */
static bool
comes_before(const ml_event *a, const ml_event *b)
{
    if (a->time != b->time || a->addr != b->addr) {
        return a->time < b->time;
    }
    return a->action == ML_ACTION_FREE_REQUESTED &&
           b->action == ML_ACTION_FREE_COMPLETED;
}

/* A stable merge sort: events of one lane with the same time keep their order, which
 * qsort does not promise.  0 or ML_ENOMEM. */
int
ml_unordered_events_sort(ml_event *events, size_t count)
{
    ml_event *other = ml_alloc_zeroed(count + 1, sizeof(*other));
    if (other == NULL) {
        return ML_ENOMEM;
    }
    ml_event *from = events, *to = other;
    for (size_t run = 1; run < count; run *= 2) {
        for (size_t start = 0; start < count; start += 2 * run) {
            size_t middle = start + run < count ? start + run : count;
            size_t end = start + 2 * run < count ? start + 2 * run : count;
            size_t left = start, right = middle;
            for (size_t i = start; i < end; i++) {
                bool take_left =
                    left < middle &&
                    (right >= end || !comes_before(&from[right], &from[left]));
                to[i] = take_left ? from[left++] : from[right++];
            }
        }
        ml_event *swap = from;
        from = to;
        to = swap;
    }
    if (from != events) {
        memcpy(events, from, count * sizeof(*events));
    }
    ml_free(other);
    return 0;
}

/* ---- Memory ---- */

/* Addresses whose state is decided, and the live segments. */
typedef struct settled {
    ml_intern table;
    uint64_t *addresses; /* owned; by id of the table */
    size_t capacity;
    ml_segment *segments; /* owned */
    size_t segment_count;
    size_t segment_capacity;
} settled;

typedef struct named_address {
    const settled *among;
    uint64_t addr;
} named_address;

static bool
has_address(const void *context, uint32_t id)
{
    const named_address *wanted = context;
    return wanted->among->addresses[id] == wanted->addr;
}

/* 1: ADDR was decided before; 0: it is from now on; or ML_E*. */
static int
mark_decided(settled *all, uint64_t addr)
{
    named_address wanted = {all, addr};
    uint64_t hash = ml_hash_u64(addr);
    uint32_t id;
    if (ml_intern_find(&all->table, hash, has_address, &wanted, &id)) {
        return 1;
    }
    int result = ml_grow((void **)&all->addresses, &all->capacity, all->table.count + 1,
                         sizeof(*all->addresses));
    if (result == 0) {
        all->addresses[all->table.count] = addr;
        result = ml_intern_add(&all->table, hash);
    }
    return result;
}

static int
add_segment(settled *all, const ml_segment *segment)
{
    if (segment->total > UINT64_MAX - segment->addr) {
        /* No memory ends there: a forged file. */
        return 0;
    }
    int result = ml_grow((void **)&all->segments, &all->segment_capacity,
                         all->segment_count + 1, sizeof(*segment));
    if (result == 0) {
        all->segments[all->segment_count++] = *segment;
    }
    return result;
}

/* The segment left by EVENT, the last of its address. */
static ml_segment
segment_after(const ml_event *event)
{
    uint64_t size = event->block_bytes != 0 ? event->block_bytes : event->size;
    bool pending = event->action == ML_ACTION_FREE_REQUESTED;
    return (ml_segment){.addr = event->addr,
                        .total = size,
                        .allocated = pending ? 0 : size,
                        .active = size,
                        .requested = event->size,
                        .stream = event->stream,
                        .stack = pending ? event->origin_stack : event->stack,
                        .small = size <= ML_SMALL_BLOCK_BYTES};
}

static int
settle_all(settled *all, const ml_device_trace *trace)
{
    int result = 0;
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events, ML_EVENT_ALL);
    for (size_t i = trace->event_count; i-- > 0 && result >= 0;) {
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        if (event->action > ML_ACTION_FREE_COMPLETED) {
            continue;
        }
        result = mark_decided(all, event->addr);
        if (result == 0 && event->action != ML_ACTION_FREE_COMPLETED) {
            ml_segment segment = segment_after(event);
            result = add_segment(all, &segment);
        }
    }
    /* The walk may have met an address twice, freed and allocated again in between: the
     * later one counts. */
    for (size_t i = trace->segment_count; i-- > 0 && result >= 0;) {
        result = mark_decided(all, trace->segments[i].addr);
        if (result == 0) {
            result = add_segment(all, &trace->segments[i]);
        }
    }
    return result < 0 ? result : 0;
}

static int
compare_segments(const void *a, const void *b)
{
    uint64_t left = ((const ml_segment *)a)->addr;
    uint64_t right = ((const ml_segment *)b)->addr;
    return (left > right) - (left < right);
}

/* Every block of such a source is a segment of its own. */
static ml_block *
blocks_of(ml_segment *segments, size_t count)
{
    ml_block *blocks = ml_alloc_zeroed(count + 1, sizeof(*blocks));
    for (size_t i = 0; blocks != NULL && i < count; i++) {
        ml_segment *segment = &segments[i];
        blocks[i] =
            (ml_block){.addr = segment->addr,
                       .size = segment->total,
                       .requested = segment->requested,
                       .stack = segment->stack,
                       .state = segment->allocated != 0 ? ML_BLOCK_ALLOCATED
                                                        : ML_BLOCK_PENDING_FREE};
        segment->first_block = i;
        segment->block_count = 1;
    }
    return blocks;
}

int
ml_unordered_events_end_memory(ml_device_trace *trace)
{
    settled all = {0};
    int result = settle_all(&all, trace);
    ml_block *blocks = NULL;
    if (result == 0) {
        if (all.segment_count > 0) {
            qsort(all.segments, all.segment_count, sizeof(*all.segments),
                  compare_segments);
        }
        blocks = blocks_of(all.segments, all.segment_count);
        result = blocks != NULL ? 0 : ML_ENOMEM;
    }
    ml_intern_fini(&all.table);
    ml_free(all.addresses);
    if (result < 0) {
        ml_free(all.segments);
        return result;
    }
    ml_free(trace->segments);
    ml_free(trace->blocks);
    trace->segments = all.segments;
    trace->segment_count = all.segment_count;
    trace->blocks = blocks;
    trace->block_count = all.segment_count;
    return 0;
}
