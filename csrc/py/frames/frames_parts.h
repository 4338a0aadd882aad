/* Internals of stack capture, shared by frames.c (the walk and its ids),
 * frames_public.c (Python's own functions) and frames_check.c (their comparison). */
#ifndef ML_FRAMES_PARTS_H
#define ML_FRAMES_PARTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/stacks/stack_cache.h"
#include "core/stacks/stacks.h"
#include "frames/frames.h"

#define ML_FRAMES_INNER (ML_FRAMES_MAX - ML_FRAMES_OUTER)

enum ml_capture {
    ML_CAPTURE_OFF,    /* not checked yet, or no safe way known */
    ML_CAPTURE_WALK,   /* by plain reads, on any thread */
    ML_CAPTURE_PUBLIC, /* by the public API, on threads that hold the GIL */
};

/* Threads whose walks met a call to report, hashed by address; the later of two in one
 * slot stays. */
#define ML_FRAMES_CALLERS 64

/* How the frames of a process are read.  Walks read it without the GIL. */
typedef struct ml_frames_way {
    _Atomic int capture;        /* enum ml_capture */
    const char *_Atomic reason; /* static; why walks are impossible */
    /* The code whose frames carry an object; never freed, because a walk may be reading
     * it. */
    PyCodeObject *_Atomic followed;
    _Atomic uintptr_t callers[ML_FRAMES_CALLERS];
} ml_frames_way;

extern ml_frames_way ml_frames;

/* Sets MODE.  REASON, static: why walks are impossible; NULL: they are possible. */
void ml_frames_capture_by(enum ml_capture mode, const char *reason);

/* Fills WALKED with the frames of THREAD; with none if THREAD is NULL. */
void ml_frames_walk(const PyThreadState *thread, ml_walked *walked);
/* All of *KEY but its object.  False for a frame that Python does not show yet. */
bool ml_frames_key(const ml_seen_frame *seen, ml_frame_key *key);

/* The slot among ML_FRAMES_MAX of a frame counted from the innermost: callers overwrite
 * frames that will be left out. */
static inline size_t
ml_frames_public_place(size_t frame)
{
    return frame < ML_FRAMES_INNER
               ? frame
               : ML_FRAMES_INNER + (frame - ML_FRAMES_INNER) % ML_FRAMES_OUTER;
}

/* PyGILState_Check is of no use: once there was a subinterpreter, it is true on every
 * thread. */
bool ml_frames_holds_gil(void);
/* With the GIL.  A key's offset is the line, and no frame has an object.  Returns the
 * number of all frames; each is in its slot of KEYS. */
size_t ml_frames_public_walk(ml_frame_key *keys);

#endif
