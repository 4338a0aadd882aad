/* The notes of a recording as Python objects. */
#ifndef ML_PY_NOTES_LIST_H
#define ML_PY_NOTES_LIST_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core/recording/recording.h"

/* New list of dicts, oldest first (if merged, rank by rank); NULL with an exception. */
PyObject *ml_py_notes(const ml_recording *recording);

#endif
