/* The memory of a source as it is now, recorded or not.
 *
 * Chooses the recording under way with the most information about it, and tells whether
 * memory changed between two readings.  All functions take the recorder's lock: callers
 * release the GIL. */
#ifndef ML_CURRENT_MEMORY_H
#define ML_CURRENT_MEMORY_H

#include <stdbool.h>

#include "memlab.h"
#include "recording/recording.h"

/* How two moments of a source's memory are told apart. */
enum ml_memory_marked {
    ML_MARKED_BY_EVENTS,  /* of the recording under way */
    ML_MARKED_BY_CHANGES, /* that the source counts */
    ML_MARKED_BY_MEMORY   /* by what lies in it */
};

/* A moment of a source's memory, for comparison with another. */
typedef struct ml_memory_mark {
    enum ml_memory_marked by;
    uint64_t of[ML_DEVICE_MAX];
} ml_memory_mark;

/* If nothing is recorded and the source counts no changes, it walks over the memory. 0
 * or ML_E*, with the reason in ml_recorder_error(). */
int ml_memory_mark_now(const ml_source *source, ml_memory_mark *out);

/* Whether no memory of DEVICE came or went between A and B.  Exact if a recording is
 * under way at both, or if the source counts changes and nothing resets its counters.
 * Otherwise it misses a block that was freed and allocated again in between with its
 * address and sizes. */
bool ml_memory_same(const ml_memory_mark *a, const ml_memory_mark *b, int device);

/* The memory at one instant for each device, with the stacks and events of the
 * recording under way with the most information.  Without a recording, nothing is known
 * of the blocks.  *RECORDED tells the two cases apart.  *NOW is the mark of these
 * instants or of later ones; ml_memory_same then reports an event in between as a
 * change.  The caller frees *OUT with ml_recording_free.  0 or ML_E*, likewise. */
int ml_memory_read(const ml_source *source, ml_memory_mark *now, bool *recorded,
                   ml_recording **out);

#endif
