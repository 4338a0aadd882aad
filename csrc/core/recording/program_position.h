/* The position of a recording's program at a time: its step and its phase, from the
 * notes.
 *
 * Defines steps and phases; a function of a recording. */
#ifndef ML_PROGRAM_POSITION_H
#define ML_PROGRAM_POSITION_H

#include <stdbool.h>

#include "recording/recording.h"

/* A step is the time up to the note of its end; the time after the last end is one more
 * step.  A phase without a begin was open from the start.  Of several open phases, on
 * any thread, the latest begun counts. */
typedef struct ml_program_position {
    uint64_t step;  /* only where has_steps */
    bool has_steps; /* the program reported steps */
    bool in_phase;
    uint32_t phase; /* string: name; 0 is the empty name, too */
} ml_program_position;

/* The position at TIME (unix ns), after the notes of that time.  0 or ML_ENOMEM. */
int ml_program_position_at(const ml_recording *recording, uint64_t time,
                           ml_program_position *out);

#endif
