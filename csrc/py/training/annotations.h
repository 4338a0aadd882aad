/* Functions of memlab._core by which Python reports steps, phases and marks.
 *
 * Owns the conversion of Python's names to notes; the recorder keeps the notes. */
#ifndef ML_PY_ANNOTATIONS_H
#define ML_PY_ANNOTATIONS_H

#include "state.h"

extern const char ml_py_noting_doc[];
PyObject *ml_py_noting(PyObject *module, PyObject *ignored);
extern const char ml_py_begin_phase_doc[];
PyObject *ml_py_begin_phase(PyObject *module, PyObject *name);
extern const char ml_py_end_phase_doc[];
PyObject *ml_py_end_phase(PyObject *module, PyObject *const *args, Py_ssize_t count);
extern const char ml_py_mark_doc[];
PyObject *ml_py_mark(PyObject *module, PyObject *name);
extern const char ml_py_note_before_oom_doc[];
PyObject *ml_py_note_before_oom(PyObject *module, PyObject *args);
extern const char ml_py_note_no_room_doc[];
PyObject *ml_py_note_no_room(PyObject *module, PyObject *args);
extern const char ml_py_note_holder_doc[];
PyObject *ml_py_note_holder(PyObject *module, PyObject *args);
extern const char ml_py_note_step_doc[];
PyObject *ml_py_note_step(PyObject *module, PyObject *ignored);

#endif
