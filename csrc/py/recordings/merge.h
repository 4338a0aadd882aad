/* memlab._core.merge: recordings of several ranks as one. */
#ifndef ML_PY_MERGE_H
#define ML_PY_MERGE_H

#include "state.h"

/* The module's function merge. */
extern const char ml_py_merge_doc[];
PyObject *ml_py_merge(PyObject *module, PyObject *items);

#endif
