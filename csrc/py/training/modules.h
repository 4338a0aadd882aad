/* The names of the program's torch.nn.Modules, for the stacks that ran in them.
 *
 * Owns the rule by which a module is named and the watch on its death; the modules are
 * read without running any code of theirs.  Names are given when a recording begins, at
 * the first call of a module that has none, before its first optimizer step, and when it
 * is read. */
#ifndef ML_PY_MODULES_H
#define ML_PY_MODULES_H

#include "state.h"

/* Names the modules among OBJECTS, a list that keeps them alive, and their parameters
 * and buffers (paths.h), those that units among them keep (shards.h) too; follows calls
 * through MODULE_TYPE.  0, or -1 with an exception. */
int ml_modules_name(PyObject *module, PyObject *objects, PyObject *module_type);

/* TOLD is called with each module that was named as it dies: its attributes are there for
 * the last time, and it may have no references. */
void ml_modules_at_end(void (*told)(PyObject *object));

#endif
