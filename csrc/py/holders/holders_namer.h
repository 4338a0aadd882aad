/* A path while it is put into words.
 *
 * Owns the chain of things from a root to a target, and the steps so far, each a Python
 * tuple. _objects/holders.py makes sentences of them. */
#ifndef ML_PY_HOLDERS_NAMER_H
#define ML_PY_HOLDERS_NAMER_H

#include "holders/holders_walk.h"

typedef struct ml_namer {
    ml_walk *walk;
    PyObject *steps; /* owned: a list */
    uint32_t *chain; /* indices of things, the root first, the target last */
    size_t count;
    /* Returns the path of a key; NULL: this is such a path, which follows no further
     * keys. */
    PyObject *(*key_path)(ml_walk *walk, const ml_hold *hold);
    bool last;    /* the current step leads to the target */
    uint32_t nth; /* if so, the number of the reference among equal ones */
} ml_namer;

/* Appends STEP, whose reference is taken; NULL passes an exception on.  0, or -1. */
int ml_namer_add(ml_namer *n, PyObject *step);
int ml_namer_add_name(ml_namer *n, const char *name);

const ml_thing *ml_namer_thing(const ml_namer *n, size_t i);
/* The object at place I of the chain; NULL if there is none. */
PyObject *ml_namer_object(const ml_namer *n, size_t i);
/* The object BACK places before I. */
PyObject *ml_namer_object_before(const ml_namer *n, size_t i, size_t back);

#endif
