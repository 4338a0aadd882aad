/* Finds the owners of device memory among Python objects.  See owners.h. */
#include "training/owners.h"

#include <stdbool.h>

#include "core/record/recorder.h"
#include "objects/collector.h"
#include "training/modules.h"
#include "training/shards.h"
#include "training/tags.h"
#include "state.h"

/* An exception from another library's object does not concern the program.  An
 * interrupt does: it returns at the next bytecode. */
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

static void
tag_shard(void *context, const ml_shard *shard)
{
    ml_tagging *to = context;
    ml_path path;
    if (shard->owner != NULL) {
        ml_paths_find(to->paths, shard->owner, &path);
        if (shard->tensor != NULL) {
            ml_tag_tensor(to, shard->tensor,
                          &(ml_owner){ML_CATEGORY_PARAMETER, path.module, path.name});
        }
        ml_tag_gradient(to, shard->owner);
    }
}

PyObject *
ml_own_dict(PyObject *object, const char *name)
{
    PyObject *attributes = PyObject_GenericGetDict(object, NULL);
    PyObject *value = NULL;
    if (attributes != NULL && PyDict_Check(attributes)) {
        value = ml_py_seek(attributes, name);
        Py_XINCREF(value);
    }
    Py_XDECREF(attributes);
    swallow();
    if (value != NULL && !PyDict_Check(value)) {
        Py_CLEAR(value);
    }
    return value;
}

/* No Python code runs from here on, so dicts cannot change during iteration. */

static void
tag_module(ml_tagging *to, PyObject *object)
{
    Py_ssize_t position = 0;
    PyObject *name, *tensor;
    PyObject *parameters = ml_own_dict(object, "_parameters");
    while (parameters != NULL && PyDict_Next(parameters, &position, &name, &tensor)) {
        /* The unit knows which memory is a piece and which was gathered.  A result
         * lives for one call, as with torch.func.functional_call. */
        if (!ml_shards_keep(to->state, object, name) &&
            !ml_tag_has_flag(to, tensor, ML_TENSOR_RESULT)) {
            ml_tag_parameter(to, tensor);
        }
    }
    Py_XDECREF(parameters);
    PyObject *buffers = ml_own_dict(object, "_buffers");
    position = 0;
    while (buffers != NULL && PyDict_Next(buffers, &position, &name, &tensor)) {
        ml_tag_buffer(to, tensor);
    }
    Py_XDECREF(buffers);
}

/* Before the next entries of STATE are tagged. */
static void
fetch_states(const ml_tagging *to, PyObject *state, Py_ssize_t position)
{
    PyObject *parameters[ML_FETCHED], *entries[ML_FETCHED], *values[ML_FETCHED];
    PyObject *name;
    size_t count = 0, found = 0;
    while (count < ML_FETCHED &&
           PyDict_Next(state, &position, &parameters[count], &entries[count])) {
        __builtin_prefetch(entries[count++]);
    }
    for (size_t i = 0; i < count; i++) {
        if (PyDict_Check(entries[i])) {
            const char *keys = (const char *)((PyDictObject *)entries[i])->ma_keys;
            __builtin_prefetch(keys);
            __builtin_prefetch(keys + 64);
        }
    }
    ml_paths_fetch(to->paths, parameters, count);
    ml_tag_fetch(to, parameters, count, false);
    for (size_t i = 0; i < count; i++) {
        Py_ssize_t at = 0;
        while (PyDict_Check(entries[i]) &&
               PyDict_Next(entries[i], &at, &name, &values[found])) {
            if (++found == ML_FETCHED) {
                ml_tag_fetch(to, values, found, false);
                found = 0;
            }
        }
    }
    ml_tag_fetch(to, values, found, false);
}

/* VALUE: a tensor, or a list of such, as of L-BFGS's steps. */
static void
tag_state_entry(ml_tagging *to, const ml_path *path, PyObject *name, PyObject *value)
{
    bool list = PyList_Check(value);
    /* A tensor with attributes of its own may run code that changes the list. */
    for (Py_ssize_t i = 0; i < (list ? PyList_GET_SIZE(value) : 1); i++) {
        PyObject *tensor = Py_NewRef(list ? PyList_GET_ITEM(value, i) : value);
        if (ml_is_instance(tensor, to->tensor_type)) {
            uint32_t text = ml_paths_state(to->paths, path, name);
            ml_tag_tensor(to, tensor,
                          &(ml_owner){ML_CATEGORY_OPTIMIZER_STATE, path->module, text});
        }
        Py_DECREF(tensor);
    }
}

