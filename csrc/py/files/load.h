/* Files of foreign origin as Python objects.
 *
 * Owns the step from value trees to Python. */
#ifndef ML_PY_LOAD_H
#define ML_PY_LOAD_H

#include <Python.h>

#include "core/file/snapshot/value.h"

/* What pickle.loads(BYTES_LIKE) gives for plain data, without running anything: new
 * reference.  Objects that the file shares are shared.  On failure raises ERROR_CLASS
 * with one argument, the clause of ml_read_error; MemoryError; or TypeError where
 * BYTES_LIKE has no buffer. */
PyObject *ml_py_load(PyObject *bytes_like, PyObject *error_class);

/* Raises ERROR as above and returns NULL. */
PyObject *ml_py_raise_read(const ml_read_error *error, PyObject *error_class);

#endif
