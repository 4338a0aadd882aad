/* The lifetime of every block of one device: from which event to which, its bytes, and
 * what it is tagged as.
 *
 * Owns following the recording's tags: a tag at a position names the block that holds its
 * address there, for the whole of its lifetime.  The last tag of a block holds, but a
 * parameter stays one, and INPUT is only of a block without any other. */
#ifndef ML_LIVES_H
#define ML_LIVES_H

#include "ledger/replay/replay.h"
#include "recording/recording.h"

#define ML_NEVER UINT64_MAX

typedef struct ml_life {
    uint64_t birth; /* index of its allocation, or ML_NEVER: before the first event */
    uint64_t end;   /* index of its free, or ML_NEVER */
    uint64_t bytes; /* that it took when it was allocated; 0: not known */
    uint64_t allocated; /* bytes on the device right after its allocation */
    uint32_t name;      /* string: of its tag; 0: none */
    uint32_t module;    /* string: likewise */
    uint8_t tag;        /* enum ml_category, or ML_CATEGORY_COUNT for none */
} ml_life;

typedef struct ml_lives {
    ml_life *rows; /* owned; of the blocks that events allocated, in their order */
    size_t count;
    size_t capacity;
    /* Which events those are: a bit of each, and how many there are before each 64; owned. */
    uint64_t *allocates;
    uint32_t *rank;
    ml_life
        *before; /* owned; of the blocks in use before the first event, by address */
    uint64_t *before_addr; /* owned */
    size_t before_count;
    size_t next_tag; /* of the recording's, to be followed */
} ml_lives;

/* For who replays the events anyway: _begin before the first event, with which a later
 * _fini goes, _follow before each event and behind the last, _born right after the event at
 * INDEX, completed, was applied, if it allocates.  0 or ML_ENOMEM; after one of _begin there
 * is nothing to take down. */
int ml_lives_begin(ml_lives *lives, const ml_replay *replay,
                   const ml_device_trace *trace);
int ml_lives_follow(ml_lives *lives, const ml_replay *replay,
                    const ml_device_trace *trace);
void ml_lives_born(ml_lives *lives, size_t index, const ml_event *event,
                   uint64_t allocated);
void ml_lives_fini(ml_lives *lives);

/* The row of the block that event INDEX allocated, which does allocate. */
size_t ml_lives_row(const ml_lives *lives, uint64_t index);
/* Of the block from before the first event at ADDR; NULL: there was none. */
ml_life *ml_lives_before(const ml_lives *lives, uint64_t addr);

#endif
