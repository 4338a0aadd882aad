/* Calls of torch.nn.Modules, noticed for owners.
 *
 * Owns when the program's modules are looked at: during their calls and at their
 * deaths, because a model in a function is gone by the end of a recording.  A module is
 * noticed at the first tensor that Python gets from torch in a call that allocated.
 * torch.Tensor's tp_alloc is the one place that torch passes with the GIL held and
 * without a lock of its own.
 *
 * The allocations' stacks tell whether there is a call to look at, so a known call
 * costs one load. torch's module hooks would cost each call a microsecond, and
 * torch.compile would trace them. */
#ifndef ML_PY_MODULE_CALLS_H
#define ML_PY_MODULE_CALLS_H

#include "state.h"

extern const char ml_module_calls_watch_doc[];
PyObject *ml_module_calls_watch(PyObject *module, PyObject *args);
extern const char ml_module_calls_forget_doc[];
PyObject *ml_module_calls_forget(PyObject *module, PyObject *snapshot);

#endif
