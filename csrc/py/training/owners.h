/* Who owns device memory, as far as Python objects tell: parameters, buffers,
 * gradients, optimizer state.
 *
 * Owns the rules by which modules and optimizers are read and their tensors' addresses
 * handed to a recording; it runs no code of theirs. */
#ifndef ML_PY_OWNERS_H
#define ML_PY_OWNERS_H

#include <stdbool.h>

#include "state.h"

extern const char ml_owners_scan_doc[];
PyObject *ml_owners_scan(PyObject *module, PyObject *args);
/* By which tensors, modules and optimizers are known: torch.Tensor and so on. */
typedef struct ml_owner_types {
    PyObject *tensor;
    PyObject *module;
    PyObject *optimizer;
} ml_owner_types;

/* The first recording that looks while modules are called begins. */
void ml_owners_begin(void);
/* SNAPSHOTS is a list of MemorySnapshots that keeps them alive.  Gradients too, but that a
 * look that is not the LAST leaves them to optimizers' steps, if there were any: those tell
 * which are read.  The number of tensors tagged, or -1 with an exception. */
long ml_owners_look(PyObject *module, PyObject *snapshots, const ml_owner_types *types,
                    bool last);
/* Tags the tensors in VALUE, of any type, as what a module was given.  No exception. */
void ml_owners_given(PyObject *module, PyObject *snapshots, const ml_owner_types *types,
                     PyObject *value);
/* Tags what OBJECT, a module without references maybe, owns itself, gradients as above.
 * No exception. */
void ml_owners_dying(PyObject *module, PyObject *snapshots, const ml_owner_types *types,
                     PyObject *object);
/* Whether OBJECT, a module, has parameters, buffers or modules of its own. */
bool ml_owners_may_own(PyObject *object);

extern const char ml_owners_name_modules_doc[];
PyObject *ml_owners_name_modules(PyObject *module, PyObject *module_type);

extern const char ml_owners_step_doc[];
PyObject *ml_owners_step(PyObject *module, PyObject *args);

/* The dict behind an attribute that only the object itself holds, without running
 * __getattr__ of its class. New reference, or NULL without an exception. */
PyObject *ml_own_dict(PyObject *object, const char *name);

#endif
