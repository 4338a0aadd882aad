/* A lane: the ring of the newest events of one device or one thread.  See lane.h. */
#include "lane.h"

#include "base.h"

/* Fewer would overwrite within one training step of a small model. */
#define RING_MINIMUM 1024u
/* 2^26 events: 4 GiB of address space, touched only as events come. */
#define RING_MAXIMUM (UINT64_C(1) << 26)

#define WORDS (sizeof(ml_event) / sizeof(uint64_t))

_Static_assert(sizeof(ml_event) == 80 && offsetof(ml_event, flags) == 79,
               "the commit bit is in the last word of a record of whole words");

/* A record as its fields, and as the words that writer and reader exchange. */
typedef union slot {
    ml_event event;
    _Atomic uint64_t words[WORDS];
} slot;

struct ml_ring {
    ml_ring *older; /* owned */
    ml_region region;
    slot *slots;           /* in region */
    uint64_t capacity;     /* a power of two */
    _Atomic uint64_t head; /* events ever begun in this ring */
};

static uint64_t
power_of_two(uint64_t value)
{
    uint64_t power = RING_MINIMUM;
    while (power < value && power < RING_MAXIMUM) {
        power *= 2;
    }
    return power;
}

void
ml_lane_fini(ml_lane *lane)
{
    ml_ring *ring = atomic_load(&lane->newest);
    atomic_store(&lane->newest, NULL);
    while (ring != NULL) {
        ml_ring *older = ring->older;
        ml_region_fini(&ring->region);
        ml_free(ring);
        ring = older;
    }
}

int
ml_lane_reserve(ml_lane *lane, uint64_t capacity)
{
    ml_ring *newest = atomic_load(&lane->newest);
    uint64_t wanted = power_of_two(capacity);
    if (newest != NULL && newest->capacity >= wanted) {
        return 0;
    }
    ml_ring *ring = ml_alloc_zeroed(1, sizeof(*ring));
    if (ring == NULL) {
        return ML_ENOMEM;
    }
    if (ml_region_init(&ring->region, (size_t)wanted * sizeof(ml_event),
                       RING_MINIMUM * sizeof(ml_event)) < 0) {
        ml_free(ring);
        return ML_ENOMEM;
    }
    ring->slots = ring->region.base;
    ring->capacity = RING_MINIMUM;
    while (ring->capacity * 2 * sizeof(ml_event) <= ring->region.bytes) {
        ring->capacity *= 2;
    }
    if (newest != NULL && ring->capacity <= newest->capacity) {
        /* Address space is short: what there is already is the best to be had. */
        ml_region_fini(&ring->region);
        ml_free(ring);
        return 0;
    }
    ring->older = newest;
    atomic_store_explicit(&lane->newest, ring, memory_order_release);
    return 0;
}

static slot *
slot_at(const ml_ring *ring, uint64_t index)
{
    return &ring->slots[index & (ring->capacity - 1)];
}

/* A reader must never take the old record's commit bit for the new one's: the last word
 * is cleared before the others change, and written whole after them. */
static void
write_record(slot *to, const ml_event *event)
{
    slot whole = {.event = *event};
    whole.event.flags |= ML_EVENT_COMMITTED;
    atomic_store_explicit(&to->words[WORDS - 1], 0, memory_order_relaxed);
    for (size_t i = 0; i < WORDS; i++) {
        uint64_t word = atomic_load_explicit(&whole.words[i], memory_order_relaxed);
        atomic_store_explicit(&to->words[i], word, memory_order_release);
    }
}

/* Whether OUT now holds the whole record that lies at FROM. */
static bool
read_record(const slot *from, ml_event *out)
{
    slot copy;
    uint64_t last = atomic_load_explicit(&from->words[WORDS - 1], memory_order_acquire);
    for (size_t i = 0; i < WORDS - 1; i++) {
        uint64_t word = atomic_load_explicit(&from->words[i], memory_order_acquire);
        atomic_store_explicit(&copy.words[i], word, memory_order_relaxed);
    }
    atomic_store_explicit(&copy.words[WORDS - 1], last, memory_order_relaxed);
    *out = copy.event;
    out->flags &= (uint8_t)~ML_EVENT_COMMITTED;
    uint64_t again =
        atomic_load_explicit(&from->words[WORDS - 1], memory_order_relaxed);
    return (copy.event.flags & ML_EVENT_COMMITTED) && again == last;
}

