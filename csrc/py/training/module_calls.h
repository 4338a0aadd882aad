/* The notice of a torch.nn.Module's call, for owners.
 *
 * Owns when the program's modules are looked at while they are called, and as they die:
 * a model in a function is gone by the end of a recording.  A module is noticed at the
 * first tensor that Python gets from torch in a call that allocated: torch.Tensor's
 * tp_alloc is the one place that torch passes with the GIL held and no lock of its own.
 * What the stacks of allocations met says whether there is a call to look at, so that
 * one that is known costs a load; torch's hooks on modules would cost each call a
 * microsecond, and torch.compile would trace them. */
#ifndef ML_PY_MODULE_CALLS_H
#define ML_PY_MODULE_CALLS_H

#include "state.h"

extern const char ml_module_calls_watch_doc[];
PyObject *ml_module_calls_watch(PyObject *module, PyObject *args);
extern const char ml_module_calls_forget_doc[];
PyObject *ml_module_calls_forget(PyObject *module, PyObject *snapshot);

#endif
