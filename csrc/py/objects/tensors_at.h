/* The module's function that finds the tensors at an address. */
#ifndef ML_PY_TENSORS_AT_H
#define ML_PY_TENSORS_AT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern const char ml_py_tensors_at_doc[];
PyObject *ml_py_tensors_at(PyObject *module, PyObject *args);

#endif
