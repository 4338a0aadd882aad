/* The lifetimes of the blocks of one device: the moments between which each exists, its
 * bytes, and its tag.
 *
 * After any event the existing rows are the replay's blocks in use, to the byte, even
 * if events do not fit. segment_lifetimes.h follows the segments.
 *
 * A tag at a position names the block that holds its address there, for its whole
 * lifetime.  The last tag of a block counts.  Exceptions: a parameter stays one, and
 * INPUT is only for a block without any other tag. */
#ifndef ML_LIFETIMES_H
#define ML_LIFETIMES_H

#include "ledger/replay/replay.h"
#include "recording/recording.h"

/* Moments: 0 is before the first event, N after event N - 1. */
#define ML_NEVER UINT32_MAX
#define ML_LIFETIMES_EVENTS_MAX (UINT32_MAX - 2)

typedef struct ml_lifetime {
    uint64_t bytes; /* of the block; 0: the ledger had no room for it */
    union {
        uint64_t allocated; /* bytes on the device right after its allocation */
        uint64_t
            earlier; /* of a block from before the first event: its index among these */
    };
    uint32_t birth; /* moment of its allocation; 0: before the first event */
    uint32_t
        /* first moment of its existence; after BIRTH if another event cut the block */
        start;
    uint32_t requested; /* first moment when it is not allocated; ML_NEVER */
    uint32_t end;       /* first moment when it does not exist; ML_NEVER */
    uint32_t rest;   /* the row that continues it after another event cut it; 0: none */
    uint32_t name;   /* string: of its tag; 0: none */
    uint32_t module; /* string: likewise */
    uint8_t tag;     /* enum ml_category, or ML_CATEGORY_COUNT for none */
} ml_lifetime;

/* Facts about a block from before the first event, which no event has. */
typedef struct ml_earlier_block {
    uint64_t addr;
    uint64_t size; /* bytes asked for */
    uint64_t stream;
    uint32_t stack;
} ml_earlier_block;

/* A row changed by the event of another row. */
typedef struct ml_lifetime_change {
    uint32_t moment;
    uint32_t row;
} ml_lifetime_change;

typedef struct ml_reserved_change {
    uint32_t moment; /* first moment of the change */
    uint64_t bytes;
} ml_reserved_change;

/* A segment; of an expandable one, a piece mapped at once. */
typedef struct ml_segment_lifetime {
    uint64_t addr;
    uint64_t bytes;
    uint64_t stream;
    uint32_t start; /* as of rows */
    uint32_t end;
    uint32_t stack;
    bool expandable;
    bool small;
    bool private_pool;
} ml_segment_lifetime;

typedef struct ml_lifetimes {
    const ml_device_trace *trace; /* borrowed */
    ml_lifetime
        *rows; /* owned; by start, those from before the first event by address */
    size_t count;
    size_t capacity;
    /* Owned; by event: 1 + the row that it made or ended; 0: none.  Every allocation
     * has one. */
    uint32_t *of_event;
    ml_earlier_block *earlier; /* owned; of the first rows */
    size_t earlier_count;
    size_t earlier_capacity;
    ml_lifetime_change *changes; /* owned; by moment */
    size_t change_count;
    size_t change_capacity;
    ml_reserved_change *reserved; /* owned; by moment; the first is at 0 */
    size_t reserved_count;
    size_t reserved_capacity;
    ml_segment_lifetime *segments; /* owned; by start */
    size_t segment_count;
    size_t segment_capacity;
} ml_lifetimes;

typedef struct ml_lifetimes_work ml_lifetimes_work;

/* Begins to fill LIFETIMES, all zeros, from REPLAY, which is before the first event.
 * Both outlive *OUT.  Call ml_lifetimes_fini in any case.  0, ML_ELIMIT for more events
 * than moments, or ML_ENOMEM. */
int ml_lifetimes_begin(ml_lifetimes *lifetimes, const ml_device_trace *trace,
                       ml_replay *replay, ml_lifetimes_work **out);
/* Takes the next event. 1, 0 after the last, or ML_ENOMEM. */
int ml_lifetimes_next(ml_lifetimes_work *work);
void ml_lifetimes_end(ml_lifetimes_work *work); /* takes NULL */
void ml_lifetimes_fini(ml_lifetimes *lifetimes);

/* The first row of the block that event INDEX, an allocation, made. */
static inline size_t
ml_lifetimes_row(const ml_lifetimes *lifetimes, uint64_t index)
{
    return lifetimes->of_event[index] - 1;
}

/* Whether row INDEX is the first of its block. */
static inline bool
ml_lifetimes_is_first(const ml_lifetimes *lifetimes, size_t index)
{
    uint32_t birth = lifetimes->rows[index].birth;
    return birth == 0 ? index < lifetimes->earlier_count
                      : ml_lifetimes_row(lifetimes, birth - 1) == index;
}

/* The bytes that were asked for, for the block of LIFE; 0: the ledger had no room for it. */
static inline uint64_t
ml_lifetimes_requested(const ml_lifetimes *lifetimes, const ml_lifetime *life)
{
    if (life->birth != 0) {
        return ml_events_size(&lifetimes->trace->events, life->birth - 1);
    }
    return life->earlier < lifetimes->earlier_count
               ? lifetimes->earlier[life->earlier].size
               : 0;
}

/* The requested bytes of all blocks that are tagged as parameters, sorted.  SIZES becomes the
 * caller's.  0 or ML_ENOMEM. */
int ml_lifetimes_parameters(const ml_lifetimes *lifetimes, uint64_t **sizes,
                            size_t *count);

/* The first row of the block at ADDR from before the first event; SIZE_MAX without one. */
size_t ml_lifetimes_earlier(const ml_lifetimes *lifetimes, uint64_t addr);

/* The number of ROW. */
static inline size_t
ml_lifetimes_index(const ml_lifetimes *lifetimes, const ml_lifetime *row)
{
    return (size_t)(row - lifetimes->rows);
}

/* The request for the block of row INDEX: its bytes, address, stack and stream.  Always
 * inline: a caller reads what it uses of them alone. */
__attribute__((always_inline)) static inline ml_earlier_block
ml_lifetimes_request(const ml_lifetimes *lifetimes, size_t index)
{
    const ml_lifetime *row = &lifetimes->rows[index];
    if (row->birth == 0) {
        return lifetimes->earlier[row->earlier];
    }
    const ml_events *events = &lifetimes->trace->events;
    size_t event = row->birth - 1;
    return (ml_earlier_block){.addr = ml_events_addr(events, event),
                              .size = ml_events_size(events, event),
                              .stream = ml_events_stream(events, event),
                              .stack = ml_events_stack(events, event)};
}

/* ROW; or, if other events cut it, the last row of its block. */
const ml_lifetime *ml_lifetime_last(const ml_lifetimes *lifetimes,
                                    const ml_lifetime *row);

#endif
