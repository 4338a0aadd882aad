/* What containers hold, in words: dicts, lists, tuples, deques, sets.
 *
 * Owns how a place in each is told, also where the container is part of another object: a
 * function's defaults, a frame's variables. */
#ifndef ML_PY_HOLDERS_CONTAINERS_H
#define ML_PY_HOLDERS_CONTAINERS_H

#include "holders/holders_namer.h"

/* Names the reference of the container OBJECT, at place I, to VALUE.  1: named, 0: OBJECT
 * is no container or VALUE none of its items, or -1. */
int ml_name_in_container(ml_namer *n, size_t i, PyObject *object, PyObject *value);

/* OBJECT is what a threading.local keeps its dicts in. */
bool ml_is_local_store(const PyObject *object);

#endif
