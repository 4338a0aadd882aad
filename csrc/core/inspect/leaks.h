/* Finds leaks: the lines of surviving blocks, and which of them grow.
 *
 * Owns the test of growth; leak_tracker.h finds the survivors.
 *
 * A step is the time between two calls of ml_leaks_step.  A line leaks if each of the
 * last ML_LEAK_STEPS steps or more in a row left a block of it that still lives, and none
 * of these steps has lost all of its blocks since the call before: the row of steps grew.
 * So none of these is a leak:
 *
 *   - memory allocated once, in whatever step
 *   - a buffer that each step replaces, of whatever size
 *   - blocks kept for fewer steps than ML_LEAK_STEPS
 *   - blocks kept for a bounded number of steps, once that number is reached */
#ifndef ML_LEAKS_H
#define ML_LEAKS_H

#include "analysis/answers/peak.h"
#include "inspect/leak_tracker.h"

typedef struct ml_leak {
    ml_peak_line line; /* bytes and blocks are those of the row; module owned, texts
                          borrowed from the survivors */
    uint64_t steps;    /* consecutive */
    uint64_t per_step; /* bytes: the median of these steps */
    uint32_t frame;    /* frame id of the line among the survivors' own; 0: none */
    int device;
} ml_leak;

typedef struct ml_leaks {
    ml_leak *items; /* owned; most bytes first */
    size_t count;
    bool lost; /* events were lost since the previous call: rows begin again */
} ml_leaks;

/* Ends a step and finds the current leaks of all devices.  The first step reaches back
 * to the window's start; before that, nothing leaks.  Takes the recorder's lock:
 * callers release the GIL.  0 or ML_E*, with the reason in ml_recorder_error(); rows
 * may then begin again. */
int ml_leaks_step(ml_leak_tracker *survivors, ml_leaks *out);
void ml_leaks_fini(ml_leaks *leaks);

#endif
