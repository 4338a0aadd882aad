/* Where a recording's program was at a time: its step and its phase, from the notes.
 *
 * Owns what steps and phases mean; a function of a recording. */
#ifndef ML_TIMELINE_H
#define ML_TIMELINE_H

#include <stdbool.h>

#include "recording.h"

/* A step is the time up to the note of its end; what lies behind the last end counts as
 * one more.  A phase whose begin is missing was open from the start.  Of several open
 * phases the one that began last counts, on whatever thread. */
typedef struct ml_moment {
    uint64_t step;  /* only where has_steps */
    bool has_steps; /* the program told of any */
    bool in_phase;
    uint32_t phase; /* string: name; 0 is the empty name, too */
} ml_moment;

typedef struct ml_timeline ml_timeline;

/* Of RECORDING, which must outlive it.  0 or ML_ENOMEM. */
int ml_timeline_new(const ml_recording *recording, ml_timeline **out);
void ml_timeline_free(ml_timeline *timeline);
/* The moment TIME (unix ns), at which notes of that time have happened.  Times never
 * fall from call to call. */
ml_moment ml_timeline_at(ml_timeline *timeline, uint64_t time);

/* One moment alone: 0 or ML_ENOMEM. */
int ml_notes_at(const ml_recording *recording, uint64_t time, ml_moment *out);

#endif
