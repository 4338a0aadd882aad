/* Who owns device memory, as far as Python objects tell.  See owners.h. */
#include "owners.h"

#include <stdbool.h>

#include "../core/recorder.h"
#include "snapshot_type.h"

typedef struct tagging {
    ml_shared_window *shared; /* to be dropped; NULL: not recording */
    PyObject *tensor_type;    /* borrowed */
    bool cpu;                 /* tensors of the host are wanted, else those of CUDA */
    long count;               /* tensors tagged */
} tagging;

/* What a stranger's tensor raises is not the program's concern; an interrupt is, and comes
 * back at the next bytecode. */
static void
swallow(void)
{
    bool interrupted =
        PyErr_Occurred() != NULL && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    PyErr_Clear();
    if (interrupted) {
        PyErr_SetInterrupt();
    }
}

static bool
is_instance(PyObject *object, PyObject *type)
{
    /* Not isinstance(): that would run __class__ of whatever lies on the heap. */
    return PyType_IsSubtype(Py_TYPE(object), (PyTypeObject *)type);
}

/* A tensor that cannot say where its memory is (meta, fake, functorch, sparse) owns
 * none that could be tagged. */
static bool
storage_of(const tagging *to, PyObject *tensor, int *device, uint64_t *addr)
{
    bool found = false;
    PyObject *is_cuda = PyObject_GetAttrString(tensor, "is_cuda");
    PyObject *index = NULL, *pointer = NULL;
    if (is_cuda == NULL || is_cuda == (to->cpu ? Py_True : Py_False)) {
        goto done;
    }
    *device = 0;
    if (!to->cpu) {
        index = PyObject_CallMethod(tensor, "get_device", NULL);
        if (index == NULL) {
            goto done;
        }
        *device = (int)PyLong_AsLong(index);
    }
    pointer = PyObject_CallMethod(tensor, "data_ptr", NULL);
    if (pointer == NULL) {
        goto done;
    }
    *addr = PyLong_AsUnsignedLongLong(pointer);
    found = !PyErr_Occurred() && *addr != 0;
done:
    swallow();
    Py_XDECREF(is_cuda);
    Py_XDECREF(index);
    Py_XDECREF(pointer);
    return found;
}

static void
tag(tagging *to, PyObject *tensor, enum ml_category category, PyObject *name)
{
    int device;
    uint64_t addr;
    if (!is_instance(tensor, to->tensor_type) ||
        !storage_of(to, tensor, &device, &addr)) {
        return;
    }
    Py_ssize_t length = 0;
    const char *text = name != NULL && PyUnicode_Check(name)
                           ? PyUnicode_AsUTF8AndSize(name, &length)
                           : NULL;
    if (text == NULL) {
        swallow();
        length = 0;
    }
    if (ml_window_tag(to->shared->window, device, addr, category, text,
                      (size_t)length) == 0) {
        to->count++;
    }
}

static void
tag_gradient(tagging *to, PyObject *parameter, PyObject *name)
{
    PyObject *gradient = PyObject_GetAttrString(parameter, "grad");
    if (gradient == NULL) {
        swallow();
        return;
    }
    tag(to, gradient, ML_CATEGORY_GRADIENT, name);
    Py_DECREF(gradient);
}

/* The dict behind an attribute that only the object itself holds, without running
 * __getattr__ of a stranger's class. New reference, or NULL without an exception. */
static PyObject *
own_dict(PyObject *object, const char *name)
{
    PyObject *attributes = PyObject_GenericGetDict(object, NULL);
    PyObject *value = NULL;
    if (attributes != NULL && PyDict_Check(attributes)) {
        value = PyDict_GetItemString(attributes, name);
        Py_XINCREF(value);
    }
    Py_XDECREF(attributes);
    swallow();
    if (value != NULL && !PyDict_Check(value)) {
        Py_CLEAR(value);
    }
    return value;
}

static void
tag_module(tagging *to, PyObject *object)
{
    Py_ssize_t position = 0;
    PyObject *name, *tensor;
    PyObject *parameters = own_dict(object, "_parameters");
    PyObject *copy = parameters != NULL ? PyDict_Copy(parameters) : NULL;
    while (copy != NULL && PyDict_Next(copy, &position, &name, &tensor)) {
        tag(to, tensor, ML_CATEGORY_PARAMETER, name);
        if (is_instance(tensor, to->tensor_type)) {
            tag_gradient(to, tensor, name);
        }
    }
    Py_XDECREF(parameters);
    Py_XDECREF(copy);
    PyObject *buffers = own_dict(object, "_buffers");
    copy = buffers != NULL ? PyDict_Copy(buffers) : NULL;
    position = 0;
    while (copy != NULL && PyDict_Next(copy, &position, &name, &tensor)) {
        tag(to, tensor, ML_CATEGORY_BUFFER, name);
    }
    Py_XDECREF(buffers);
    Py_XDECREF(copy);
    swallow();
}

