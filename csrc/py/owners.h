/* Who owns device memory, as far as Python objects tell: parameters, buffers,
 * gradients, optimizer state.
 *
 * Owns the rules by which modules and optimizers are read and their tensors' addresses
 * handed to a recording; it runs no code of theirs. */
#ifndef ML_PY_OWNERS_H
#define ML_PY_OWNERS_H

#include "state.h"
#include "../torch/bridge.h"

extern const char ml_owners_scan_doc[];
PyObject *ml_owners_scan(PyObject *module, PyObject *args);
extern const char ml_owners_name_modules_doc[];
PyObject *ml_owners_name_modules(PyObject *module, PyObject *module_type);

extern const char ml_owners_step_doc[];
PyObject *ml_owners_step(PyObject *module, PyObject *args);

/* The dict behind an attribute that only the object itself holds, without running
 * __getattr__ of a stranger's class. New reference, or NULL without an exception. */
PyObject *ml_own_dict(PyObject *object, const char *name);

/* The view of tensors that ml_owners_use took; NULL: none yet. */
const ml_tensors *ml_owners_tensors(void);
extern const char ml_owners_use_doc[];
PyObject *ml_owners_use(PyObject *module, PyObject *capsule);

#endif