/* state: {parameter: {name: tensor or list}} */
static void
tag_state(ml_tagging *to, PyObject *optimizer)
{
    PyObject *state = ml_own_dict(optimizer, "state");
    Py_ssize_t position = 0;
    PyObject *parameter, *entries;
    for (size_t i = 0; state != NULL; i++) {
        if (i % ML_FETCHED == 0) {
            fetch_states(to, state, position);
        }
        if (!PyDict_Next(state, &position, &parameter, &entries)) {
            break;
        }
        Py_ssize_t at = 0;
        PyObject *name, *value;
        ml_path path;
        ml_paths_find(to->paths, parameter, &path);
        while (PyDict_Check(entries) && PyDict_Next(entries, &at, &name, &value)) {
            tag_state_entry(to, &path, name, value);
        }
    }
    Py_XDECREF(state);
}

/* Before the next PARAMETERS are visited; LEFT are there. */
static void
fetch_parameters(const ml_tagging *to, PyObject *const *parameters, size_t left)
{
    size_t count = left < ML_FETCHED ? left : ML_FETCHED;
    ml_paths_fetch(to->paths, parameters, count);
    ml_tag_fetch(to, parameters, count, true);
}

/* param_groups: [{"params": [tensor, ...]}, ...]: also parameters that no module holds. */
static void
visit_groups(ml_tagging *to, PyObject *optimizer,
             void (*visit)(ml_tagging *to, PyObject *parameter))
{
    PyObject *attributes = PyObject_GenericGetDict(optimizer, NULL);
    PyObject *groups =
        attributes != NULL ? ml_py_seek(attributes, "param_groups") : NULL;
    for (Py_ssize_t i = 0;
         groups != NULL && PyList_Check(groups) && i < PyList_GET_SIZE(groups); i++) {
        PyObject *group = PyList_GET_ITEM(groups, i);
        PyObject *params = PyDict_Check(group) ? ml_py_seek(group, "params") : NULL;
        for (Py_ssize_t k = 0;
             params != NULL && PyList_Check(params) && k < PyList_GET_SIZE(params);
             k++) {
            if (k % ML_FETCHED == 0) {
                fetch_parameters(to, PySequence_Fast_ITEMS(params) + k,
                                 (size_t)(PyList_GET_SIZE(params) - k));
            }
            visit(to, PyList_GET_ITEM(params, k));
        }
    }
    Py_XDECREF(attributes);
    swallow();
}

static void
count_stranger(ml_tagging *to, PyObject *parameter)
{
    ml_path path;
    to->strangers += !ml_paths_find(to->paths, parameter, &path);
}

/* Parameters not found in modules belong to none. */
static void
add_stranger(ml_tagging *to, PyObject *parameter)
{
    ml_paths_add(to->paths, parameter, 0, NULL);
}

static bool
begin_tagging(PyObject *module, PyObject *snapshot, PyObject *tensor_type,
              ml_tagging *to)
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
    *to = (ml_tagging){.state = state,
                       .shared = ml_snapshot_share(snapshot),
                       .tensor_type = tensor_type,
                       .tensors = state->tensors,
                       .cpu = ml_snapshot_is_cpu(snapshot),
                       .paths = state->paths};
    return true;
}

/* Whether there is something to tag and a recording to receive it. */
static bool
can_tag(const ml_tagging *to)
{
    return to->shared != NULL && to->tensors != NULL;
}

/* New list of the interpreter's modules, units of their parameters and, unless its type
 * is NULL, optimizers. */
static PyObject *
find_owners(PyObject *module_type, PyObject *optimizer_type)
{
    PyTypeObject *types[2 + ML_SHARD_TYPES];
    size_t count = ml_shards_types(types);
    types[count++] = (PyTypeObject *)module_type;
    if (optimizer_type != NULL) {
        types[count++] = (PyTypeObject *)optimizer_type;
    }
    return ml_collector_find(types, count);
}

/* Looks at all modules again if OPTIMIZER has parameters not met before, of a newer
 * model.  0, or -1 with an exception. */
static int
meet_strangers(PyObject *module, ml_tagging *to, PyObject *optimizer)
{
    PyObject *type = ml_paths_module_type(to->paths);
    visit_groups(to, optimizer, count_stranger);
    if (to->strangers == 0 || type == NULL) {
        return 0;
    }
    PyObject *modules = find_owners(type, NULL);
    int result = modules != NULL ? ml_modules_name(module, modules, type) : -1;
    Py_XDECREF(modules);
    to->paths = to->state->paths;
    if (result == 0) {
        int collecting = PyGC_Disable();
        visit_groups(to, optimizer, add_stranger);
        if (collecting) {
            PyGC_Enable();
        }
    }
    return result;
}

