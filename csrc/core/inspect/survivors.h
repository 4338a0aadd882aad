/* Survivors: what each step of a program leaves behind, by the line that allocated it.
 *
 * Owns following the blocks that were allocated since it began, each with the step it was
 * allocated in, and the test of growth.  It must not know what is said of a leak.
 *
 * A step is what lies between two calls of ml_survivors_step.  A line leaks when each of
 * the last ML_LEAK_STEPS steps or more in a row left a block of it that still lives, and
 * none of this row has lost all of them since the call before: the row grew.  So none is
 *
 *   memory made once, in whatever step
 *   a buffer that each step replaces, of whatever size
 *   what is kept of fewer steps than ML_LEAK_STEPS
 *   what is kept of a bounded number of steps, once it is full
 *
 * Only steps count that had a survivor, as did all after them: what was left in a step
 * before one that left nothing can be part of no row, and is forgotten. */
#ifndef ML_SURVIVORS_H
#define ML_SURVIVORS_H

#include "analysis/answers/peak.h"
#include "record/recorder.h"

#define ML_LEAK_STEPS 5

typedef struct ml_leak {
    ml_peak_line line; /* bytes and blocks are those of the row; module owned, texts
                          borrowed from the survivors */
    uint64_t steps;    /* in a row */
    uint64_t per_step; /* bytes: what the middle one of these steps left */
    uint32_t frame;    /* frame id of the line among the survivors' own; 0: none */
    int device;
} ml_leak;

typedef struct ml_leaks {
    ml_leak *items; /* owned; most bytes first */
    size_t count;
    bool lost; /* events were lost since the call before: rows begin again */
} ml_leaks;

typedef struct ml_survivors ml_survivors;

/* WINDOW is borrowed and outlives the survivors; it keeps events, with stacks of
 * allocations, and is never cleared.  0 or ML_ENOMEM. */
int ml_survivors_new(ml_window *window, ml_survivors **out);
void ml_survivors_free(ml_survivors *survivors); /* takes NULL */

/* A step ends: what leaks now, of all devices.  The first is all since the window began;
 * before it does, nothing is one.  Takes the recorder's lock: callers release the GIL.  0 or
 * ML_E*, with the reason in ml_recorder_error(); rows may then begin again. */
int ml_survivors_step(ml_survivors *survivors, ml_leaks *out);
void ml_leaks_fini(ml_leaks *leaks);

#endif
