/* Notes while recording: steps, phases, marks, regions and samples, which happen beside
 * memory events.  Their way from the call to the recording.
 *
 * Each recorded source has a ring of its newest notes, on the source's clock.  Notes do
 * not know windows: a window keeps a mark.  The allocator's callback reaches nothing
 * here. ml_recorder_note in recorder.h adds notes.
 *
 * One lock guards all.  It is held for moments, and no lock but that of a file's
 * control lane is taken under it.  A caller that notes may hold the GIL; a caller that
 * begins or ends holds the recorder's lock. */
#ifndef ML_NOTES_H
#define ML_NOTES_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/system/region.h"
#include "record/recorder.h"
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

/* The newest notes of one source. */
typedef struct ml_note_ring {
    const ml_source *source; /* NULL: the place is free */
    unsigned listeners;
    ml_region region;
    /* Offsets that only grow; modulo the region's size, they are places in it. */
    uint64_t oldest;
    uint64_t end;
    uint64_t kept;  /* notes from oldest to end */
    uint64_t count; /* notes so far */
    uint64_t steps; /* ML_NOTE_STEP so far */
    uint64_t time;  /* of the newest note */
} ml_note_ring;

/* Those of a process, in the registry. */
typedef struct ml_notes {
    pthread_mutex_t lock;
    ml_note_ring rings[ML_SOURCE_MAX];
    _Atomic unsigned listeners; /* of all rings: read without the lock */
} ml_notes;

/* Adds a listener to SOURCE, from the returned mark on. */
ml_notes_mark ml_notes_begin(const ml_source *source);
/* Removes a listener; after the last one the notes are freed. */
void ml_notes_end(const ml_source *source);
ml_notes_mark ml_notes_now(const ml_source *source);
/* Copies the notes of SOURCE since MARK into RECORDING: in order, in unix nanoseconds,
 * steps numbered from 0, and among its annotations. lost_notes gets the number of
 * missing ones.  0 or ML_E*. */
int ml_notes_copy(const ml_source *source, ml_notes_mark mark, ml_recording *recording);
/* In a forked child, before any other thread: removes all listeners. */
void ml_notes_forked(void);
/* Frees all notes.  No thread notes meanwhile. */
void ml_notes_fini(void);

#endif
