/* The inside of the capture of stacks, shared by frames.c (the walk, and what is made of
 * it), frames_public.c (Python's own functions) and frames_check.c (whether both agree).
 * For no one else. */
#ifndef ML_FRAMES_PARTS_H
#define ML_FRAMES_PARTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>

#include "core/stacks/stack_cache.h"
#include "core/stacks/stacks.h"
#include "frames/frames.h"

#define ML_FRAMES_INNER (ML_FRAMES_MAX - ML_FRAMES_OUTER)

enum ml_capture {
    ML_CAPTURE_OFF,    /* not checked yet, or nothing safe is known */
    ML_CAPTURE_WALK,   /* by plain reads, on any thread */
    ML_CAPTURE_PUBLIC, /* by the public API, on threads that hold the GIL */
};

/* Whose frames carry an object; kept alive for ever, for a walk may be reading it. */
extern PyCodeObject *_Atomic ml_frames_followed;

/* From now on.  REASON, static, says why not by walks; NULL: so it is. */
void ml_frames_capture_by(enum ml_capture mode, const char *reason);

/* Fills WALKED with the frames of THREAD, or with none where that is NULL. */
void ml_frames_walk(const PyThreadState *thread, ml_walked *walked);
/* All of *KEY but its object.  False for a frame that Python does not show yet. */
bool ml_frames_key(const ml_seen_frame *seen, ml_frame_key *key);

/* The place of a frame, counted from the innermost, among ML_FRAMES_MAX: callers take those
 * of the frames to be left out. */
static inline size_t
ml_frames_public_place(size_t frame)
{
    return frame < ML_FRAMES_INNER
               ? frame
               : ML_FRAMES_INNER + (frame - ML_FRAMES_INNER) % ML_FRAMES_OUTER;
}

/* Not by PyGILState_Check, which says yes on every thread once there was a
 * subinterpreter. */
bool ml_frames_holds_gil(void);
/* With the GIL; a key's offset is the line, and no frame has an object.  The number of all
 * frames, each at its place in KEYS. */
size_t ml_frames_public_walk(ml_frame_key *keys);

#endif
