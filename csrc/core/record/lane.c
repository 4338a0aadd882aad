/* Keeps the newest events of one device or one thread.  See lane.h. */
#include "record/lane.h"

#include "base/base.h"

/* Small, so that the partly unwanted oldest chunk wastes little; large, so that its
 * header and state cost little. */
#define CHUNK_BYTES (UINT32_C(16) << 10)

/* The longest record: 100 bytes with its context, and its share of a chunk's header,
 * state and unused end.  With it, the promised number holds for any events. */
#define RECORD_BYTES 104u

/* Chunks beside those with wanted events: the partly wanted oldest one, and chunks to
 * write while a paused reader prevents reuse.  With none left, events are dropped and
 * counted. */
#define SPARE_CHUNKS 64u

/* A smaller ring would overwrite events within one training step of a small model. */
#define RING_MINIMUM 1024u
/* 2^26 events: 6.5 GiB of address space, touched only as events come. */
#define RING_MAXIMUM (UINT64_C(1) << 26)

/* Reserved address space with slots for chunks.  Chunks are numbered; `places` has
 * each one's slot.  In the order of numbers: reuse .. oldest are no longer wanted,
 * and their slots are free; oldest .. newest are readable, and the last of them is
 * being written. */
struct ml_ring {
    ml_ring *older; /* owned */
    ml_region region;
    uint64_t events; /* as many as it was made for */
    uint32_t place_count;
    uint32_t used; /* slots ever taken; the writer's */
    _Atomic uint64_t reuse;
    _Atomic uint64_t oldest;
    _Atomic uint64_t newest;   /* one past it */
    _Atomic uint32_t places[]; /* by number % place_count */
};

static ml_chunk *
chunk_at(const ml_ring *ring, uint64_t number)
{
    uint32_t place = atomic_load_explicit(&ring->places[number % ring->place_count],
                                          memory_order_relaxed);
    return (ml_chunk *)(void *)((char *)ring->region.base +
                                (size_t)place * CHUNK_BYTES);
}

/* ---- Life ---- */

void
ml_lane_fini(ml_lane *lane)
{
    ml_ring *ring = atomic_load(&lane->newest);
    atomic_store(&lane->newest, NULL);
    lane->writer.chunk = NULL;
    lane->writer.at = lane->writer.end = NULL;
    while (ring != NULL) {
        ml_ring *older = ring->older;
        ml_region_fini(&ring->region);
        ml_free(ring);
        ring = older;
    }
}

static size_t
bytes_for(uint64_t events)
{
    return ((size_t)events * RECORD_BYTES / CHUNK_BYTES + SPARE_CHUNKS) * CHUNK_BYTES;
}

/* A ring for EVENTS, or as many as address space allows; NULL if that is no more than
 * EXCEED.  0 or ML_ENOMEM. */
static int
new_ring(uint64_t events, uint64_t exceed, ml_ring **out)
{
    ml_region region;
    *out = NULL;
    if (ml_region_init(&region, bytes_for(events), bytes_for(RING_MINIMUM)) < 0) {
        return exceed > 0 ? 0 : ML_ENOMEM;
    }
    size_t places = region.bytes / CHUNK_BYTES;
    events = (places - SPARE_CHUNKS) * CHUNK_BYTES / RECORD_BYTES;
    if (events <= exceed) {
        ml_region_fini(&region);
        return 0;
    }
    ml_ring *ring =
        ml_alloc_zeroed(1, sizeof(*ring) + places * sizeof(ring->places[0]));
    if (ring == NULL) {
        ml_region_fini(&region);
        return ML_ENOMEM;
    }
    ring->region = region;
    ring->events = events;
    ring->place_count = (uint32_t)places;
    *out = ring;
    return 0;
}

int
ml_lane_reserve(ml_lane *lane, uint64_t capacity)
{
    ml_ring *newest = atomic_load(&lane->newest);
    uint64_t events = RING_MINIMUM;
    while (events < capacity && events < RING_MAXIMUM) {
        events *= 2;
    }
    if (newest == NULL || newest->events < events) {
        ml_ring *ring;
        int result = new_ring(events, newest != NULL ? newest->events : 0, &ring);
        if (result < 0) {
            return result;
        }
        /* Otherwise address space is short, and the existing ring is the best
         * possible. */
        if (ring != NULL) {
            ring->older = newest;
            atomic_store_explicit(&lane->newest, ring, memory_order_release);
        }
    }
    if (atomic_load(&lane->wanted) < capacity) {
        atomic_store(&lane->wanted, capacity);
    }
    return 0;
}

void
ml_lane_discard(ml_lane *lane)
{
    atomic_store(&lane->wanted, 0);
    for (ml_ring *ring = atomic_load(&lane->newest); ring != NULL; ring = ring->older) {
        ml_region_discard(&ring->region);
    }
    /* Last: a late writer that sees it begins a chunk that is not discarded. */
    atomic_store(&lane->stale, true);
}

