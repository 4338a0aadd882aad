/* The names by which an object refers to another: keys, attributes, slots.
 *
 * Owns how names are found and written.  Runs no code of the program: no repr, no
 * attribute access, no comparison of its objects. */
#ifndef ML_PY_HOLDERS_KEYS_H
#define ML_PY_HOLDERS_KEYS_H

#include "holders/holders_namer.h"

int ml_add_key(ml_namer *n, PyObject *key);

/* The key of VALUE in DICT, the NTH or else the last; borrowed; NULL: not among its
 * values. */
PyObject *ml_key_of(PyObject *dict, const PyObject *value, uint32_t nth);

/* The key by which the current step leads to VALUE; the same results. */
PyObject *ml_key_on_way(const ml_namer *n, PyObject *dict, const PyObject *value);

/* A new dict of OBJECT's own attributes; NULL without an exception if there are
 * none. */
PyObject *ml_attributes_of(PyObject *object);
bool ml_is_own_dict(PyObject *object, const PyObject *dict);

/* Names VALUE as an attribute of OBJECT.  1; 0 if it is none; or -1. */
int ml_add_attribute(ml_namer *n, PyObject *object, PyObject *value);

/* Whether OBJECT, which may be NULL, has a type of this name. */
static inline bool
ml_is_named(const PyObject *object, const char *name)
{
    return object != NULL && strcmp(Py_TYPE(object)->tp_name, name) == 0;
}

static inline PyObject *
ml_qualname(PyObject *function)
{
    return ((PyFunctionObject *)function)->func_qualname;
}

#endif
