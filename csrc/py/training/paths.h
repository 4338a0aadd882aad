/* Which module has a parameter or a buffer, and by what name.
 *
 * Owns the map from tensors to paths, made anew whenever modules are named, by which
 * optimizers, that hold tensors without names, are read.  It keeps no tensor alive:
 * each is known by a mark (torch/bridge.h), so that another one at its address is not
 * taken for it; what can have no mark, by a weak reference. */
#ifndef ML_PY_PATHS_H
#define ML_PY_PATHS_H

#include <stdbool.h>

#include "state.h"

typedef struct ml_paths ml_paths;

/* Of one tensor.  Strings are ids of the recorder's stack table; 0: in no module. */
typedef struct ml_path {
    uint32_t module; /* the module's path */
    uint32_t name;   /* "weight" */
    uint32_t slot;   /* for ml_paths_state */
} ml_path;

/* An empty map that knows how modules are told; NULL without memory. */
ml_paths *ml_paths_begin(PyObject *module_type);
/* The first module that has TENSOR names it, as in named_parameters(); NAME is the key
 * there.  MODULE 0: no module has it.  Garbage is not collected meanwhile. */
void ml_paths_add(ml_paths *paths, PyObject *tensor, uint32_t module, PyObject *name);
/* PATHS replaces the map of STATE, or is given up.  Takes NULL. */
void ml_paths_end(ml_state *state, ml_paths *paths, bool done);
void ml_paths_free(ml_paths *paths); /* takes NULL */

/* False, and a path of nothing, where TENSOR is not known.  PATHS may be NULL. */
bool ml_paths_find(const ml_paths *paths, PyObject *tensor, ml_path *out);
/* The string id of "weight.exp_avg", for the tensor at PATH. */
uint32_t ml_paths_state(ml_paths *paths, const ml_path *path, PyObject *key);
/* By which ml_paths_begin knew modules; borrowed.  NULL where PATHS is. */
PyObject *ml_paths_module_type(const ml_paths *paths);

#endif