/* Once an optimizer has made a step, a module's gradients are tagged as its optimizer's, in the
 * LAST look too: those that no optimizer has are told by having no tag. */
static void
tag_owners(ml_tagging *to, PyObject *owners, const ml_owner_types *types, bool last)
{
    bool stepped = to->state->optimizer_stepped;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(owners); i++) {
        PyObject *object = PyList_GET_ITEM(owners, i);
        bool module = ml_is_instance(object, types->module);
        to->steps = stepped && (module || !last);
        if (module) {
            tag_module(to, object);
        }
        else if (ml_is_instance(object, types->optimizer)) {
            visit_groups(to, object, ml_tag_parameter);
            tag_state(to, object);
        }
        else {
            ml_shards_visit(object, tag_shard, to);
        }
    }
}

long
ml_owners_look(PyObject *module, PyObject *snapshots, const ml_owner_types *types,
               bool last)
{
    PyObject *owners = find_owners(types->module, types->optimizer);
    long count = 0;
    if (owners != NULL && ml_modules_name(module, owners, types->module) < 0) {
        Py_CLEAR(owners);
    }
    for (Py_ssize_t i = 0; owners != NULL && i < PyList_GET_SIZE(snapshots); i++) {
        ml_tagging to;
        if (!begin_tagging(module, PyList_GET_ITEM(snapshots, i), types->tensor, &to)) {
            Py_CLEAR(owners);
            break;
        }
        if (can_tag(&to)) {
            tag_owners(&to, owners, types, last);
        }
        ml_shared_window_drop(to.shared);
        count += to.count;
    }
    Py_XDECREF(owners);
    return owners != NULL ? count : -1;
}

const char ml_owners_scan_doc[] =
    "tag_owners($module, snapshot, tensor_type, module_type, optimizer_type, /)\n--\n\n"
    "Tags what all modules and optimizers of the interpreter own now, and names the\n"
    "modules, without running any code of theirs. Returns the number of tensors "
    "tagged.";

PyObject *
ml_owners_scan(PyObject *module, PyObject *args)
{
    PyObject *snapshot;
    ml_owner_types types;
    if (!PyArg_ParseTuple(args, "OOOO:tag_owners", &snapshot, &types.tensor,
                          &types.module, &types.optimizer)) {
        return NULL;
    }
    if (!PyType_Check(types.module) || !PyType_Check(types.optimizer)) {
        PyErr_SetString(PyExc_TypeError,
                        "the module and optimizer types must be types");
        return NULL;
    }
    PyObject *snapshots = PyList_New(1);
    if (snapshots == NULL) {
        return NULL;
    }
    PyList_SET_ITEM(snapshots, 0, Py_NewRef(snapshot));
    long count = ml_owners_look(module, snapshots, &types, true);
    Py_DECREF(snapshots);
    return count < 0 ? NULL : PyLong_FromLong(count);
}

/* ---- while a module is called, and as it dies ---- */

bool
ml_owners_may_own(PyObject *object)
{
    static const char *const names[] = {"_modules", "_parameters", "_buffers"};
    bool found = false;
    for (size_t i = 0; i < 3 && !found; i++) {
        PyObject *owned = ml_own_dict(object, names[i]);
        found = owned != NULL && PyDict_GET_SIZE(owned) > 0;
        Py_XDECREF(owned);
    }
    return found;
}

/* Depth, and number of objects, to which a module's arguments are searched. */
#define GIVEN_DEPTH 6
/* Depth of the tuple and the dict of all arguments. */
#define GIVEN_ARGUMENT 1
#define GIVEN_OBJECTS 4096

typedef struct given {
    ml_tagging *to;
    const ml_owner_types *types;
    unsigned left; /* objects */
} given;

static void tag_given(given *what, PyObject *value, int depth);

static void
tag_given_dict(given *what, PyObject *dict, int depth)
{
    Py_ssize_t position = 0;
    PyObject *key, *item;
    while (PyDict_Next(dict, &position, &key, &item)) {
        tag_given(what, item, depth);
    }
}

