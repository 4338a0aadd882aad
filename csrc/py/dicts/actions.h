/* Actions of events by their names, as Python gives them. */
#ifndef ML_PY_ACTIONS_H
#define ML_PY_ACTIONS_H

#include <Python.h>

#include <stdint.h>

/* Sets the bit 1 << action for each of NAMES, a sequence of str, or NULL.  0, or -1
 * with TypeError or ValueError. */
int ml_py_actions(PyObject *names, uint32_t *actions);

#endif
