/* A window: one recording under way.  Only these files know it: recorder.c begins and
 * ends windows, window_start.c learns the memory at a start, window.c tags,
 * window_freeze.c and window_freeze_lanes.c make recordings, current_memory.c chooses a
 * window, and leak_tracker.c follows one. */
#ifndef ML_WINDOW_H
#define ML_WINDOW_H

#include <pthread.h>

#include "record/feed.h"
#include "record/notes.h"
#include "record/recorder.h"
#include "record/registry.h"

typedef struct ml_window_tags {
    ml_tag *items; /* owned; name is a string id of the stack table */
    size_t count;
    size_t capacity;
} ml_window_tags;

/* Wanted stacks change from this position on. */
typedef struct ml_window_phase {
    ml_wanted wanted;
    uint64_t position[ML_DEVICE_MAX];
} ml_window_phase;

/* A feed's counts when a window began or was last cleared. */
typedef struct ml_window_counts {
    uint64_t dropped;
    uint64_t lost_stacks;
} ml_window_counts;

/* Guarded by the recorder's lock, but for the tags.  Arrays are by device of an ordered
 * source.  For an unordered source marks are by lane, and all else is in place 0. */
struct ml_window {
    ml_feed *feed; /* borrowed, never freed */
    ml_window_options options;
    unsigned slot;      /* index of this window's peaks in each device log */
    bool listening;     /* its events are being captured */
    bool forked;        /* the parent's, in a child: it gets nothing more */
    _Atomic bool begun; /* its marks are set; event_base never changes again */
    uint64_t marks[ML_DEVICE_MAX]; /* ordinals; where the window starts in each lane */
    uint64_t event_base[ML_DEVICE_MAX];     /* the device's event count at the start */
    uint64_t base_forgotten[ML_DEVICE_MAX]; /* events before the last clear */
    ml_window_counts counts[ML_DEVICE_MAX];
    ml_notes_mark notes; /* since its start, even while it waits */
    /* Guards the tags.  A thread that tags holds the GIL, and a holder of the
     * recorder's lock may have to wait for the GIL.  So this lock is held for moments
     * only, taken after the recorder's and before no other. */
    pthread_mutex_t tags_lock;
    _Atomic uint64_t entry_limit; /* its reach: newest events of a device */
    ml_window_tags tags[ML_DEVICE_MAX];
    ml_window_phase *phases; /* owned; the first from position 0 */
    size_t phase_count;
    size_t phase_capacity;
    ml_journal *journal; /* owned; NULL: no file */
};

_Static_assert(ML_FEED_LANES == ML_DEVICE_MAX, "marks serve devices and lanes alike");

/* How many of the newest events of a device hold those that OPTIONS want.  With skipped
 * actions this is a guess, 64 for each and at least a million: few MB.  Where more lie
 * between, the oldest are missing. */
uint64_t ml_window_reach(const ml_window_options *options);
/* Whether the window records DEVICE. */
bool ml_window_wants(const ml_window *window, int device);
/* Events of DEVICE since the window began; from any thread. */
uint64_t ml_window_position(const ml_window *window, int device);
/* FEED's counts so far on DEVICE. */
ml_window_counts ml_window_counts_now(const ml_feed *feed, int device);
/* The tags so far, by position, *COUNT of them; the caller frees *OUT.  0 or ML_ENOMEM. */
int ml_window_copy_tags(ml_window *window, int device, ml_tag **out, size_t *count);
/* Copies WINDOW's counts on DEVICE since it began into TRACE. */
void ml_window_copy_counts(const ml_window *window, int device, ml_device_trace *trace);
/* Fills the events and loss counts of TRACE, the one device of an unordered source.
 * The memory in TRACE, walked before, becomes that at the end of these events.  0 or
 * ML_E*. */
int ml_window_freeze_lanes(const ml_window *window, ml_device_trace *trace);
/* ENDS, of ML_DEVICE_MAX or NULL, gets the end of each device's lane at its instant. */
int ml_window_freeze_locked(ml_window *window, uint32_t keys, ml_recording **out,
                            uint64_t *ends);
/* The memory of FEED alone, without any window.  0 or ML_E*, with the reason. */
int ml_feed_freeze_locked(ml_feed *feed, ml_recording **out);

#endif
