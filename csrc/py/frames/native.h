/* C++ frames for stacks="all": joins the bridge's unwinder to the recorder.
 *
 * Owns no frames; this is the opt-in path that takes locks and memory in the allocator's
 * callback, apart from everything else there. */
#ifndef ML_PY_NATIVE_H
#define ML_PY_NATIVE_H

#include "state.h"

extern const char ml_native_use_doc[];
PyObject *ml_native_use(PyObject *module, PyObject *capsule);

#endif
