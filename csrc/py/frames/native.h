/* C++ frames for stacks="all": connects the bridge's unwinder to the recorder.
 *
 * This opt-in path takes locks and memory in the allocator's callback, unlike all other
 * code there. */
#ifndef ML_PY_NATIVE_H
#define ML_PY_NATIVE_H

#include "state.h"

extern const char ml_native_use_doc[];
PyObject *ml_native_use(PyObject *module, PyObject *capsule);

#endif
