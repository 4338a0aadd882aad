/* Notes while recording: what happens beside memory events (steps, phases, marks, regions,
 * samples), from the call that tells of it to the recording.
 *
 * Owns, for each source that is recorded, a ring of its newest notes, on the source's
 * clock.  It must not know windows: a window keeps a mark.  Nothing here is reached from
 * the allocator's callback.  recorder.h has what tells of notes: ml_recorder_note.
 *
 * One lock of its own, held for moments, taken before none but a file's control lane, guards all
 * of it: who notes may hold the GIL, who begins and ends holds the recorder's lock. */
#ifndef ML_NOTES_H
#define ML_NOTES_H

#include "recording/recording.h"

/* Of a ring: some 900,000 notes with names of a dozen bytes. */
#define ML_NOTES_BYTES ((size_t)64 << 20)
/* Names are kept to this length. */
#define ML_NOTE_NAME_MAX 1024

/* A place among the notes of a source. */
typedef struct ml_notes_mark {
    uint64_t count; /* notes before it */
    uint64_t steps; /* ML_NOTE_STEP among them */
} ml_notes_mark;

/* One more listens to SOURCE, from the mark returned. */
ml_notes_mark ml_notes_begin(const ml_source *source);
/* One fewer listens; after the last the notes are forgotten. */
void ml_notes_end(const ml_source *source);
ml_notes_mark ml_notes_now(const ml_source *source);
/* Into RECORDING, the notes of SOURCE since MARK: in order, in unix nanoseconds, steps
 * numbered from 0, and among its annotations.  How many are missing goes to lost_notes.
 * 0 or ML_E*. */
int ml_notes_copy(const ml_source *source, ml_notes_mark mark, ml_recording *recording);
/* In a forked child, before any other thread: nobody listens. */
void ml_notes_forked(void);

#endif
