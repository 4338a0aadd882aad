/* Maps the ids of a stack table to those of a recording.
 *
 * Knows which parts of a recording refer to stacks and strings; stacks.h resolves the
 * ids. */
#ifndef ML_ID_REMAP_H
#define ML_ID_REMAP_H

#include "recording/recording.h"
#include "stacks/stacks.h"

/* The events and the memory of RECORDING, and where TAGS says so its tags, refer to
 * STACKS: makes them refer to columns of their own.  A stack that STACKS does not have is
 * one that an event has lost; a string likewise, which reads ML_NAME_LOST and counts in
 * lost_names.  0 or ML_E*. */
int ml_id_remap(ml_recording *recording, const ml_stacks *stacks,
                const ml_symbolizer *symbolizer, bool tags);

#endif
