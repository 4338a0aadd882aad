/* Files of foreign origin as Python objects.
 *
 * Owns the conversion of value trees to Python objects. */
#ifndef ML_PY_LOAD_H
#define ML_PY_LOAD_H

#include <Python.h>

#include "core/file/snapshot/value.h"

/* New reference: pickle.loads(BYTES_LIKE) for plain data, without executing anything.
 * Objects shared in the file stay shared.  Raises ERROR_CLASS with one argument, the
 * clause of ml_read_error; MemoryError; or TypeError if BYTES_LIKE has no buffer. */
PyObject *ml_py_load(PyObject *bytes_like, PyObject *error_class);

/* Raises ERROR as above and returns NULL. */
PyObject *ml_py_raise_read(const ml_read_error *error, PyObject *error_class);

#endif
