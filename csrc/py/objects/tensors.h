/* The torch bridge's view of tensors, which finds their memory without running their
 * code.
 *
 * Owns the view in use; torch/bridge.h defines it. */
#ifndef ML_PY_TENSORS_H
#define ML_PY_TENSORS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "torch/bridge.h"

/* NULL: no torch bridge is loaded, and there are no tensors. */
const ml_tensors *ml_tensors_view(void);
extern const char ml_tensors_use_doc[];
PyObject *ml_tensors_use(PyObject *module, PyObject *capsule);

#endif
