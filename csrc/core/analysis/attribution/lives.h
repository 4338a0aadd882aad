/* The life of every block of one device: from which event to which, and what it is
 * tagged as.
 *
 * Owns following the recording's tags: a tag at a position names the block that holds its
 * address there, for the whole of its life.  The last tag of a block holds, but that a
 * parameter stays one, and that INPUT is only of a block without any other.  It must not know what else a block is. */
#ifndef ML_LIVES_H
#define ML_LIVES_H

#include "ledger/replay/replay.h"
#include "recording/recording.h"

#define ML_NEVER UINT64_MAX

typedef struct ml_life {
    uint64_t birth;  /* index of its allocation, or ML_NEVER: before the first event */
    uint64_t end;    /* index of its free, or ML_NEVER */
    uint32_t name;   /* string: of its tag; 0: none */
    uint32_t module; /* string: likewise */
    uint8_t tag;     /* enum ml_category, or ML_CATEGORY_COUNT for none */
} ml_life;

typedef struct ml_lives {
    ml_life *of_event; /* owned; of the block that each allocation made */
    size_t event_count;
    ml_life
        *before; /* owned; of the blocks in use before the first event, by address */
    uint64_t *before_addr; /* owned */
    size_t before_count;
    size_t next_tag; /* of the recording's, to be followed */
} ml_lives;

/* 0 or ML_ENOMEM. */
int ml_lives_init(ml_lives *lives, const ml_recording *recording, size_t device);
void ml_lives_fini(ml_lives *lives);

/* The same for who replays the events anyway: _begin before the first event, with which a
 * later _fini goes, then _follow before each one and behind the last.  0 or ML_ENOMEM, after
 * which there is nothing to take down. */
int ml_lives_begin(ml_lives *lives, const ml_replay *replay, size_t event_count);
void ml_lives_follow(ml_lives *lives, const ml_replay *replay,
                     const ml_device_trace *trace);

/* Of the block from before the first event at ADDR; NULL: there was none. */
ml_life *ml_lives_before(const ml_lives *lives, uint64_t addr);

#endif
