/* The module and name of each parameter and buffer.
 *
 * Owns the map from tensors to paths, remade whenever modules are named.  By it,
 * optimizers, whose tensors have no names, are read.  It keeps no tensor alive: a mark
 * (torch/bridge.h) identifies each, so that another one at its address is not mistaken
 * for it.  Objects without a mark have a weak reference. */
#ifndef ML_PY_PATHS_H
#define ML_PY_PATHS_H

#include <stdbool.h>

#include "objects/tensors.h"

typedef struct ml_paths ml_paths;

/* The path of one tensor.  Strings are ids of the recorder's stack table; 0: in no
 * module. */
typedef struct ml_path {
    uint32_t module; /* the module's path */
    uint32_t name;   /* "weight" */
    uint32_t slot;   /* for ml_paths_state */
} ml_path;

/* An empty map of TENSORS, the bridge's view (NULL: none), that recognises modules by
 * MODULE_TYPE; NULL without memory. */
ml_paths *ml_paths_begin(const ml_tensors *tensors, PyObject *module_type);
/* The first module that has TENSOR names it, as in named_parameters(); NAME is its key
 * there.  MODULE 0: no module has it.  No garbage collection may run meanwhile. */
void ml_paths_add(ml_paths *paths, PyObject *tensor, uint32_t module, PyObject *name);
/* DONE: PATHS replaces the map of STATE; else it is freed.  Accepts NULL. */
void ml_paths_end(ml_state *state, ml_paths *paths, bool done);
void ml_paths_free(ml_paths *paths); /* takes NULL */

/* Brings into the cache what is read to find COUNT of TENSORS.  PATHS may be NULL. */
void ml_paths_fetch(const ml_paths *paths, PyObject *const *tensors, size_t count);
/* False, with an empty path, if TENSOR is unknown.  PATHS may be NULL. */
bool ml_paths_find(const ml_paths *paths, PyObject *tensor, ml_path *out);
/* The string id of "weight.exp_avg", for the tensor at PATH. */
uint32_t ml_paths_state(ml_paths *paths, const ml_path *path, PyObject *key);
/* The MODULE_TYPE of ml_paths_begin, borrowed.  NULL if PATHS is. */
PyObject *ml_paths_module_type(const ml_paths *paths);

#endif
