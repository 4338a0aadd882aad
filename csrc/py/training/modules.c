/* Names the program's torch.nn.Modules.  See modules.h.
 *
 * A module's name is its path in named_modules() of its root, the module that no other
 * holds.  The root's name is its class.  If several roots hold modules, as in a GAN,
 * each path starts with the root's class; a second root of one class is Class#2, in the
 * order of discovery.  So does that of a root whose modules are numbered: the number
 * alone would tell nothing.
 *
 * A named module is watched by a weak reference.  When it dies, its address is
 * forgotten before its memory is given out again.  A later module at that address is
 * then a different one.  Modules never alive at a look for names are not watched.
 * Their frames have only the class, unless a named module of the same type took the
 * address: then they have that name. */
#include "training/modules.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/base.h"
#include "core/record/window.h"
#include "frames/frames.h"
#include "objects/addresses.h"
#include "training/paths.h"
#include "training/shards.h"

#define PATH_BYTES 1024
#define DEPTH_MAX 128

/* Attributes that wrap a module without being a level of its path. */
static const char *const wrappers[] = {"_orig_mod", "_fsdp_wrapped_module",
                                       "_checkpoint_wrapped_module"};

typedef struct root {
    PyObject *module; /* borrowed from the list */
    uint32_t id;
    bool holds_modules;
} root;

typedef struct naming {
    ml_state *state;
    PyTypeObject *type;
    PyObject *key;     /* "_modules" */
    PyObject *owns[2]; /* "_parameters", "_buffers" */
    ml_stacks *stacks;
    ml_paths *paths; /* to be filled */
    ml_addresses seen;
    bool no_memory; /* for the set: modules missing from it were not looked at */
    char path[PATH_BYTES];
} naming;

/* ---- a set of modules ---- */

/* Whether MODULE was not yet in the set.  The number of modules is unknown beforehand.
 * A module may hold others outside the list of objects: those before gc.freeze(), if
 * the collector's lists cannot be walked. */
static bool
see(naming *names, PyObject *module)
{
    int added = ml_addresses_add(&names->seen, (uintptr_t)module, 0);
    names->no_memory = names->no_memory || added < 0;
    return added > 0;
}

/* ---- reading modules ---- */

static bool
is_module(const naming *names, PyObject *object)
{
    return PyType_IsSubtype(Py_TYPE(object), names->type);
}

/* The dict in MODULE under KEY, borrowed; NULL: none. */
static PyObject *
dict_of(PyObject *module, PyObject *key)
{
    PyObject *attributes = PyObject_GenericGetDict(module, NULL);
    PyObject *dict = attributes != NULL && PyDict_Check(attributes)
                         ? PyDict_GetItemWithError(attributes, key)
                         : NULL;

    Py_XDECREF(attributes);
    PyErr_Clear();
    return dict != NULL && PyDict_Check(dict) ? dict : NULL;
}

static PyObject *
children_of(const naming *names, PyObject *module)
{
    return dict_of(module, names->key);
}

static ml_slice
class_name(PyObject *object)
{
    const char *name = Py_TYPE(object)->tp_name;
    const char *dot = strrchr(name, '.');

    name = dot != NULL ? dot + 1 : name;
    return (ml_slice){.bytes = name, .length = strlen(name)};
}

static uint32_t
id_of(const naming *names, PyObject *module)
{
    ml_slice type = class_name(module);
    ml_object_key key = {.address = (uintptr_t)module,
                         .type = (uintptr_t)Py_TYPE(module)};
    return ml_stacks_object(names->stacks, key, &type);
}

/* ---- naming ---- */

/* Appends TEXT to the path of LENGTH bytes, cut if too long; returns the new length. */
static size_t
append_to_path(naming *names, size_t length, const char *text, size_t bytes)
{
    if (bytes > PATH_BYTES - length) {
        bytes = PATH_BYTES - length;
    }
    memcpy(names->path + length, text, bytes);
    return length + bytes;
}

static size_t
append_child(naming *names, size_t length, PyObject *key)
{
    Py_ssize_t bytes = 0;
    const char *text =
        PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, &bytes) : NULL;

    if (text == NULL) {
        PyErr_Clear();
        text = "?";
        bytes = 1;
    }
    for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]); i++) {
        if (strcmp(text, wrappers[i]) == 0) {
            return length;
        }
    }
    length = length > 0 ? append_to_path(names, length, ".", 1) : 0;
    return append_to_path(names, length, text, (size_t)bytes);
}

