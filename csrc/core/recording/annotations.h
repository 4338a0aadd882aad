/* The annotations of a recording as torch writes them, made from its notes.
 *
 * Decides which notes show there, and merges them with the annotations that torch's own
 * recorder made of the same regions.  A function of a recording. */
#ifndef ML_ANNOTATIONS_H
#define ML_ANNOTATIONS_H

#include "recording/recording.h"

/* Adds the phases, marks and regions of RECORDING's notes to its annotations, until
 * then torch's own, all by time.  A region that torch noted too stays torch's.  Call it
 * once.  0, or ML_ENOMEM with the annotations unchanged. */
int ml_annotations_add_notes(ml_recording *recording);

#endif
