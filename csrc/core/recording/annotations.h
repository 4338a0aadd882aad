/* The annotations of a recording as torch writes them, out of its notes.
 *
 * Owns which notes show there and how they go together with those that torch's own
 * recorder made of the same regions.  A function of a recording: knows no source. */
#ifndef ML_ANNOTATIONS_H
#define ML_ANNOTATIONS_H

#include "recording/recording.h"

/* Adds the phases, marks and regions of RECORDING's notes to its annotations, which are
 * torch's own until then, all by time.  A region that torch noted too stays torch's.  Call
 * it once.  0 or ML_ENOMEM, with the annotations as they were. */
int ml_annotations_add_notes(ml_recording *recording);

#endif
