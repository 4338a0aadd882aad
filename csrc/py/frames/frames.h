/* The calling thread's Python stack, as a stack id, without the GIL.
 *
 * Owns the walk over CPython's frames; frame_layout.h has their layout, codes.h the
 * texts of code objects.  If the layout is unknown, it captures by the public API, only
 * on threads that hold the GIL.  No function here ever waits for the GIL. */
#ifndef ML_FRAMES_H
#define ML_FRAMES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

/* For the allocator callback; never nested on a thread.  Without lock, allocation, I/O
 * or reference count.  CONTEXT is the ml_stacks to intern in.  Returns the id of the
 * calling thread's Python stack; or 0 with ML_EVENT_NO_PYTHON or ML_EVENT_STACK_LOST
 * added to *FLAGS. */
uint32_t ml_frames_capture(void *context, uint8_t *flags);

/* Compares the walk with Python's public API and chooses how to capture from then on.
 * Once the walk is chosen, later calls do nothing.  With the GIL, before the first
 * capture; leaves no exception.  Returns 1 if the walk may be used, else 0. */
int ml_frames_self_check(void);

/* From now on, frames of CODE, which is kept forever, carry the object in their first
 * argument; those of an earlier CODE no longer do.  With the GIL.  False, and no
 * change, if the frame does not always have the first argument. */
bool ml_frames_follow(PyCodeObject *code);

/* A followed call in progress.  All members are borrowed from its frame. */
typedef struct ml_call {
    PyObject *object;
    /* The other arguments.  NULL: unknown.  The function may have assigned any object
     * to them. */
    PyObject *args;
    PyObject *kwargs;
} ml_call;

/* Whether a capture on the calling thread, which has the GIL, met an outermost followed
 * call, or one whose object has no name, since the last query.  A thread may overwrite
 * another's entry; the result is then false once too often. */
bool ml_frames_called(void);

/* The followed calls in progress on the calling thread, which has the GIL, innermost
 * first.  Returns their number.  If CAPACITY (not 0) is too small, the last entry is
 * still the outermost. */
size_t ml_frames_calls(ml_call *calls, size_t capacity);

/* Whether stacks are captured without the GIL; if not, *REASON (static) says why. */
bool ml_frames_supported(const char **reason);

#endif
