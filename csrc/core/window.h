/* A window: one recording under way.  Shared by recorder.c, which begins and ends
 * windows, and freeze.c, which turns one into a recording; known to nobody else. */
#ifndef ML_WINDOW_H
#define ML_WINDOW_H

#include "feed.h"
#include "recorder.h"

typedef struct ml_window_tags {
    ml_tag *items; /* owned; name is a string id of the stack table */
    size_t count;
    size_t capacity;
} ml_window_tags;

/* From a position on, stacks are those of a context, with C++ frames or without. */
typedef struct ml_window_phase {
    enum ml_context context;
    bool native;
    uint64_t position[ML_DEVICE_MAX];
} ml_window_phase;

/* Guarded by the recorder's lock.  Per device of an ordered source; of an unordered one
 * marks are per lane, and all else is in place 0. */
struct ml_window {
    ml_feed *feed; /* borrowed, for ever */
    ml_window_options options;
    unsigned slot; /* index of this window's peaks in each device log */
    bool begun;
    ml_lane_mark marks[ML_DEVICE_MAX];
    uint64_t event_base[ML_DEVICE_MAX];     /* the device's event count at the start */
    uint64_t base_forgotten[ML_DEVICE_MAX]; /* events before the last clear */
    ml_window_tags tags[ML_DEVICE_MAX];
    ml_window_phase *phases; /* owned; the first from position 0 */
    size_t phase_count;
    size_t phase_capacity;
};

_Static_assert(ML_FEED_LANES == ML_DEVICE_MAX, "marks serve devices and lanes alike");

/* Events of DEVICE since the window began. */
uint64_t ml_window_position(const ml_window *window, int device);
int ml_window_freeze_locked(ml_window *window, uint32_t keys, ml_recording **out);

int ml_recorder_walk(ml_feed *feed, ml_walk *walk, const ml_walk_visitor *visitor);
ml_stacks *ml_recorder_stacks(void);
const ml_symbolizer *ml_recorder_symbolizer(void);
/* Sets the thread's error sentence; returns ERROR. */
int ml_recorder_fail(int error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