/* ---- Writing ---- */

bool
ml_lane_claim(ml_lane *lane)
{
    bool claimed = false;
    return !atomic_load_explicit(&lane->claimed, memory_order_relaxed) &&
           atomic_compare_exchange_strong_explicit(&lane->claimed, &claimed, true,
                                                   memory_order_acquire,
                                                   memory_order_relaxed);
}

void
ml_lane_release(ml_lane *lane)
{
    atomic_store_explicit(&lane->claimed, false, memory_order_release);
}

/* The number of the oldest chunk that is still wanted. */
static uint64_t
oldest_wanted(const ml_lane *lane, const ml_ring *ring, uint64_t newest)
{
    uint64_t oldest = atomic_load_explicit(&ring->oldest, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&lane->head, memory_order_relaxed);
    uint64_t wanted = atomic_load_explicit(&lane->wanted, memory_order_relaxed);
    while (oldest + 1 < newest && head - chunk_at(ring, oldest + 1)->first >= wanted) {
        oldest++;
    }
    return oldest;
}

/* A slot for the next chunk of RING; false: none. */
static bool
take_place(ml_lane *lane, ml_ring *ring, uint64_t newest, uint32_t *place)
{
    uint64_t reuse = atomic_load_explicit(&ring->reuse, memory_order_relaxed);
    uint64_t oldest = oldest_wanted(lane, ring, newest);
    bool fresh = ring->used < ring->place_count;
    if (!fresh && oldest == reuse && oldest < newest) {
        oldest++;
    }
    /* ml_lane_copy counts itself before it looks for the oldest chunk.  Either its
     * count is seen here, or it sees this store. */
    atomic_store(&ring->oldest, oldest);
    if (reuse < oldest && atomic_load(&lane->readers) == 0) {
        *place = atomic_load_explicit(&ring->places[reuse % ring->place_count],
                                      memory_order_relaxed);
        atomic_store_explicit(&ring->reuse, reuse + 1, memory_order_relaxed);
        return true;
    }
    if (fresh) {
        *place = ring->used++;
    }
    return fresh;
}

/* All chunks so far were discarded: their events are gone, and their slots are free. */
static void
restart(ml_lane *lane)
{
    atomic_store_explicit(&lane->stale, false, memory_order_relaxed);
    lane->writer.chunk = NULL;
    lane->writer.at = lane->writer.end = NULL;
    ml_ring *ring = atomic_load_explicit(&lane->newest, memory_order_acquire);
    for (; ring != NULL; ring = ring->older) {
        uint64_t newest = atomic_load_explicit(&ring->newest, memory_order_relaxed);
        atomic_store(&ring->oldest, newest);
    }
}

/* False: the lane has no memory. */
static bool
begin_chunk(ml_lane *lane)
{
    ml_ring *ring = atomic_load_explicit(&lane->newest, memory_order_acquire);
    if (ring == NULL) {
        return false;
    }
    uint64_t number = atomic_load_explicit(&ring->newest, memory_order_relaxed);
    uint32_t place;
    if (!take_place(lane, ring, number, &place)) {
        return false;
    }
    atomic_store_explicit(&ring->places[number % ring->place_count], place,
                          memory_order_relaxed);
    ml_chunk like = {.bytes = CHUNK_BYTES,
                     .index = lane->chunks++,
                     .first = atomic_load_explicit(&lane->head, memory_order_relaxed)};
    ml_chunk_begin(&lane->writer, chunk_at(ring, number), &like);
    ml_chunk_push_state(&lane->writer, &lane->state);
    atomic_store_explicit(&ring->newest, number + 1, memory_order_release);
    return true;
}

static ML_RARE int
push_to_new_chunk(ml_lane *lane, const ml_event *event)
{
    if (atomic_load_explicit(&lane->stale, memory_order_relaxed)) {
        restart(lane);
    }
    return begin_chunk(lane) ? ml_chunk_push(&lane->writer, &lane->state, event)
                             : ML_EFULL;
}

int
ml_lane_push(ml_lane *lane, const ml_event *event)
{
    if ((atomic_load_explicit(&lane->stale, memory_order_relaxed) ||
         ml_chunk_push(&lane->writer, &lane->state, event) != 0) &&
        push_to_new_chunk(lane, event) != 0) {
        return ML_EFULL;
    }
    uint64_t head = atomic_load_explicit(&lane->head, memory_order_relaxed);
    atomic_store_explicit(&lane->head, head + 1, memory_order_release);
    return 0;
}

