/* Frames as holders of objects: threads' frames, which from CPython 3.11 on are no
 * objects, and those of frame objects and generators.
 *
 * Owns a frame's references and their names.  Makes no frame object, runs no Python
 * code, takes no reference.  Needs the GIL; pointers are valid while it is held. */
#ifndef ML_PY_HOLDERS_FRAMES_H
#define ML_PY_HOLDERS_FRAMES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

/* The interpreter's own structure; every use of one is in holders_frames.c. */
typedef struct ml_frame ml_frame;

/* The innermost frame of THREAD, and the one that called FRAME; NULL: none. */
const ml_frame *ml_frame_first(const PyThreadState *thread);
const ml_frame *ml_frame_next(const ml_frame *frame);

/* The frame within OBJECT, a frame object, generator or coroutine; NULL for others. */
const ml_frame *ml_frame_within(PyObject *object);

/* Visits locals, cells, the function, and locals outside the frame.  It skips a running
 * frame's stack, whose height is unknown. */
int ml_frame_visit(const ml_frame *frame, visitproc visit, void *arg);

/* Visits possible references on the stack of running FRAME.  Old entries are included,
 * so a pointer may be dangling: only compare it. */
void ml_frame_visit_stack(const ml_frame *frame,
                          void (*visit)(const void *address, void *arg), void *arg);

PyCodeObject *ml_frame_code(const ml_frame *frame);
PyObject *ml_frame_globals(const ml_frame *frame);
/* The dict of a class body or of exec(); NULL if locals are in the frame. */
PyObject *ml_frame_locals(const ml_frame *frame);
/* Whether DICT has FRAME's locals by name: the frame's own dict, or one made by
 * f_locals. */
bool ml_frame_shows(const ml_frame *frame, const PyObject *dict);
int ml_frame_line(const ml_frame *frame);
/* The name of the local or cell that is OBJECT, the NTH from 0, or else the last;
 * borrowed; NULL: none. */
PyObject *ml_frame_name_of(const ml_frame *frame, const PyObject *object, uint32_t nth);

#endif
