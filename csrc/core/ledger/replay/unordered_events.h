/* Events of a source that no lock orders: the order in which they are told, and the
 * memory that they leave behind.
 *
 * Pure functions of what was recorded; shared by window_freeze_lanes.c, for recordings
 * under way, and the reader of files. */
#ifndef ML_UNORDERED_EVENTS_H
#define ML_UNORDERED_EVENTS_H

#include "recording/recording.h"

/* Puts EVENTS, lane after lane, in the order of their times.  0 or ML_ENOMEM. */
int ml_unordered_events_sort(ml_event *events, size_t count);

/* The memory of TRACE was walked while its events were recorded, at any time: makes
 * it that at their end.  Of an address that events name, the last of them says
 * whether it is live; the walk answers for the others.  0 or ML_ENOMEM. */
int ml_unordered_events_end_memory(ml_device_trace *trace);

#endif
