/* References of containers in words: dicts, lists, tuples, deques, sets.
 *
 * Owns the words for a place in each, also if the container belongs to another object:
 * a function's defaults, a frame's variables. */
#ifndef ML_PY_HOLDERS_CONTAINERS_H
#define ML_PY_HOLDERS_CONTAINERS_H

#include "holders/holders_namer.h"

/* Names the reference of the container OBJECT, at place I, to VALUE.  1: named; 0:
 * OBJECT is no container or lacks VALUE; or -1. */
int ml_name_in_container(ml_namer *n, size_t i, PyObject *object, PyObject *value);

/* OBJECT is the dict store of a threading.local. */
bool ml_is_local_store(const PyObject *object);

#endif
