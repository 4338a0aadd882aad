/* Adds a hook to torch's hooks on optimizer steps, at any moment.
 *
 * Owns the rule by which a dict of hooks accepts a hook while a step iterates over
 * it. */
#ifndef ML_PY_STEP_HOOKS_H
#define ML_PY_STEP_HOOKS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern const char ml_step_hooks_put_doc[];
PyObject *ml_step_hooks_put(PyObject *module, PyObject *args);

#endif