int
ml_lane_push_shared(ml_lane *lane, const ml_event *event, ml_packed_event *packed)
{
    packed->bytes = lane->writer.at;
    uint64_t chunks = lane->chunks;
    if (ml_lane_push(lane, event) != 0) {
        packed->bytes = packed->spare;
        packed->length = ml_pack_event(&lane->state, event, packed->spare);
        return ML_EFULL;
    }
    if (lane->chunks != chunks) {
        packed->bytes = (uint8_t *)(lane->writer.chunk + 1) + ML_PACK_STATE_BYTES;
    }
    packed->length = (size_t)(lane->writer.at - packed->bytes);
    return 0;
}

/* ---- Reading ---- */

uint64_t
ml_lane_end(const ml_lane *lane)
{
    return atomic_load_explicit(&lane->head, memory_order_acquire);
}

static void
begin_reading(ml_lane *lane)
{
    atomic_fetch_add(&lane->readers, 1);
}

static void
end_reading(ml_lane *lane)
{
    atomic_fetch_sub_explicit(&lane->readers, 1, memory_order_release);
}

/* The readable chunks of a ring. */
typedef struct readable {
    const ml_ring *ring;
    uint64_t oldest;
    uint64_t newest;
} readable;

/* The readable chunks of LANE, without gaps between their events, the newest ring
 * first.  Each ring is at least twice the one before it, so there are few.  Between
 * _begin and _end. */
#define RINGS_MOST 32u

static size_t
readable_rings(const ml_lane *lane, readable out[RINGS_MOST])
{
    size_t depth = 0;
    uint64_t oldest = 0;
    const ml_ring *ring = atomic_load_explicit(&lane->newest, memory_order_acquire);
    for (; ring != NULL && oldest == 0 && depth < RINGS_MOST; ring = ring->older) {
        oldest = atomic_load(&ring->oldest);
        uint64_t newest = atomic_load_explicit(&ring->newest, memory_order_acquire);
        if (oldest < newest) {
            out[depth++] = (readable){ring, oldest, newest};
        }
    }
    return depth;
}

uint64_t
ml_lane_oldest(ml_lane *lane)
{
    readable rings[RINGS_MOST];
    begin_reading(lane);
    uint64_t ordinal = ml_lane_end(lane);
    size_t depth = atomic_load(&lane->stale) ? 0 : readable_rings(lane, rings);
    if (depth > 0) {
        ordinal = chunk_at(rings[depth - 1].ring, rings[depth - 1].oldest)->first;
    }
    end_reading(lane);
    return ordinal;
}

uint64_t
ml_lane_bytes(ml_lane *lane)
{
    readable rings[RINGS_MOST];
    uint64_t bytes = 0;
    begin_reading(lane);
    size_t depth = atomic_load(&lane->stale) ? 0 : readable_rings(lane, rings);
    for (size_t i = 0; i < depth; i++) {
        bytes += (rings[i].newest - rings[i].oldest) * CHUNK_BYTES;
    }
    if (depth > 0) {
        const ml_chunk *newest = chunk_at(rings[0].ring, rings[0].newest - 1);
        uint64_t commit = atomic_load_explicit(&newest->commit, memory_order_acquire);
        bytes -= CHUNK_BYTES - sizeof(*newest) - (commit & UINT32_MAX);
    }
    end_reading(lane);
    return bytes;
}

/* The events of CHUNK with ordinals from START up to END; the number copied to OUT. */
static size_t
copy_chunk(const ml_chunk *chunk, uint64_t start, uint64_t end, ml_event *out)
{
    ml_chunk_reader reader;
    ml_chunk header;
    if (ml_chunk_open(&reader, chunk, CHUNK_BYTES, &header) < 0) {
        return 0;
    }
    size_t count = 0;
    ml_packed_other other;
    for (uint64_t ordinal = header.first; ordinal < end; ordinal++) {
        /* The next event overwrites events before START. */
        if (ml_chunk_next(&reader, &out[count], &other) != ML_PACKED_EVENT) {
            break;
        }
        count += ordinal >= start;
    }
    return count;
}

size_t
ml_lane_copy(ml_lane *lane, uint64_t start, uint64_t end, uint64_t limit, ml_event *out)
{
    if (start >= end || limit == 0) {
        return 0;
    }
    start = end - start > limit ? end - limit : start;
    readable rings[RINGS_MOST];
    begin_reading(lane);
    size_t depth = readable_rings(lane, rings);
    size_t count = 0;
    while (depth-- > 0) {
        const readable *at = &rings[depth];
        for (uint64_t i = at->oldest; i < at->newest; i++) {
            const ml_chunk *chunk = chunk_at(at->ring, i);
            if (i + 1 < at->newest && chunk_at(at->ring, i + 1)->first <= start) {
                continue;
            }
            count += copy_chunk(chunk, start, end, out + count);
        }
    }
    end_reading(lane);
    return count;
}
