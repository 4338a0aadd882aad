/* The names by which an object refers to another: keys, attributes, slots.
 *
 * Owns how they are found and told.  Runs no code of the program: no repr, no attribute
 * access, no comparison of its objects. */
#ifndef ML_PY_HOLDERS_KEYS_H
#define ML_PY_HOLDERS_KEYS_H

#include "holders/holders_namer.h"

int ml_add_key(ml_namer *n, PyObject *key);

/* The key of VALUE in DICT, the last one where NTH is beyond it; borrowed, NULL: it is
 * none of its values. */
PyObject *ml_key_of(PyObject *dict, const PyObject *value, uint32_t nth);

/* The key by which the step that is named now leads to VALUE; likewise. */
PyObject *ml_key_on_way(const ml_namer *n, PyObject *dict, const PyObject *value);

/* The dict of the attributes of OBJECT itself, or NULL without an exception; new. */
PyObject *ml_attributes_of(PyObject *object);
bool ml_is_own_dict(PyObject *object, const PyObject *dict);

/* Names VALUE as an attribute of OBJECT.  1, 0 where it is none, or -1. */
int ml_add_attribute(ml_namer *n, PyObject *object, PyObject *value);

/* OBJECT, which may be NULL, is of the type of that name. */
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
