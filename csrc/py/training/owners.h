/* Owners of device memory, as Python objects tell: parameters, buffers, gradients,
 * optimizer state.
 *
 * Owns the rules for reading modules and optimizers and for passing their tensors'
 * addresses to a recording.  Runs none of their code. */
#ifndef ML_PY_OWNERS_H
#define ML_PY_OWNERS_H

#include <stdbool.h>

#include "state.h"

extern const char ml_owners_scan_doc[];
PyObject *ml_owners_scan(PyObject *module, PyObject *args);
/* The types that identify tensors, modules and optimizers: torch.Tensor and so on. */
typedef struct ml_owner_types {
    PyObject *tensor;
    PyObject *module;
    PyObject *optimizer;
} ml_owner_types;

/* SNAPSHOTS: a list of MemorySnapshots that keeps them alive.  Tags gradients too.  But
 * a look that is not the LAST leaves them to optimizers' steps, if there were any,
 * which tell the gradients they read.  Returns the number of tagged tensors, or -1 with
 * an exception. */
long ml_owners_look(PyObject *module, PyObject *snapshots, const ml_owner_types *types,
                    bool last);
/* Tags the tensors in VALUE, of any type, as a module's arguments.  Raises nothing. */
void ml_owners_given(PyObject *module, PyObject *snapshots, const ml_owner_types *types,
                     PyObject *value);
/* Tags what OBJECT, a module that may have no references, owns itself; gradients as
 * above.  Raises nothing. */
void ml_owners_dying(PyObject *module, PyObject *snapshots, const ml_owner_types *types,
                     PyObject *object);
/* Whether OBJECT, a module, has parameters, buffers or submodules. */
bool ml_owners_may_own(PyObject *object);

extern const char ml_owners_name_modules_doc[];
PyObject *ml_owners_name_modules(PyObject *module, PyObject *module_type);

extern const char ml_owners_step_doc[];
PyObject *ml_owners_step(PyObject *module, PyObject *args);

/* The dict behind an attribute that only the object itself holds, without running
 * __getattr__ of its class.  New reference; NULL without an exception. */
PyObject *ml_own_dict(PyObject *object, const char *name);

#endif
