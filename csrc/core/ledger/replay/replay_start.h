/* The start of replays of one device: the memory before the recording's first event,
 * and the states after some later events.
 *
 * It undoes the events from the memory at the recording's end, unless it is known that
 * nothing was there before. replay.c keeps the later states. */
#ifndef ML_REPLAY_START_H
#define ML_REPLAY_START_H

#include "ledger/ledger.h"
#include "ledger/replay/replay.h"
#include "recording/recording.h"

typedef struct ml_replay_state {
    size_t position; /* events before it */
    uint64_t misfits;
    uint64_t mismatched_addresses;
    ml_ledger_image *image; /* owned */
    size_t bytes;           /* of IMAGE */
} ml_replay_state;

/* In ml_replay_start.doubts: the size is inferred, but it cannot be larger. */
#define ML_SIZE_INFERRED UINT64_MAX

struct ml_replay_start {
    const ml_device_trace *trace; /* borrowed */
    ml_allocator_rules rules;
    /* Before the first event; owned, each sorted by address. */
    ml_segment *ranges;
    size_t range_count;
    size_t range_capacity;
    ml_block *blocks;
    size_t block_count;
    size_t block_capacity;
    /* owned; by block, the bytes by which it could be larger; 0: its size is certain */
    uint64_t *doubts;
    ml_replay_state *states; /* owned; by position */
    size_t state_count;
    size_t state_capacity;
    size_t state_bytes;    /* of all images */
    unsigned state_halves; /* how often every other state was dropped */
};

/* The start for DEVICE, which RECORDING has: without later states, and with doubts
 * about sizes that only a walk forward settles.  RECORDING is borrowed and outlives it.
 * 0 or ML_ENOMEM. */
int ml_replay_undo(const ml_recording *recording, size_t device, ml_replay_start **out);

#endif
