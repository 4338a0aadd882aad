/* The type Courtesy, and its source of the bridge's function table for moving
 * memory. */
#ifndef ML_PY_COURTESY_H
#define ML_PY_COURTESY_H

#include "state.h"

extern const char ml_courtesy_use_doc[];
PyObject *ml_courtesy_use(PyObject *module, PyObject *capsule);

/* Makes the heap type in MODULE; a new reference, or NULL. */
PyObject *ml_courtesy_type_new(PyObject *module);

#endif
