/* Events of an unordered source: their order in a recording, and the memory at their
 * end.
 *
 * Pure functions, shared by window_freeze_lanes.c, for recordings under way, and the
 * reader of files. */
#ifndef ML_UNORDERED_EVENTS_H
#define ML_UNORDERED_EVENTS_H

#include "recording/recording.h"

/* Sorts EVENTS, given lane after lane, by their times.  0 or ML_ENOMEM. */
int ml_unordered_events_sort(ml_event *events, size_t count);

/* The memory of TRACE was walked at some time while its events were recorded; this
 * makes it the memory at their end.  For an address in events, the last event says
 * whether it is live; for others, the walk.  0 or ML_ENOMEM. */
int ml_unordered_events_end_memory(ml_device_trace *trace);

#endif
