/* Passes the memory of tensors, with its owner, to a recording.  See tags.h. */
#include "training/tags.h"

#include <string.h>

#include "objects/tensor_attributes.h"
#include "state.h"

static void
tag_memory(ml_tagging *to, const ml_tensor *memory, const ml_owner *owner)
{
    if ((memory->cuda == 0) == to->cpu &&
        ml_window_tag(to->shared->window, memory->device, memory->addr, owner) == 0) {
        to->count++;
    }
}

/* Deepest nesting of wrappers. */
#define WRAPPED_DEPTH 4

/* A tensor whose memory is that of its attributes, as a DTensor's; owned. */
typedef struct wrappers {
    PyObject *itself; /* NULL: it is none */
    PyObject *gradient;
} wrappers;

static int
find_wrapper(void *context, const ml_tensor_part *part)
{
    wrappers *found = context;
    PyObject **place = strcmp(part->suffix, "") == 0        ? &found->itself
                       : strcmp(part->suffix, ".grad") == 0 ? &found->gradient
                                                            : NULL;
    if (place != NULL && *place == NULL && part->object != NULL &&
        (part->flags & ML_TENSOR_WRAPPER) != 0) {
        *place = Py_NewRef((PyObject *)(uintptr_t)part->object);
    }
    return 0;
}

static void tag_wrapped(ml_tagging *to, PyObject *wrapper, const ml_owner *owner,
                        int depth);

/* Tags the memory of a wrapper too. */
static void
tag_within(ml_tagging *to, PyObject *tensor, const ml_owner *owner, int depth)
{
    ml_tensor memory;
    wrappers found = {NULL, NULL};
    if (to->tensors->storage(tensor, &memory)) {
        tag_memory(to, &memory, owner);
        return;
    }
    to->tensors->parts(tensor, find_wrapper, &found);
    if (found.itself != NULL) {
        tag_wrapped(to, tensor, owner, depth);
    }
    Py_XDECREF(found.itself);
    Py_XDECREF(found.gradient);
}

static void
tag_wrapped(ml_tagging *to, PyObject *wrapper, const ml_owner *owner, int depth)
{
    ml_attribute held[ML_ATTRIBUTES];
    if (depth < WRAPPED_DEPTH) {
        size_t count =
            ml_attributes_read(wrapper, (PyTypeObject *)to->tensor_type, held);
        for (size_t i = 0; i < count; i++) {
            tag_within(to, held[i].tensor, owner, depth + 1);
        }
        ml_attributes_drop(held, count);
    }
}

void
ml_tag_fetch(const ml_tagging *to, PyObject *const *objects, size_t count,
             bool gradients)
{
    const void *tensors[ML_FETCHED];
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        __builtin_prefetch(objects[i]);
    }
    for (size_t i = 0; i < count; i++) {
        if (ml_is_instance(objects[i], to->tensor_type)) {
            tensors[found++] = objects[i];
        }
    }
    to->tensors->fetch(tensors, found, gradients);
}

void
ml_tag_tensor(ml_tagging *to, PyObject *tensor, const ml_owner *owner)
{
    if (ml_is_instance(tensor, to->tensor_type)) {
        tag_within(to, tensor, owner, 0);
    }
}

void
ml_tag_buffer(ml_tagging *to, PyObject *buffer)
{
    ml_path path;
    ml_paths_find(to->paths, buffer, &path);
    ml_tag_tensor(to, buffer, &(ml_owner){ML_CATEGORY_BUFFER, path.module, path.name});
}

/* A gradient without a storage of its own: the owner of what it consists of. */
typedef struct sparse_gradient {
    ml_tagging *to;
    const ml_owner *owner;
} sparse_gradient;

static int
tag_component(void *context, const ml_tensor_part *part)
{
    const sparse_gradient *of = context;
    static const char grad[] = ".grad.";
    if (part->addr != 0 && strncmp(part->suffix, grad, sizeof(grad) - 1) == 0) {
        ml_tensor memory = {.addr = part->addr,
                            .device = part->device,
                            .cuda = strcmp(part->device_type, "cuda") == 0};
        tag_memory(of->to, &memory, of->owner);
    }
    return 0;
}

void
ml_tag_gradient(ml_tagging *to, PyObject *parameter)
{
    ml_path path;
    if (to->steps || !ml_is_instance(parameter, to->tensor_type)) {
        return;
    }
    ml_paths_find(to->paths, parameter, &path);
    ml_owner owner = {ML_CATEGORY_GRADIENT, path.module, path.name};
    ml_tensor memory;
    if (to->tensors->gradient(parameter, &memory)) {
        tag_memory(to, &memory, &owner);
    }
    else if (to->tensors->storage(parameter, &memory)) {
        sparse_gradient sparse = {to, &owner};
        to->tensors->parts(parameter, tag_component, &sparse);
    }
    else {
        /* Only a wrapper's gradient is one. */
        wrappers found = {NULL, NULL};
        to->tensors->parts(parameter, find_wrapper, &found);
        if (found.gradient != NULL) {
            tag_wrapped(to, found.gradient, &owner, 0);
        }
        Py_XDECREF(found.itself);
        Py_XDECREF(found.gradient);
    }
}

/* What DeepSpeed's ZeRO 3 keeps of PARAMETER on this rank, which is empty meanwhile; new
 * reference, NULL: nothing. */
static PyObject *
zero_shard(PyObject *parameter)
{
    PyObject *attributes = PyObject_GenericGetDict(parameter, NULL);
    /* Most parameters have none, and the name would be made for each. */
    bool any = attributes != NULL && PyDict_Check(attributes) &&
               PyDict_GET_SIZE(attributes) > 0;
    PyObject *shard = any ? ml_py_seek(attributes, "ds_tensor") : NULL;
    Py_XINCREF(shard);
    Py_XDECREF(attributes);
    PyErr_Clear();
    return shard;
}

void
ml_tag_parameter(ml_tagging *to, PyObject *parameter)
{
    ml_path path;
    ml_paths_find(to->paths, parameter, &path);
    ml_owner owner = {ML_CATEGORY_PARAMETER, path.module, path.name};
    ml_tag_tensor(to, parameter, &owner);
    PyObject *shard = zero_shard(parameter);
    if (shard != NULL) {
        ml_tag_tensor(to, shard, &owner);
        Py_DECREF(shard);
    }
    ml_tag_gradient(to, parameter);
}

/* Flags of the tensor itself, which comes first. */
static int
find_flags(void *context, const ml_tensor_part *part)
{
    *(uint32_t *)context = part->flags;
    return 1;
}

bool
ml_tag_has_flag(const ml_tagging *to, PyObject *tensor, uint32_t flags)
{
    uint32_t found = 0;
    if (ml_is_instance(tensor, to->tensor_type)) {
        to->tensors->parts(tensor, find_flags, &found);
    }
    return (found & flags) != 0;
}
