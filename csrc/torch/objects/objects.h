/* Python's objects of torch, and their identities.
 *
 * Owns torch's Python types and the identity of their objects.  Runs no Python code;
 * needs the GIL.  C++. */
#ifndef ML_OBJECTS_H
#define ML_OBJECTS_H

#include <Python.h>

#include <ATen/core/TensorBase.h>

#include "bridge.h"

/* Borrowed from torch._C, which is never freed; NULL: this torch has none. */
struct ml_types {
    PyObject *tensor;
    PyObject *storage;
    PyObject *function;
    PyObject *nodes;       /* a dict: types of C++ nodes by name */
    traverseproc traverse; /* of the types of C++ nodes */
};

ml_types ml_types_find() noexcept;

/* ML_GRAPH_IS_*: the kind of the instances of TYPE, a PyTypeObject *. */
int ml_classify(const ml_types &types, const void *type) noexcept;

/* The type of the C++ nodes of NAME, or NULL. */
PyTypeObject *ml_type_of_node(const ml_types &types, const char *name) noexcept;

/* As ml_graph.identity. */
int ml_identity(const void *object, int what, ml_graph_identity *out) noexcept;

/* ml_graph_identity's name for TENSOR's storage; NULL: it has none. */
const void *ml_storage_identity(const at::TensorBase &tensor);

#endif
