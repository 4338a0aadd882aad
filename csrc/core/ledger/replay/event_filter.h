/* A recording without some of its events.
 *
 * Owns what is left out and what then stands for what.  Each changes a recording that
 * nobody else has yet: 0, or ML_ENOMEM or ML_ELIMIT, after which it is still valid, but
 * may be done in part. */
#ifndef ML_EVENT_FILTER_H
#define ML_EVENT_FILTER_H

#include "recording/recording.h"

/* Leaves out allocations whose free completed while recording, with their frees: of the
 * allocations seen those stay that are there at the end. */
int ml_event_filter_unfreed(ml_recording *recording);

/* Leaves out all allocations, and has the segments be blocks in their place: a recording
 * of what the driver gave and got back.  Of an expandable segment each run of pages that
 * came and went together is a block. */
int ml_event_filter_segments(ml_recording *recording);

#endif
