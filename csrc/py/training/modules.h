/* The names of the program's torch.nn.Modules, for the stacks that ran in them.
 *
 * Owns the naming rule and the watch on modules' deaths.  Reads modules without running
 * their code.  Names are given at a recording's start, at the first call of an unnamed
 * module, before its first optimizer step, and when the recording is read. */
#ifndef ML_PY_MODULES_H
#define ML_PY_MODULES_H

#include "state.h"

/* Names the modules among OBJECTS, a list that keeps them alive, with their parameters
 * and buffers (paths.h), including those kept by units among them (shards.h).  Follows
 * calls through MODULE_TYPE.  From now on, ml_state.module_died is told as one of them
 * dies: the object still has its attributes, but may have no references.  0, or -1 with
 * an exception. */
int ml_modules_name(PyObject *module, PyObject *objects, PyObject *module_type);

#endif
