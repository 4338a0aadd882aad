/* A replay: the exact memory of one device of a recording, at each of its events.
 *
 * Owns the ledger that carries the memory before the first event forward; that memory is
 * found by undoing the events from the memory at the end of the recording
 * (replay_start.h).  Where the recording lacks the memory at its end (bare
 * traces), blocks whose segment is unknown stand alone and reserved bytes are those of
 * the segments that were seen to come. */
#ifndef ML_REPLAY_H
#define ML_REPLAY_H

#include <stdbool.h>

#include "ledger/ledger.h"
#include "recording/recording.h"

typedef struct ml_replay ml_replay;
typedef struct ml_replay_start ml_replay_start;

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

/* What several replays start from: it costs a walk back over all events, and where sizes
 * are in doubt one forward.  Errors as above. */
int ml_replay_start_new(const ml_recording *recording, size_t device,
                        ml_replay_start **out);
void ml_replay_start_free(ml_replay_start *start); /* takes NULL */
/* START is borrowed and outlives the replay.  0 or ML_ENOMEM. */
int ml_replay_from(const ml_replay_start *start, ml_replay **out);
/* For who goes forward for the first time and shares START with nobody yet: keeps the
 * state here, where the last one is far enough behind and there is memory. */
void ml_replay_keep(const ml_replay *replay, ml_replay_start *start);

/* The next event as it is recorded, borrowed until the next call; NULL after the last. */
const ml_event *ml_replay_peek(ml_replay *replay);
/* Applies the next event and returns it as completed by the ledger, borrowed until the
 * next call; NULL after the last one. */
const ml_event *ml_replay_next(ml_replay *replay);
/* Whether the last event that was applied fitted the blocks there were. */
bool ml_replay_fits(const ml_replay *replay);
/* To where POSITION events are applied, or all, from the nearest state that is kept.  0 or
 * ML_ENOMEM. */
int ml_replay_go_to(ml_replay *replay, size_t position);

/* The memory after the events applied so far, borrowed; births are indices of events. */
const ml_ledger *ml_replay_ledger(const ml_replay *replay);
const ml_totals *ml_replay_totals(const ml_replay *replay);
/* Whether the allocator has segments, of which its blocks are parts. */
bool ml_replay_has_segments(const ml_replay *replay);
/* Events applied so far. */
size_t ml_replay_position(const ml_replay *replay);

/* After the last event: compares what is left with the recording's end. */
ml_replay_result ml_replay_check(const ml_replay *replay);

#endif
