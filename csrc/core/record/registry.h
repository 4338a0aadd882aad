/* The registry: all that the recorder of a process has, in one struct.
 *
 * Owns the sources with their feeds, the table of stacks, the walkers, the places of
 * the windows under way, and the lock for all of these.  It does not know what a window
 * is: recorder.c begins and ends them.  Notes and samples have locks of their own.
 * ml_recorder_fini makes it as in a program that has just begun. */
#ifndef ML_REGISTRY_H
#define ML_REGISTRY_H

#include <pthread.h>

#include "record/feed.h"
#include "record/notes.h"
#include "record/recorder.h"
#include "record/sampler.h"

/* Length of a sentence about a failure. */
#define ML_RECORDER_TEXT 512

typedef struct ml_registry {
    pthread_mutex_t lock;
    ml_stacks *stacks; /* owned, never freed: callbacks may read ids in lanes */
    ml_stack_walker walker;
    ml_forward_reader forward;
    ml_native_walker native_walker;
    ml_symbolizer symbolizer;
    _Atomic(ml_torchscript_frames) torchscript; /* NULL: no such program has run */
    ml_feed feeds[ML_SOURCE_MAX];
    _Atomic int feed_count; /* grows only; feeds below it are complete */
    ml_window *windows[ML_WINDOW_MAX];
    ml_notes notes;
    ml_sampler sampler;
    struct ml_script *script; /* owned; the scripted source; NULL: none */
    bool follows_forks;       /* stays: pthread_atfork cannot be undone */
} ml_registry;

extern ml_registry ml_registered;

void ml_recorder_lock(void);
void ml_recorder_unlock(void);
/* The window in slot SLOT, below ML_WINDOW_MAX; NULL: none. */
ml_window *ml_recorder_window(unsigned slot);
ml_stacks *ml_recorder_stacks(void);
const ml_symbolizer *ml_recorder_symbolizer(void);
/* Walks over the memory of FEED's source as WALK.  0 or ML_E*, with the reason. */
int ml_recorder_walk(ml_feed *feed, ml_feed_walk *walk, const ml_walk_visitor *visitor);

/* Sets the thread's error sentence; returns ERROR. */
int ml_recorder_fail(int error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same with the sentence of FEED's source about its last failure. */
int ml_recorder_fail_source(const ml_feed *feed, int error);

#endif
