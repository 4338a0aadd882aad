/* The memory of a source as it is now, whether somebody records it or not.
 *
 * Owns choosing the recording under way that tells most of it, and telling whether memory
 * changed between two looks.  It must not know what is asked of the memory.  All take the
 * recorder's lock: callers release the GIL. */
#ifndef ML_CURRENT_MEMORY_H
#define ML_CURRENT_MEMORY_H

#include <stdbool.h>

#include "memlab.h"
#include "recording/recording.h"

/* What moments of a source's memory are told apart by. */
enum ml_memory_marked {
    ML_MARKED_BY_EVENTS,  /* of the recording under way */
    ML_MARKED_BY_CHANGES, /* that the source counts */
    ML_MARKED_BY_MEMORY   /* by what lies in it */
};

/* A moment of a source's memory, to be compared with another. */
typedef struct ml_memory_mark {
    enum ml_memory_marked by;
    uint64_t of[ML_DEVICE_MAX];
} ml_memory_mark;

/* 0 or ML_E*, with the reason in ml_recorder_error().  Where nothing is recorded and the
 * source counts no changes it walks over the memory. */
int ml_memory_mark_now(const ml_source *source, ml_memory_mark *out);

/* Whether no memory of DEVICE came or went between the two.  Exact while a recording is
 * under way at both, or where the source counts changes and nobody resets its counters;
 * else what was freed and allocated again in between, at its place and with its sizes, is
 * not seen. */
bool ml_memory_same(const ml_memory_mark *a, const ml_memory_mark *b, int device);

/* The memory at one instant for each device, with the stacks and events of the recording
 * under way that tells most.  Without one: blocks of which nothing is known.  *RECORDED says
 * which.  *NOW is the mark of these instants, or of later ones: what came in between is then
 * told as a change.  The caller frees *OUT with ml_recording_free.  0 or ML_E*, likewise. */
int ml_memory_read(const ml_source *source, ml_memory_mark *now, bool *recorded,
                   ml_recording **out);

#endif
