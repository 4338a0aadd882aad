/* A replay: the exact memory of one device of a recording, at each of its events.
 *
 * A ledger carries the memory before the first event forward. replay_start.h finds that
 * memory: it undoes the events from the memory at the end of the recording.  If the
 * recording lacks the memory at its end (bare traces), blocks of unknown segments stand
 * alone, and reserved bytes are those of the segments with an event. */
#ifndef ML_REPLAY_H
#define ML_REPLAY_H

#include <stdbool.h>

#include "ledger/ledger.h"
#include "recording/recording.h"

typedef struct ml_replay ml_replay;
typedef struct ml_replay_start ml_replay_start;

/* How well the replay agrees with the recording; items, except uncertain_bytes. */
typedef struct ml_replay_result {
    uint64_t events;
    uint64_t misfits;              /* events that contradicted the blocks */
    uint64_t mismatched_addresses; /* of these, allocations without a free block */
    uint64_t mismatched_blocks;    /* different at the end, on either side */
    uint64_t mismatched_segments;  /* likewise */
    uint64_t uncertain_blocks; /* in use before the first event, of uncertain size */
    uint64_t uncertain_bytes;  /* the most by which these could be larger */
    bool compared;             /* whether the recording has its memory at the end */
} ml_replay_result;

/* RECORDING is borrowed and outlives the replay.  0, ML_EINVALID for a DEVICE that it
 * does not have, or ML_ENOMEM. */
int ml_replay_new(const ml_recording *recording, size_t device, ml_replay **out);
void ml_replay_free(ml_replay *replay);

/* The common start of several replays.  It costs a walk back over all events, and if
 * sizes are in doubt one forward.  Errors as above. */
int ml_replay_start_new(const ml_recording *recording, size_t device,
                        ml_replay_start **out);
void ml_replay_start_free(ml_replay_start *start); /* takes NULL */
/* START is borrowed and outlives the replay.  0 or ML_ENOMEM. */
int ml_replay_from(const ml_replay_start *start, ml_replay **out);
/* For the first walk forward, before START is shared: keeps the state here, if the last
 * kept one is far enough back and there is memory. */
void ml_replay_keep(const ml_replay *replay, ml_replay_start *start);

/* The next event as it is recorded, borrowed until the next call; NULL after the last. */
const ml_event *ml_replay_peek(ml_replay *replay);
/* Applies the next event and returns it as completed by the ledger, borrowed until the
 * next call; NULL after the last one. */
const ml_event *ml_replay_next(ml_replay *replay);
/* Whether the last applied event fitted the blocks. */
bool ml_replay_fits(const ml_replay *replay);
/* Moves to the state after POSITION events, or all, from the nearest kept state.  0 or
 * ML_ENOMEM. */
int ml_replay_go_to(ml_replay *replay, size_t position);

/* The memory after the events applied so far, borrowed; births are indices of events. */
const ml_ledger *ml_replay_ledger(const ml_replay *replay);
const ml_totals *ml_replay_totals(const ml_replay *replay);
/* Whether the allocator has segments. */
bool ml_replay_has_segments(const ml_replay *replay);
/* Events applied so far. */
size_t ml_replay_position(const ml_replay *replay);

/* After the last event: compares the memory with the recording's end. */
ml_replay_result ml_replay_check(const ml_replay *replay);

#endif
