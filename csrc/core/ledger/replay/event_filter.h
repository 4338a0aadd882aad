/* A recording without some of its events.
 *
 * Each changes a recording that nothing else uses yet.  0, or ML_ENOMEM or ML_ELIMIT,
 * with the recording valid but perhaps changed in part. */
#ifndef ML_EVENT_FILTER_H
#define ML_EVENT_FILTER_H

#include "recording/recording.h"

/* Removes allocations whose free completed while recording, with their frees.  The
 * allocations that are live at the end stay. */
int ml_event_filter_unfreed(ml_recording *recording);

/* Replaces all allocations by the segments as blocks: a recording of the driver's
 * memory.  In an expandable segment, each run of pages mapped and unmapped together is
 * a block. */
int ml_event_filter_segments(ml_recording *recording);

#endif
