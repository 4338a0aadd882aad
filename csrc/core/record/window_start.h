/* The start of a window: its place among the events, and the memory at that instant.
 *
 * A walk over the source's memory takes both at one instant.  It marks the window's
 * place on every lane, seeds the ledger of a device that was not recorded before, and
 * writes the memory at the start into the window's file.  The caller holds the
 * recorder's lock. */
#ifndef ML_WINDOW_START_H
#define ML_WINDOW_START_H

#include "record/window.h"

/* Enables WINDOW's feed and takes the start of WINDOW, which listens already.  0 or ML_E*,
 * with the reason in ml_recorder_error(). */
int ml_window_start_take(ml_window *window);
/* Room for the newest CAPACITY events of each device that was recorded before, or each
 * lane.  0 or ML_E*, likewise. */
int ml_window_start_reserve(ml_feed *feed, uint64_t capacity);

#endif
