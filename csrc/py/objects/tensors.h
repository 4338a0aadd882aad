/* The torch bridge's view of tensors, by which their memory is found without running any
 * code of theirs.
 *
 * Owns the one that was taken; what it offers is torch/bridge.h's. */
#ifndef ML_PY_TENSORS_H
#define ML_PY_TENSORS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "torch/bridge.h"

/* NULL: no torch bridge is loaded, and there are no tensors to look at. */
const ml_tensors *ml_tensors_view(void);
extern const char ml_tensors_use_doc[];
PyObject *ml_tensors_use(PyObject *module, PyObject *capsule);

#endif
