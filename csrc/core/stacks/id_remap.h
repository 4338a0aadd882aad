/* Maps the ids of a stack table to those of a recording.
 *
 * Knows which parts of a recording refer to stacks and strings; stacks.h resolves the
 * ids. */
#ifndef ML_ID_REMAP_H
#define ML_ID_REMAP_H

#include "recording/recording.h"
#include "stacks/stacks.h"

/* The events and the memory of RECORDING, and if TAGS says so its tags, refer to
 * STACKS.  Makes them refer to the recording's own columns.  A stack missing from
 * STACKS counts as lost by its event.  A missing string reads ML_NAME_LOST and counts
 * in lost_names.  0 or ML_E*. */
int ml_id_remap(ml_recording *recording, const ml_stacks *stacks,
                const ml_symbolizer *symbolizer, bool tags);

#endif
