/* Where a recording's program was at a time: its step and its phase, from the notes.
 *
 * Owns what steps and phases mean; a function of a recording. */
#ifndef ML_PROGRAM_POSITION_H
#define ML_PROGRAM_POSITION_H

#include <stdbool.h>

#include "recording/recording.h"

/* A step is the time up to the note of its end; what lies behind the last end counts as
 * one more.  A phase whose begin is missing was open from the start.  Of several open
 * phases the one that began last counts, on whatever thread. */
typedef struct ml_program_position {
    uint64_t step;  /* only where has_steps */
    bool has_steps; /* the program told of any */
    bool in_phase;
    uint32_t phase; /* string: name; 0 is the empty name, too */
} ml_program_position;

/* At TIME (unix ns), when the notes of that time have happened.  0 or ML_ENOMEM. */
int ml_program_position_at(const ml_recording *recording, uint64_t time,
                           ml_program_position *out);

#endif
