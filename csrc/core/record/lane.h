/* A lane: the newest events of one device or one thread, packed.
 *
 * Owns the order of the events, their packing, and the chunks that hold them; it does
 * not know what events mean.  A place in a lane is an ordinal: the number of events
 * pushed before it.  Chunks come from reserved address space as events arrive.  Once
 * the other chunks hold the wanted number of events, the oldest is used again.  So
 * memory use follows the number of kept events.
 *
 * One writer at a time, which touches plain memory only; a reader may run beside it. */
#ifndef ML_LANE_H
#define ML_LANE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/system/region.h"
#include "file/codec/chunk.h"
#include "memlab.h"

typedef struct ml_ring ml_ring;

/* All zeros to begin with. */
typedef struct ml_lane {
    _Atomic(ml_ring *) newest; /* owned, with the older rings; NULL: no room yet */
    _Atomic uint64_t head;     /* events pushed ever */
    _Atomic uint64_t wanted;   /* number of newest events to keep */
    /* Active readers: meanwhile no chunk is reused. */
    _Atomic uint32_t readers;
    _Atomic bool stale; /* all chunks so far were discarded */
    _Atomic bool claimed;
    /* The writer's own. */
    uint64_t chunks; /* begun ever */
    ml_chunk_writer writer;
    ml_pack state; /* base of the next record, for all its copies */
} ml_lane;

void ml_lane_fini(ml_lane *lane);

/* From now on the lane keeps at least the newest CAPACITY events.  If address space is
 * short, it keeps fewer.  A writer may run meanwhile.  Callers hold the recorder's
 * lock.  0 or ML_ENOMEM. */
int ml_lane_reserve(ml_lane *lane, uint64_t capacity);

/* Hot path.  Makes the caller the one writer, unless there is one: never waits. */
bool ml_lane_claim(ml_lane *lane);
void ml_lane_release(ml_lane *lane);

/* Hot path, for the one writer: the lane's claimant, or the holder of the lock that
 * orders the source's events.  Packs EVENT and keeps it.  0, or ML_EFULL
 * without memory and with nothing changed. */
int ml_lane_push(ml_lane *lane, const ml_event *event);
/* Hot path, as above, for an event that files keep, too.  *PACKED is its record, valid
 * until the next push, even if the lane has no room for it; its base is the lane's state
 * before. */
int ml_lane_push_shared(ml_lane *lane, const ml_event *event, ml_packed_event *packed);

/* The ordinal of the next event. */
uint64_t ml_lane_end(const ml_lane *lane);
/* The ordinal of the oldest kept event, at most ml_lane_end. */
uint64_t ml_lane_oldest(ml_lane *lane);
/* Bytes of memory that hold events. */
uint64_t ml_lane_bytes(ml_lane *lane);

/* Copies the events from ordinal START up to END into OUT, oldest first: of those kept,
 * the newest LIMIT.  Returns their number.  The writer may run meanwhile. */
size_t ml_lane_copy(ml_lane *lane, uint64_t start, uint64_t end, uint64_t limit,
                    ml_event *out);

/* Returns the memory to the system.  The events are lost, and none are wanted.  Only
 * while nothing reads; a late writer does no harm. */
void ml_lane_discard(ml_lane *lane);

#endif
