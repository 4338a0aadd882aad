/* The module's functions about holders of objects. */
#ifndef ML_PY_HOLDERS_H
#define ML_PY_HOLDERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern const char ml_holders_use_doc[];
PyObject *ml_holders_use(PyObject *module, PyObject *capsule);

extern const char ml_holders_find_doc[];
PyObject *ml_holders_find(PyObject *module, PyObject *args);

#endif
