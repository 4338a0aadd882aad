/* A lane: the ring of the newest events of one device or one thread.
 *
 * Owns the event records and their order within the lane; must not know what they mean.
 * Writers touch plain memory only.  A lane never shrinks and never moves a record that a
 * writer could still touch: when a longer history is wanted, a larger ring is put in
 * front and the old one stays readable behind it. */
#ifndef ML_LANE_H
#define ML_LANE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "memlab.h"
#include "region.h"

typedef struct ml_ring ml_ring;

typedef struct ml_lane {
    _Atomic(ml_ring *) newest; /* owned, with all behind it; NULL: no room yet */
} ml_lane;

/* A place between two events of a lane. */
typedef struct ml_lane_mark {
    ml_ring *ring; /* borrowed from the lane; NULL: before everything */
    uint64_t index;
} ml_lane_mark;

void ml_lane_fini(ml_lane *lane);

/* Makes the lane keep at least the newest CAPACITY events from now on, as far as address
 * space can be had (a request is met in part rather than refused).  Callers hold the
 * recorder's lock.  0 or ML_ENOMEM. */
int ml_lane_reserve(ml_lane *lane, uint64_t capacity);

/* Hot path.  _push: one writer at a time (a lock of the source orders them);
 * _push_shared: any number of writers.  0, or -1 where the lane has no ring. */
int ml_lane_push(ml_lane *lane, const ml_event *event);
int ml_lane_push_shared(ml_lane *lane, const ml_event *event);

ml_lane_mark ml_lane_end(const ml_lane *lane);

/* Events between two marks, FROM not behind TO. */
uint64_t ml_lane_distance(ml_lane_mark from, ml_lane_mark to);

/* Whether events since MARK have been overwritten. */
bool ml_lane_passed(const ml_lane *lane, ml_lane_mark mark);

/* Single writer only: the record at *MARK in place, and *MARK moved behind it; NULL at
 * the end.  For records not yet seen by ml_lane_copy. */
ml_event *ml_lane_next(ml_lane *lane, ml_lane_mark *mark);

/* Copies of the events from START to END the newest LIMIT into OUT, oldest first, but for
 * those that are overwritten or not complete.  Returns the number copied; safe beside
 * writers, whose overwriting it detects. */
size_t ml_lane_copy(ml_lane_mark start, ml_lane_mark end, uint64_t limit,
                    ml_event *out);

/* Gives the memory of all rings back to the system; their events are lost.  Only while
 * nobody wants them; a late writer does no harm. */
void ml_lane_discard(ml_lane *lane);

#endif
