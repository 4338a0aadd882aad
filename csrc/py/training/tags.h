/* The memory of tensors, handed to a recording with its owner.
 *
 * Owns how a tensor's memory is found, also of one that wraps others, and how a
 * parameter, its gradient and a buffer are told. */
#ifndef ML_PY_TAGS_H
#define ML_PY_TAGS_H

#include <stdbool.h>

#include "objects/tensors.h"
#include "training/paths.h"
#include "training/snapshot_type.h"

typedef struct ml_tagging {
    ml_shared_window *shared;  /* to be dropped; NULL: not recording */
    PyObject *tensor_type;     /* borrowed */
    const ml_tensors *tensors; /* the bridge's; NULL: there are none */
    bool cpu;                  /* tensors of the host are wanted, else those of CUDA */
    ml_paths *paths;           /* borrowed; NULL: no module is known */
    long count;                /* tensors tagged */
    long strangers;            /* parameters that no look at modules has met */
    bool steps; /* gradients are left to optimizers' steps, which read some of them */
} ml_tagging;

/* Not isinstance(): that would run __class__ of whatever lies on the heap. */
static inline bool
ml_is_instance(PyObject *object, PyObject *type)
{
    return PyType_IsSubtype(Py_TYPE(object), (PyTypeObject *)type);
}

/* No Python code runs in these, so dicts cannot change while they are gone through. */

/* TENSOR may be no tensor, which is left alone; likewise below. */
void ml_tag_tensor(ml_tagging *to, PyObject *tensor, const ml_owner *owner);
void ml_tag_buffer(ml_tagging *to, PyObject *buffer);
/* The gradient of PARAMETER alone. */
void ml_tag_gradient(ml_tagging *to, PyObject *parameter);
/* And its gradient. */
void ml_tag_parameter(ml_tagging *to, PyObject *parameter);
/* Whether TENSOR has one of FLAGS. */
bool ml_tag_has_flag(const ml_tagging *to, PyObject *tensor, uint32_t flags);

#endif