static void
tag_optimizer(tagging *to, PyObject *object)
{
    /* state: {parameter: {name: tensor}} */
    PyObject *state = own_dict(object, "state");
    PyObject *copy = state != NULL ? PyDict_Copy(state) : NULL;
    Py_ssize_t position = 0;
    PyObject *parameter, *entries;
    while (copy != NULL && PyDict_Next(copy, &position, &parameter, &entries)) {
        if (!PyDict_Check(entries)) {
            continue;
        }
        PyObject *inner = PyDict_Copy(entries);
        Py_ssize_t at = 0;
        PyObject *name, *value;
        while (inner != NULL && PyDict_Next(inner, &at, &name, &value)) {
            tag(to, value, ML_CATEGORY_OPTIMIZER_STATE, name);
        }
        Py_XDECREF(inner);
    }
    Py_XDECREF(state);
    Py_XDECREF(copy);
    /* param_groups: [{"params": [tensor, ...]}, ...]: also parameters that no module
     * holds. */
    PyObject *attributes = PyObject_GenericGetDict(object, NULL);
    PyObject *groups =
        attributes != NULL ? PyDict_GetItemString(attributes, "param_groups") : NULL;
    Py_XINCREF(groups);
    Py_XDECREF(attributes);
    if (groups != NULL && PyList_Check(groups)) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(groups); i++) {
            PyObject *group = PyList_GET_ITEM(groups, i);
            PyObject *params =
                PyDict_Check(group) ? PyDict_GetItemString(group, "params") : NULL;
            if (params == NULL || !PyList_Check(params)) {
                continue;
            }
            PyObject *fixed = PyList_AsTuple(params);
            for (Py_ssize_t k = 0; fixed != NULL && k < PyTuple_GET_SIZE(fixed); k++) {
                PyObject *tensor = PyTuple_GET_ITEM(fixed, k);
                tag(to, tensor, ML_CATEGORY_PARAMETER, NULL);
                if (is_instance(tensor, to->tensor_type)) {
                    tag_gradient(to, tensor, NULL);
                }
            }
            Py_XDECREF(fixed);
        }
    }
    Py_XDECREF(groups);
    swallow();
}

static bool
begin_tagging(PyObject *module, PyObject *snapshot, PyObject *tensor_type, tagging *to)
{
    ml_state *state = PyModule_GetState(module);
    if (!PyObject_TypeCheck(snapshot, (PyTypeObject *)state->snapshot_type)) {
        PyErr_SetString(PyExc_TypeError, "the first argument must be a MemorySnapshot");
        return false;
    }
    if (!PyType_Check(tensor_type)) {
        PyErr_SetString(PyExc_TypeError, "the tensor type must be a type");
        return false;
    }
    *to = (tagging){.shared = ml_snapshot_share(snapshot),
                    .tensor_type = tensor_type,
                    .cpu = ml_snapshot_is_cpu(snapshot)};
    return true;
}

static bool
is_owner(PyObject *object, PyObject *module_type, PyObject *optimizer_type)
{
    return is_instance(object, module_type) || is_instance(object, optimizer_type);
}

/* The modules and optimizers among all objects of the interpreter; a new list.
 *
 * The list of all objects must be gone before any Python code runs: it refers to tuples
 * that other threads are still filling, and CPython raises SystemError in a thread whose
 * unfinished tuple someone else refers to. */
static PyObject *
find_owners(PyObject *module_type, PyObject *optimizer_type)
{
    PyObject *found = PyList_New(0);
    PyObject *gc = PyImport_ImportModule("gc");
    PyObject *all = gc != NULL ? PyObject_CallMethod(gc, "get_objects", NULL) : NULL;
    bool failed = found == NULL || all == NULL || !PyList_Check(all);
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(all); i++) {
        PyObject *object = PyList_GET_ITEM(all, i);
        failed = is_owner(object, module_type, optimizer_type) &&
                 PyList_Append(found, object) < 0;
    }
    Py_XDECREF(all);
    Py_XDECREF(gc);
    if (failed) {
        Py_CLEAR(found);
    }
    return found;
}

const char ml_owners_scan_doc[] =
    "tag_owners($module, snapshot, tensor_type, module_type, optimizer_type, objects, "
    "/)\n"
    "--\n\n"
    "Tags what the modules and optimizers among objects own now.\n\n"
    "objects is a list, or None for all objects of the interpreter. Objects of other "
    "types\n"
    "are passed over without running any code of theirs. Returns the number of "
    "tensors\n"
    "tagged.";

PyObject *
ml_owners_scan(PyObject *module, PyObject *args)
{
    PyObject *snapshot, *tensor_type, *module_type, *optimizer_type, *objects;
    if (!PyArg_ParseTuple(args, "OOOOO:tag_owners", &snapshot, &tensor_type,
                          &module_type, &optimizer_type, &objects)) {
        return NULL;
    }
    if (!PyType_Check(module_type) || !PyType_Check(optimizer_type)) {
        PyErr_SetString(PyExc_TypeError,
                        "the module and optimizer types must be types");
        return NULL;
    }
    PyObject *owners;
    if (objects == Py_None) {
        owners = find_owners(module_type, optimizer_type);
    }
    else {
        owners = PySequence_List(objects);
    }
    tagging to;
    if (owners == NULL || !begin_tagging(module, snapshot, tensor_type, &to)) {
        Py_XDECREF(owners);
        return NULL;
    }
    for (Py_ssize_t i = 0; to.shared != NULL && i < PyList_GET_SIZE(owners); i++) {
        PyObject *object = PyList_GET_ITEM(owners, i);
        if (is_instance(object, module_type)) {
            tag_module(&to, object);
        }
        else if (is_instance(object, optimizer_type)) {
            tag_optimizer(&to, object);
        }
    }
    ml_shared_window_drop(to.shared);
    Py_DECREF(owners);
    return PyLong_FromLong(to.count);
}
