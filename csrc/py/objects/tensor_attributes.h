/* The tensors in a tensor subclass's attributes: the memory of one that wraps others.
 *
 * Owns reading them from slots and dict, without running code of the subclass. */
#ifndef ML_PY_TENSOR_ATTRIBUTES_H
#define ML_PY_TENSOR_ATTRIBUTES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define ML_ATTRIBUTES 32

typedef struct ml_attribute {
    const char *name; /* borrowed */
    PyObject *tensor; /* owned */
} ml_attribute;

/* The first ML_ATTRIBUTES of WRAPPER whose type derives from TENSOR_TYPE, slots before
 * the dict; returns their number. */
size_t ml_attributes_read(PyObject *wrapper, PyTypeObject *tensor_type,
                          ml_attribute out[ML_ATTRIBUTES]);
void ml_attributes_drop(ml_attribute *attributes, size_t count);

#endif
