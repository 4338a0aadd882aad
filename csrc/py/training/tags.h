/* The memory of tensors, passed to a recording with its owner.
 *
 * Owns how a tensor's memory is found, including that of a wrapper, and how a
 * parameter, its gradient and a buffer are tagged. */
#ifndef ML_PY_TAGS_H
#define ML_PY_TAGS_H

#include <stdbool.h>

#include "objects/tensors.h"
#include "training/paths.h"
#include "training/snapshot_type.h"

typedef struct ml_tagging {
    ml_state *state;           /* of memlab._core */
    ml_shared_window *shared;  /* to be dropped; NULL: not recording */
    PyObject *tensor_type;     /* borrowed */
    const ml_tensors *tensors; /* the bridge's; NULL: there are none */
    bool cpu;                  /* tags tensors of the host, else those of CUDA */
    ml_paths *paths;           /* borrowed; NULL: no module is known */
    long count;                /* tensors tagged */
    long strangers;            /* parameters that no look at modules has met */
    bool steps; /* optimizers' steps tag the gradients, if they read them */
} ml_tagging;

/* isinstance() would run __class__ of any object on the heap. */
static inline bool
ml_is_instance(PyObject *object, PyObject *type)
{
    return PyType_IsSubtype(Py_TYPE(object), (PyTypeObject *)type);
}

/* No Python code runs in these, so dicts cannot change during iteration. */

/* Before COUNT of OBJECTS are tagged, ML_FETCHED at most: brings into the cache what is read
 * of them, and of their GRADIENTS. */
void ml_tag_fetch(const ml_tagging *to, PyObject *const *objects, size_t count,
                  bool gradients);
/* If TENSOR is no tensor, does nothing; likewise below. */
void ml_tag_tensor(ml_tagging *to, PyObject *tensor, const ml_owner *owner);
void ml_tag_buffer(ml_tagging *to, PyObject *buffer);
/* Tags only the gradient of PARAMETER. */
void ml_tag_gradient(ml_tagging *to, PyObject *parameter);
/* Tags PARAMETER and its gradient. */
void ml_tag_parameter(ml_tagging *to, PyObject *parameter);
/* Whether TENSOR has one of FLAGS. */
bool ml_tag_has_flag(const ml_tagging *to, PyObject *tensor, uint32_t flags);

#endif
