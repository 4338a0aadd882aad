/* The calling thread's Python stack, as a stack id, without the GIL.
 *
 * Owns the walk over CPython's frames; frame_layout.h knows how they lie in memory, and
 * codes.h what a code object says.  Where the layout is not known it captures through the
 * public API instead, and then only on threads that hold the GIL already: no function
 * here ever waits for it. */
#ifndef ML_FRAMES_H
#define ML_FRAMES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

/* For the allocator callback, never twice at once on a thread: no lock, no allocation, no
 * I/O, no reference count.  CONTEXT is the ml_stacks to intern in.  Returns the id of the
 * calling thread's Python stack, or 0 with ML_EVENT_NO_PYTHON or ML_EVENT_STACK_LOST added
 * to *FLAGS. */
uint32_t ml_frames_capture(void *context, uint8_t *flags);

/* Compares the walk with what Python's public API says and decides by that how stacks
 * are captured from now on; once that is the walk, later calls do nothing.  With the
 * GIL, before the first capture; Python's error indicator is left clear.  1 if the walk may
 * be used, else 0. */
int ml_frames_self_check(void);

/* From now on frames of CODE, which is kept for ever, carry the object that is their first
 * argument; no longer those of an earlier one.  With the GIL.  False, and nothing
 * changes, where the first argument is not to be found in the frame at all times. */
bool ml_frames_follow(PyCodeObject *code);

/* A call that is followed and under way.  All is borrowed from its frame. */
typedef struct ml_call {
    PyObject *object;
    /* What was given besides: NULL where it is not known, and anything at all where the
     * function put something else in its place. */
    PyObject *args;
    PyObject *kwargs;
} ml_call;

/* Whether a capture on the calling thread, which has the GIL, met a call that is followed
 * and within no other such call, or whose object has no name, since this was last asked.
 * Threads may take each other's place: then this is false once too often. */
bool ml_frames_called(void);

/* The calls that the calling thread, which has the GIL, is in now, innermost first, the
 * last of which is the outermost also where CAPACITY, not 0, is too small; their
 * number. */
size_t ml_frames_calls(ml_call *calls, size_t capacity);

/* Whether stacks are captured without the GIL; if not, *REASON (static) says why. */
bool ml_frames_supported(const char **reason);

#endif
