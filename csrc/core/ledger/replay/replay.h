/* A replay: the exact memory of one device of a recording, at each of its events.
 *
 * Owns the state before the first event, had by undoing the events from the memory at
 * the end of the recording, and the ledger that carries it forward.  It must not know
 * what is asked of that state.  Where the recording lacks the memory at its end (bare
 * traces), blocks whose segment is unknown stand alone and reserved bytes are those of
 * the segments that were seen to come. */
#ifndef ML_REPLAY_H
#define ML_REPLAY_H

#include <stdbool.h>

#include "ledger/ledger.h"
#include "recording/recording.h"

typedef struct ml_replay ml_replay;

/* How well the replay agrees with the recording; in items but for uncertain_bytes. */
typedef struct ml_replay_result {
    uint64_t events;
    uint64_t misfits;              /* events that did not fit the blocks there were */
    uint64_t mismatched_addresses; /* of these, allocations without a free block */
    uint64_t mismatched_blocks;    /* that differ at the end, in either */
    uint64_t mismatched_segments;  /* likewise */
    uint64_t uncertain_blocks;     /* in use before the first event, of a size that the
                                      recording does not settle */
    uint64_t uncertain_bytes;      /* by which these could be larger, at most */
    bool compared;                 /* whether the recording has its memory at the end */
} ml_replay_result;

/* RECORDING is borrowed and outlives the replay.  0, ML_EINVALID for a DEVICE that it
 * does not have, or ML_ENOMEM. */
int ml_replay_new(const ml_recording *recording, size_t device, ml_replay **out);
void ml_replay_free(ml_replay *replay);

/* Applies the next event and returns it as completed by the ledger, borrowed until the
 * next call; NULL after the last one. */
const ml_event *ml_replay_next(ml_replay *replay);
/* Back to before the first event. */
int ml_replay_rewind(ml_replay *replay);

/* The memory after the events applied so far, borrowed; births are indices of events. */
const ml_ledger *ml_replay_ledger(const ml_replay *replay);
const ml_totals *ml_replay_totals(const ml_replay *replay);
/* Events applied so far. */
size_t ml_replay_position(const ml_replay *replay);

/* The blocks in use before the first event, by address; borrowed. */
const ml_block *ml_replay_initial(const ml_replay *replay, size_t *count);

/* After the last event: compares what is left with the recording's end. */
ml_replay_result ml_replay_check(const ml_replay *replay);

#endif
