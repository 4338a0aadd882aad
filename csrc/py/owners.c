/* Who owns device memory, as far as Python objects tell.  See owners.h. */
#include "owners.h"

#include <stdbool.h>

#include "../core/recorder.h"
#include "collector.h"
#include "modules.h"
#include "paths.h"
#include "../torch/bridge.h"
#include "snapshot_type.h"

typedef struct tagging {
    ml_shared_window *shared; /* to be dropped; NULL: not recording */
    PyObject *tensor_type;    /* borrowed */
    bool cpu;                 /* tensors of the host are wanted, else those of CUDA */
    ml_paths *paths;          /* borrowed; NULL: no module is known */
    long count;               /* tensors tagged */
    long strangers;           /* parameters that no look at modules has met */
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

/* Set once; NULL: no torch bridge is loaded, and there are no tensors to look at. */
static const ml_tensors *tensors;

static void
tag_memory(tagging *to, const ml_tensor *memory, const ml_owner *owner)
{
    if ((memory->cuda == 0) == to->cpu &&
        ml_window_tag(to->shared->window, memory->device, memory->addr, owner) == 0) {
        to->count++;
    }
}

static void
tag(tagging *to, PyObject *tensor, const ml_owner *owner)
{
    ml_tensor memory;
    if (is_instance(tensor, to->tensor_type) && tensors->storage(tensor, &memory)) {
        tag_memory(to, &memory, owner);
    }
}

static void
tag_buffer(tagging *to, PyObject *buffer)
{
    ml_path path;
    ml_paths_find(to->paths, buffer, &path);
    tag(to, buffer, &(ml_owner){ML_CATEGORY_BUFFER, path.module, path.name});
}

static void
tag_parameter(tagging *to, PyObject *parameter)
{
    ml_tensor gradient;
    ml_path path;
    ml_paths_find(to->paths, parameter, &path);
    tag(to, parameter, &(ml_owner){ML_CATEGORY_PARAMETER, path.module, path.name});
    if (is_instance(parameter, to->tensor_type) &&
        tensors->gradient(parameter, &gradient)) {
        tag_memory(to, &gradient,
                   &(ml_owner){ML_CATEGORY_GRADIENT, path.module, path.name});
    }
}

PyObject *
ml_own_dict(PyObject *object, const char *name)
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

/* No Python code runs from here on, so dicts cannot change while they are gone through. */

static void
tag_module(tagging *to, PyObject *object)
{
    Py_ssize_t position = 0;
    PyObject *name, *tensor;
    PyObject *parameters = ml_own_dict(object, "_parameters");
    while (parameters != NULL && PyDict_Next(parameters, &position, &name, &tensor)) {
        tag_parameter(to, tensor);
    }
    Py_XDECREF(parameters);
    PyObject *buffers = ml_own_dict(object, "_buffers");
    position = 0;
    while (buffers != NULL && PyDict_Next(buffers, &position, &name, &tensor)) {
        tag_buffer(to, tensor);
    }
    Py_XDECREF(buffers);
}

/* state: {parameter: {name: tensor}} */
static void
tag_state(tagging *to, PyObject *optimizer)
{
    PyObject *state = ml_own_dict(optimizer, "state");
    Py_ssize_t position = 0;
    PyObject *parameter, *entries;
    while (state != NULL && PyDict_Next(state, &position, &parameter, &entries)) {
        Py_ssize_t at = 0;
        PyObject *name, *value;
        ml_path path;
        ml_paths_find(to->paths, parameter, &path);
        while (PyDict_Check(entries) && PyDict_Next(entries, &at, &name, &value)) {
            if (is_instance(value, to->tensor_type)) {
                uint32_t text = ml_paths_state(to->paths, &path, name);
                tag(to, value,
                    &(ml_owner){ML_CATEGORY_OPTIMIZER_STATE, path.module, text});
            }
        }
    }
    Py_XDECREF(state);
}

/* param_groups: [{"params": [tensor, ...]}, ...]: also parameters that no module holds. */
static void
visit_groups(tagging *to, PyObject *optimizer,
             void (*visit)(tagging *to, PyObject *parameter))
{
    PyObject *attributes = PyObject_GenericGetDict(optimizer, NULL);
    PyObject *groups =
        attributes != NULL ? PyDict_GetItemString(attributes, "param_groups") : NULL;
    for (Py_ssize_t i = 0;
         groups != NULL && PyList_Check(groups) && i < PyList_GET_SIZE(groups); i++) {
        PyObject *group = PyList_GET_ITEM(groups, i);
        PyObject *params =
            PyDict_Check(group) ? PyDict_GetItemString(group, "params") : NULL;
        for (Py_ssize_t k = 0;
             params != NULL && PyList_Check(params) && k < PyList_GET_SIZE(params);
             k++) {
            visit(to, PyList_GET_ITEM(params, k));
        }
    }
    Py_XDECREF(attributes);
    swallow();
}

static void
count_stranger(tagging *to, PyObject *parameter)
{
    ml_path path;
    to->strangers += !ml_paths_find(to->paths, parameter, &path);
}

/* What modules were not found to have, none has. */
static void
add_stranger(tagging *to, PyObject *parameter)
{
    ml_paths_add(to->paths, parameter, 0, NULL);
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
                    .cpu = ml_snapshot_is_cpu(snapshot),
                    .paths = state->paths};
    return true;
}

/* The modules and optimizers of the interpreter; a new list. */
static PyObject *
find_owners(PyObject *module_type, PyObject *optimizer_type)
{
    PyTypeObject *types[] = {(PyTypeObject *)module_type,
                             (PyTypeObject *)optimizer_type};
    return ml_collector_find(types, 2);
}

