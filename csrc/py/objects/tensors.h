/* The torch bridge's view of tensors, which finds their memory without running their
 * code.
 *
 * ml_state has the view in use; torch/bridge.h defines it. */
#ifndef ML_PY_TENSORS_H
#define ML_PY_TENSORS_H

#include "state.h"
#include "torch/bridge.h"

extern const char ml_tensors_use_doc[];
PyObject *ml_tensors_use(PyObject *module, PyObject *capsule);

#endif