static void
name_owned(naming *names, PyObject *module, uint32_t path)
{
    for (size_t i = 0; i < 2; i++) {
        PyObject *owned = dict_of(module, names->owns[i]);
        PyObject *key, *tensor;
        Py_ssize_t position = 0;
        while (owned != NULL && PyDict_Next(owned, &position, &key, &tensor)) {
            if (tensor != Py_None) {
                ml_paths_add(names->paths, tensor, path, key);
            }
        }
    }
}

/* No collection may run while dicts are read: finalizers could change them. */
static void
name_below(naming *names, PyObject *module, size_t length, int depth)
{
    ml_slice name = {.bytes = names->path, .length = length};
    PyObject *children = children_of(names, module);
    PyObject *key, *child;
    Py_ssize_t position = 0;

    if (length == 0) {
        name = class_name(module);
    }
    uint32_t id = id_of(names, module);
    ml_recorder_name_object(id, name.bytes, name.length);
    uint32_t path = ml_stacks_object_name(names->stacks, id);
    name_owned(names, module, path != 0 ? path : ML_STACK_LOST);
    while (children != NULL && depth < DEPTH_MAX &&
           PyDict_Next(children, &position, &key, &child)) {
        if (is_module(names, child) && see(names, child)) {
            name_below(names, child, append_child(names, length, key), depth + 1);
        }
    }
}

static int
compare_roots(const void *a, const void *b)
{
    uint32_t left = ((const root *)a)->id;
    uint32_t right = ((const root *)b)->id;
    return (left > right) - (left < right);
}

/* The length of "Class" or "Class#2" in the path. */
static size_t
prefix_of(naming *names, const root *roots, size_t index)
{
    ml_slice name = class_name(roots[index].module);
    unsigned number = 1;
    char text[16];

    for (size_t i = 0; i < index; i++) {
        number += roots[i].holds_modules &&
                  strcmp(class_name(roots[i].module).bytes, name.bytes) == 0;
    }
    size_t length = append_to_path(names, 0, name.bytes, name.length);
    if (number > 1) {
        int bytes = PyOS_snprintf(text, sizeof(text), "#%u", number);
        length = append_to_path(names, length, text, (size_t)bytes);
    }
    return length;
}

/* Fills ROOTS, in the order of discovery; returns their number. */
static size_t
find_roots(naming *names, PyObject *objects, root *roots)
{
    size_t count = 0;

    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(objects); i++) {
        PyObject *module = PyList_GET_ITEM(objects, i);
        PyObject *children =
            is_module(names, module) ? children_of(names, module) : NULL;
        PyObject *key, *child;
        Py_ssize_t position = 0;
        while (children != NULL && PyDict_Next(children, &position, &key, &child)) {
            if (is_module(names, child)) {
                see(names, child);
            }
        }
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(objects); i++) {
        PyObject *module = PyList_GET_ITEM(objects, i);
        if (is_module(names, module) && see(names, module)) {
            PyObject *children = children_of(names, module);
            roots[count++] = (root){
                .module = module,
                .id = id_of(names, module),
                .holds_modules = children != NULL && PyDict_GET_SIZE(children) > 0,
            };
        }
    }
    qsort(roots, count, sizeof(*roots), compare_roots);
    return count;
}

/* Whether the first module in MODULE has a number for its name, as in a Sequential. */
static bool
numbers_its_modules(const naming *names, PyObject *module)
{
    PyObject *children = children_of(names, module);
    PyObject *key, *child;
    Py_ssize_t position = 0;
    return children != NULL && PyDict_Next(children, &position, &key, &child) &&
           PyUnicode_Check(key) && PyUnicode_GET_LENGTH(key) != 0 &&
           Py_UNICODE_ISDIGIT(PyUnicode_READ_CHAR(key, 0));
}

/* Names the parameter that optimizers step, and the module's own while it works. */
static void
name_shard(void *context, const ml_shard *shard)
{
    naming *names = context;
    PyObject *tensors[] = {shard->owner, shard->whole};
    for (size_t i = 0; i < 2; i++) {
        if (tensors[i] != NULL) {
            uint32_t path =
                ml_stacks_object_name(names->stacks, id_of(names, shard->module));
            ml_paths_add(names->paths, tensors[i], path != 0 ? path : ML_STACK_LOST,
                         shard->name);
        }
    }
}