static PyObject *
find_modules(PyObject *module_type)
{
    PyTypeObject *type = (PyTypeObject *)module_type;
    return ml_collector_find(&type, 1);
}

/* Looks at all modules again where OPTIMIZER has parameters that were not met: of a
 * model made since.  0, or -1 with an exception. */
static int
meet_strangers(PyObject *module, tagging *to, PyObject *optimizer)
{
    PyObject *type = ml_paths_module_type(to->paths);
    visit_groups(to, optimizer, count_stranger);
    if (to->strangers == 0 || type == NULL) {
        return 0;
    }
    PyObject *modules = find_modules(type);
    int result = modules != NULL ? ml_modules_name(module, modules, type) : -1;
    Py_XDECREF(modules);
    to->paths = ((ml_state *)PyModule_GetState(module))->paths;
    if (result == 0) {
        int collecting = PyGC_Disable();
        visit_groups(to, optimizer, add_stranger);
        if (collecting) {
            PyGC_Enable();
        }
    }
    return result;
}

const char ml_owners_scan_doc[] =
    "tag_owners($module, snapshot, tensor_type, module_type, optimizer_type, /)\n--\n\n"
    "Tags what all modules and optimizers of the interpreter own now, and names the\n"
    "modules, without running any code of theirs. Returns the number of tensors "
    "tagged.";

PyObject *
ml_owners_scan(PyObject *module, PyObject *args)
{
    PyObject *snapshot, *tensor_type, *module_type, *optimizer_type;
    if (!PyArg_ParseTuple(args, "OOOO:tag_owners", &snapshot, &tensor_type,
                          &module_type, &optimizer_type)) {
        return NULL;
    }
    if (!PyType_Check(module_type) || !PyType_Check(optimizer_type)) {
        PyErr_SetString(PyExc_TypeError,
                        "the module and optimizer types must be types");
        return NULL;
    }
    PyObject *owners = find_owners(module_type, optimizer_type);
    if (owners != NULL && ml_modules_name(module, owners, module_type) < 0) {
        Py_CLEAR(owners);
    }
    tagging to;
    if (owners == NULL || !begin_tagging(module, snapshot, tensor_type, &to)) {
        Py_XDECREF(owners);
        return NULL;
    }
    bool looking = to.shared != NULL && tensors != NULL;
    for (Py_ssize_t i = 0; looking && i < PyList_GET_SIZE(owners); i++) {
        PyObject *object = PyList_GET_ITEM(owners, i);
        if (is_instance(object, module_type)) {
            tag_module(&to, object);
        }
        else if (is_instance(object, optimizer_type)) {
            visit_groups(&to, object, tag_parameter);
            tag_state(&to, object);
        }
    }
    ml_shared_window_drop(to.shared);
    Py_DECREF(owners);
    return PyLong_FromLong(to.count);
}

const char ml_owners_step_doc[] =
    "tag_step($module, snapshot, tensor_type, optimizer, after, /)\n--\n\n"
    "Tags an optimizer's parameters and their gradients before its step, and its "
    "state\n"
    "after it. Returns the number of tensors tagged.";

PyObject *
ml_owners_step(PyObject *module, PyObject *args)
{
    PyObject *snapshot, *tensor_type, *optimizer;
    int after, result = 0;
    tagging to;
    if (!PyArg_ParseTuple(args, "OOOp:tag_step", &snapshot, &tensor_type, &optimizer,
                          &after) ||
        !begin_tagging(module, snapshot, tensor_type, &to)) {
        return NULL;
    }
    if (to.shared != NULL && tensors != NULL) {
        if (after) {
            tag_state(&to, optimizer);
        }
        else {
            result = meet_strangers(module, &to, optimizer);
            /* Which would drop the exception. */
            if (result == 0) {
                visit_groups(&to, optimizer, tag_parameter);
            }
        }
    }
    ml_shared_window_drop(to.shared);
    return result < 0 ? NULL : PyLong_FromLong(to.count);
}

const char ml_owners_use_doc[] = "use_tensors($module, capsule, /)\n--\n\n"
                                 "Takes the view of tensors that the torch bridge "
                                 "offers, by which owners are found.";

const ml_tensors *
ml_owners_tensors(void)
{
    return tensors;
}

PyObject *
ml_owners_use(PyObject *module, PyObject *capsule)
{
    const ml_tensors *table = PyCapsule_GetPointer(capsule, ML_TENSORS_CAPSULE);
    if (table == NULL) {
        return NULL;
    }
    if (table->size < sizeof(ml_tensors) || table->version != ML_ABI_VERSION) {
        return ml_py_raise(
            PyModule_GetState(module), ML_ESTATE,
            "the torch bridge was built for another memlab; reinstall it "
            "with: pip install --no-build-isolation --force-reinstall .");
    }
    tensors = table;
    Py_RETURN_NONE;
}

const char ml_owners_name_modules_doc[] =
    "name_modules($module, module_type, /)\n--\n\n"
    "Gives every module of the program its path, for the stacks recorded in its calls.";

PyObject *
ml_owners_name_modules(PyObject *module, PyObject *module_type)
{
    if (!PyType_Check(module_type)) {
        PyErr_SetString(PyExc_TypeError, "the module type must be a type");
        return NULL;
    }
    PyObject *modules = find_modules(module_type);
    if (modules == NULL) {
        return NULL;
    }
    int result = ml_modules_name(module, modules, module_type);
    Py_DECREF(modules);
    if (result < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}