int
ml_lane_push(ml_lane *lane, const ml_event *event)
{
    ml_ring *ring = atomic_load_explicit(&lane->newest, memory_order_acquire);
    if (ring == NULL) {
        return -1;
    }
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    write_record(slot_at(ring, head), event);
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return 0;
}

int
ml_lane_push_shared(ml_lane *lane, const ml_event *event)
{
    ml_ring *ring = atomic_load_explicit(&lane->newest, memory_order_acquire);
    if (ring == NULL) {
        return -1;
    }
    uint64_t head = atomic_fetch_add_explicit(&ring->head, 1, memory_order_acq_rel);
    write_record(slot_at(ring, head), event);
    return 0;
}

ml_lane_mark
ml_lane_end(const ml_lane *lane)
{
    ml_lane_mark mark = {atomic_load(&lane->newest), 0};
    if (mark.ring != NULL) {
        mark.index = atomic_load(&mark.ring->head);
    }
    return mark;
}

uint64_t
ml_lane_distance(ml_lane_mark from, ml_lane_mark to)
{
    uint64_t distance = to.index;
    const ml_ring *ring = to.ring;
    while (ring != NULL && ring != from.ring) {
        ring = ring->older;
        if (ring != NULL) {
            distance += atomic_load_explicit(&ring->head, memory_order_acquire);
        }
    }
    return ring != NULL ? distance - from.index : distance;
}

bool
ml_lane_passed(const ml_lane *lane, ml_lane_mark mark)
{
    ml_ring *newest = atomic_load_explicit(&lane->newest, memory_order_acquire);
    for (ml_ring *ring = newest; ring != NULL; ring = ring->older) {
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
        uint64_t from = ring == mark.ring ? mark.index : 0;
        if (head > from + ring->capacity) {
            return true;
        }
        if (ring == mark.ring) {
            break;
        }
    }
    return false;
}

ml_event *
ml_lane_next(ml_lane *lane, ml_lane_mark *mark)
{
    for (;;) {
        ml_ring *ring = mark->ring;
        if (ring == NULL) {
            return NULL;
        }
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
        if (mark->index < head) {
            return &slot_at(ring, mark->index++)->event;
        }
        /* On to the ring in front of this one, if there is one. */
        ml_ring *newer = atomic_load_explicit(&lane->newest, memory_order_acquire);
        if (newer == ring) {
            return NULL;
        }
        while (newer->older != ring) {
            newer = newer->older;
        }
        *mark = (ml_lane_mark){newer, 0};
    }
}

/* Copies the events [from, to) of one ring, leaving out those that a writer has begun to
 * overwrite or not finished.  Returns the number copied to OUT. */
static size_t
copy_ring(const ml_ring *ring, uint64_t from, uint64_t to, ml_event *out)
{
    size_t count = 0;
    for (uint64_t i = from; i < to; i++) {
        bool whole = read_record(slot_at(ring, i), &out[count]);
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        bool overwritten = head > i + ring->capacity;
        count += whole && !overwritten;
    }
    return count;
}

size_t
ml_lane_copy(ml_lane_mark start, ml_lane_mark end, uint64_t limit, ml_event *out)
{
    /* Rings from the newest back to the one that holds START; few, since each is at
     * least twice its elder. */
    const ml_ring *rings[64];
    uint64_t from[64], to[64];
    size_t depth = 0;
    uint64_t room = limit;
    for (const ml_ring *ring = end.ring; ring != NULL && depth < 64 && room > 0;
         ring = ring->older) {
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        uint64_t first = ring == start.ring ? start.index : 0;
        if (head > first + ring->capacity) {
            first = head - ring->capacity;
        }
        uint64_t last = ring == end.ring ? end.index : head;
        uint64_t have = last > first ? last - first : 0;
        have = have < room ? have : room;
        room -= have;
        rings[depth] = ring;
        from[depth] = last - have;
        to[depth] = last;
        depth++;
        if (ring == start.ring) {
            break;
        }
    }
    size_t count = 0;
    while (depth-- > 0) {
        count += copy_ring(rings[depth], from[depth], to[depth], out + count);
    }
    return count;
}

void
ml_lane_discard(ml_lane *lane)
{
    for (ml_ring *ring = atomic_load(&lane->newest); ring != NULL; ring = ring->older) {
        ml_region_discard(&ring->region);
    }
}