static int
name_all(naming *names, PyObject *objects)
{
    root *roots = ml_alloc_zeroed((size_t)PyList_GET_SIZE(objects) + 1, sizeof(*roots));
    if (roots == NULL) {
        return -1;
    }
    size_t count = find_roots(names, objects, roots);
    size_t holders = 0;
    for (size_t i = 0; i < count; i++) {
        holders += roots[i].holds_modules;
    }
    ml_addresses_fini(&names->seen);
    for (size_t i = 0; i < count; i++) {
        bool prefixed = roots[i].holds_modules &&
                        (holders > 1 || numbers_its_modules(names, roots[i].module));
        see(names, roots[i].module);
        name_below(names, roots[i].module, prefixed ? prefix_of(names, roots, i) : 0,
                   0);
    }
    ml_free(roots);
    ml_shards_note(names->state, objects);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(objects); i++) {
        ml_shards_visit(PyList_GET_ITEM(objects, i), name_shard, names);
    }
    return names->no_memory ? -1 : 0;
}

/* ---- watching for their end ---- */

/* SELF is (memlab._core, address). */
static PyObject *
module_died(PyObject *self, PyObject *Py_UNUSED(reference))
{
    const ml_state *state = PyModule_GetState(PyTuple_GET_ITEM(self, 0));
    PyObject *address = PyTuple_GET_ITEM(self, 1);

    /* References are cleared before a dying object loses its contents. */
    if (state->module_died != NULL) {
        state->module_died(PyLong_AsVoidPtr(address));
    }
    ml_stacks_forget_object(ml_recorder_stacks(),
                            (uint64_t)(uintptr_t)PyLong_AsVoidPtr(address));
    /* NULL: the program's end has cleared memlab._core. */
    if (state->watched_modules != NULL &&
        PyDict_DelItem(state->watched_modules, address) < 0) {
        PyErr_Clear();
    }
    Py_RETURN_NONE;
}

static int
watch(PyObject *core, PyObject *module)
{
    PyObject *watched = ((ml_state *)PyModule_GetState(core))->watched_modules;
    static PyMethodDef died = {"module_died", module_died, METH_O, NULL};
    PyObject *self = NULL, *callback = NULL, *reference = NULL;
    PyObject *address = PyLong_FromVoidPtr(module);
    int result = address != NULL ? PyDict_Contains(watched, address) : -1;

    if (result == 0) {
        self = PyTuple_Pack(2, core, address);
        callback = self != NULL ? PyCFunction_New(&died, self) : NULL;
        reference = callback != NULL ? PyWeakref_NewRef(module, callback) : NULL;
        result = reference != NULL ? PyDict_SetItem(watched, address, reference) : -1;
    }
    Py_XDECREF(reference);
    Py_XDECREF(callback);
    Py_XDECREF(self);
    Py_XDECREF(address);
    return result < 0 ? -1 : 0;
}

/* ---- entries ---- */

/* Follows the function that runs a module's call; if it was replaced, the newest
 * one. */
static void
follow_calls(PyObject *module_type)
{
    PyObject *function = PyObject_GetAttrString(module_type, "_wrapped_call_impl");

    if (function != NULL && PyFunction_Check(function)) {
        ml_frames_follow((PyCodeObject *)PyFunction_GET_CODE(function));
    }
    PyErr_Clear();
    Py_XDECREF(function);
}

int
ml_modules_name(PyObject *module, PyObject *objects, PyObject *module_type)
{
    ml_state *state = PyModule_GetState(module);
    naming *names = ml_alloc_zeroed(1, sizeof(*names));
    int result = -1;

    if (names == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    follow_calls(module_type);
    names->state = state;
    names->type = (PyTypeObject *)module_type;
    names->stacks = ml_recorder_stacks();
    names->key = PyUnicode_InternFromString("_modules");
    names->owns[0] = PyUnicode_InternFromString("_parameters");
    names->owns[1] = PyUnicode_InternFromString("_buffers");
    names->paths = ml_paths_begin(state->tensors, module_type);
    if (names->key != NULL && names->owns[0] != NULL && names->owns[1] != NULL) {
        int collecting = PyGC_Disable();
        result = names->paths != NULL ? name_all(names, objects) : -1;
        if (result < 0) {
            PyErr_NoMemory();
        }
        if (collecting) {
            PyGC_Enable();
        }
    }
    ml_paths_end(state, names->paths, result == 0);
    for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(objects); i++) {
        PyObject *object = PyList_GET_ITEM(objects, i);
        if (is_module(names, object)) {
            result = watch(module, object);
        }
    }
    Py_XDECREF(names->key);
    Py_XDECREF(names->owns[0]);
    Py_XDECREF(names->owns[1]);
    ml_addresses_fini(&names->seen);
    ml_free(names);
    return result;
}
