/* Frames by file, line and function.  A recording may have equal frames several
 * times. */
#ifndef ML_FRAME_LINES_H
#define ML_FRAME_LINES_H

#include "base/base.h"
#include "recording/recording.h"

typedef struct ml_frame_lines {
    const ml_recording *recording; /* borrowed */
    uint32_t *firsts; /* owned; by frame: 1 + the answer; 0: not requested yet */
    ml_intern interned;
    uint32_t *asked; /* owned; by interned entry: the frame first requested */
    size_t asked_capacity;
} ml_frame_lines;

/* RECORDING is borrowed and outlives the lines.  0, or ML_ENOMEM with nothing to
 * free. */
int ml_frame_lines_init(ml_frame_lines *lines, const ml_recording *recording);
void ml_frame_lines_fini(ml_frame_lines *lines);

/* *FIRST is the frame id that represents all frames equal to FRAME: the first one
 * requested.  0 or ML_ENOMEM. */
int ml_frame_lines_first(ml_frame_lines *lines, uint32_t frame, uint32_t *first);

#endif
