/* Survivors: the blocks that each step of a program leaves behind.
 *
 * Follows the blocks that were allocated since it began, each with its step; leaks.h
 * decides which of them leak.
 *
 * A step counts only if it and all later steps had survivors: survivors of steps before
 * a step without any are forgotten. */
#ifndef ML_LEAK_TRACKER_H
#define ML_LEAK_TRACKER_H

#include "analysis/answers/growth.h"
#include "record/window.h"

/* Steps whose events are kept: those of a row of leaks.h when it becomes one, and the
 * one before, for a backward pass whose forward was in it. */
#define ML_LEAK_STEPS ML_GROWTH_STEPS
#define ML_RECALLED_STEPS (ML_LEAK_STEPS + 1)

typedef struct ml_survivor {
    uint64_t addr;
    uint64_t bytes;
    uint64_t place; /* ordinal of its allocation; for an unordered source its time */
    uint64_t step;
    uint32_t stack;
    bool explained; /* cause, of the survivors' own recording, is known */
    ml_cause cause;
} ml_survivor;

/* Survivors of one device, or one unordered source. */
typedef struct ml_survivor_set {
    ml_survivor *items; /* owned */
    size_t count;
    size_t capacity;
    uint32_t *slots; /* owned; by hash of the address: index + 1; 0: free */
    size_t slot_count;
    uint32_t *alive; /* owned; by step from first_step on: live blocks */
    size_t alive_capacity;
    uint64_t first_step;
    size_t step_count;
    ml_event *orphans; /* owned; waiting frees of an unordered source */
    size_t orphan_count;
    size_t orphan_capacity;
} ml_survivor_set;

typedef struct ml_event_list {
    ml_event *items; /* owned */
    size_t count;
    size_t capacity;
    uint64_t first; /* ordinal of the first, of an ordered source */
} ml_event_list;

/* A row of steps, from the last call of ml_leaks_step. */
typedef struct ml_leak_row {
    uint64_t steps;
    uint32_t frame;
    int device;
    uint8_t phase;
    uint8_t how;
    uint8_t no_line;
} ml_leak_row;

/* Guarded by the recorder's lock, except constants. */
typedef struct ml_leak_tracker {
    ml_window *window; /* borrowed */
    bool begun;
    uint64_t steps;              /* ended */
    uint64_t now[ML_DEVICE_MAX]; /* the end of each lane at the last step */
    /* and before each of the last steps */
    uint64_t ends[ML_RECALLED_STEPS][ML_DEVICE_MAX];
    uint64_t dropped;
    uint64_t last_time; /* of an unordered source: of the newest event so far */
    ml_survivor_set sets[ML_DEVICE_MAX];
    ml_event_list list;    /* scratch */
    ml_recording *known;   /* owned; strings, frames and stacks so far; no devices */
    ml_leak_row *previous; /* owned */
    size_t previous_count;
    size_t previous_capacity;
} ml_leak_tracker;

/* WINDOW is borrowed and outlives the survivors; it keeps events, with stacks of
 * allocations, and is never cleared.  0 or ML_ENOMEM. */
int ml_leak_tracker_new(ml_window *window, ml_leak_tracker **out);
void ml_leak_tracker_free(ml_leak_tracker *survivors); /* takes NULL */

/* A step of a window that has begun ends.  Callers hold the recorder's lock.  *LOST:
 * events were lost, and all steps are forgotten, as after a failure.  0 or
 * ML_ENOMEM. */
int ml_leak_tracker_follow(ml_leak_tracker *survivors, bool *lost);
/* Appends the events of DEVICE from STEP on, or from the oldest available, to LIST.  0
 * or ML_ENOMEM. */
int ml_leak_tracker_recall(ml_leak_tracker *survivors, int device, uint64_t step,
                           ml_event_list *list);

#endif