/* Whether the class is a dataclass, without running its metaclass's code. */
static bool
is_dataclass(PyTypeObject *type)
{
    PyObject *order = type->tp_mro;
    for (Py_ssize_t i = 0; order != NULL && i < PyTuple_GET_SIZE(order); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(order, i);
        if (PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE) && base->tp_dict != NULL &&
            ml_py_seek(base->tp_dict, "__dataclass_fields__") != NULL) {
            return true;
        }
    }
    return false;
}

/* Tags a dataclass's attributes.  Of classes like collections.UserDict, and so
 * transformers.BatchEncoding, tags the data.  Other objects hold too much: models,
 * averages, states. */
static void
tag_given_attributes(given *what, PyObject *value, int depth)
{
    PyTypeObject *type = Py_TYPE(value);
    PyObject *held = NULL;
    if (is_dataclass(type)) {
        held = PyObject_GenericGetDict(value, NULL);
    }
    else if (type->tp_as_mapping != NULL && type->tp_as_mapping->mp_subscript != NULL) {
        held = ml_own_dict(value, "data");
    }
    if (held != NULL && PyDict_Check(held)) {
        tag_given_dict(what, held, depth);
    }
    Py_XDECREF(held);
    PyErr_Clear();
}

/* Tags tensors that are no result of autograd.  A tensor that needs a gradient counts
 * only if it is an argument itself: in groups, they are weights.  Python's containers,
 * classes derived from them, and dataclasses are searched; modules are not. */
static void
tag_given(given *what, PyObject *value, int depth)
{
    if (depth == GIVEN_DEPTH || what->left == 0) {
        return;
    }
    what->left--;
    if (ml_is_instance(value, what->types->tensor)) {
        uint32_t weights = depth > GIVEN_ARGUMENT ? ML_TENSOR_LEAF : 0;
        if (!ml_tag_has_flag(what->to, value, ML_TENSOR_RESULT | weights)) {
            ml_tag_tensor(what->to, value, &(ml_owner){ML_CATEGORY_INPUT, 0, 0});
        }
    }
    else if (PyTuple_Check(value)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
            tag_given(what, PyTuple_GET_ITEM(value, i), depth + 1);
        }
    }
    else if (PyList_Check(value)) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); i++) {
            tag_given(what, PyList_GET_ITEM(value, i), depth + 1);
        }
    }
    else if (PyDict_Check(value)) {
        tag_given_dict(what, value, depth + 1);
    }
    else if (PyType_HasFeature(Py_TYPE(value), Py_TPFLAGS_HEAPTYPE) &&
             Py_TYPE(value)->tp_dictoffset != 0 && !PyType_Check(value) &&
             !ml_is_instance(value, what->types->module)) {
        tag_given_attributes(what, value, depth + 1);
    }
}

void
ml_owners_given(PyObject *module, PyObject *snapshots, const ml_owner_types *types,
                PyObject *value)
{
    for (Py_ssize_t i = 0; value != NULL && i < PyList_GET_SIZE(snapshots); i++) {
        ml_tagging to;
        if (begin_tagging(module, PyList_GET_ITEM(snapshots, i), types->tensor, &to)) {
            given what = {.to = &to, .types = types, .left = GIVEN_OBJECTS};
            if (can_tag(&to)) {
                tag_given(&what, value, 0);
            }
            ml_shared_window_drop(to.shared);
        }
    }
    swallow();
}

void
ml_owners_dying(PyObject *module, PyObject *snapshots, const ml_owner_types *types,
                PyObject *object)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(snapshots); i++) {
        ml_tagging to;
        if (begin_tagging(module, PyList_GET_ITEM(snapshots, i), types->tensor, &to)) {
            to.steps = to.state->optimizer_stepped;
            if (can_tag(&to) && ml_is_instance(object, types->module)) {
                tag_module(&to, object);
            }
            ml_shared_window_drop(to.shared);
        }
    }
    swallow();
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
    ml_tagging to;
    if (!PyArg_ParseTuple(args, "OOOp:tag_step", &snapshot, &tensor_type, &optimizer,
                          &after) ||
        !begin_tagging(module, snapshot, tensor_type, &to)) {
        return NULL;
    }
    if (can_tag(&to)) {
        to.state->optimizer_stepped = true;
        if (after) {
            tag_state(&to, optimizer);
        }
        else {
            result = meet_strangers(module, &to, optimizer);
            /* It would clear the exception. */
            if (result == 0) {
                visit_groups(&to, optimizer, ml_tag_parameter);
            }
        }
    }
    ml_shared_window_drop(to.shared);
    return result < 0 ? NULL : PyLong_FromLong(to.count);
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
    PyObject *modules = find_owners(module_type, NULL);
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
