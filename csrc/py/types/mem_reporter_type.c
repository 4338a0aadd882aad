/* memlab._core.MemReporter: the tensors that Python sees, by name, as a Python object.
 *
 * Owns the order of tensors and the sources of their names: the model's parameters and
 * buffers, the optimizers' states, then all others, those reported earlier first.
 * tensor_rows.h makes rows; Python writes text.  Runs no code of the program and keeps
 * no tensor alive. */
#include "state.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/base.h"
#include "objects/addresses.h"
#include "objects/collector.h"
#include "objects/tensor_rows.h"
#include "objects/tensors.h"
#include "training/owners.h"

#define STATE_DEPTH 4 /* of dicts and lists in an optimizer's state of a parameter */

typedef struct reporter_object {
    PyObject_HEAD
    const ml_tensors *tensors;
    ml_names *names;      /* owned */
    ml_rows *rows;        /* owned: of the last look; NULL: none yet */
    PyObject *model;      /* weak; owned; NULL: none given */
    PyObject *optimizers; /* owned: a list of weak references */
    unsigned long number; /* for the next tensor without a name */
} reporter_object;

typedef struct look {
    reporter_object *self;
    ml_rows *rows; /* NULL: only names are wanted */
    PyTypeObject *tensor_type;
    ml_addresses modules; /* modules already visited */
} look;

/* The referent of REFERENCE, a new reference; NULL: it is dead. */
static PyObject *
alive(PyObject *reference)
{
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *object = NULL;
    PyWeakref_GetRef(reference, &object);
    return object;
#else
    PyObject *object = PyWeakref_GET_OBJECT(reference);
    return object != Py_None ? Py_NewRef(object) : NULL;
#endif
}

static bool
is_tensor(const look *l, PyObject *object)
{
    return PyType_IsSubtype(Py_TYPE(object), l->tensor_type);
}

/* Adds a row for TENSOR, called NAME, whose reference is taken; NULL passes an
 * exception on.  0 or -1. */
static int
add_named(look *l, PyObject *tensor, PyObject *name)
{
    int result = name != NULL
                     ? ml_names_give(l->self->names, tensor, name, ML_NAME_OWNER, true)
                     : -1;
    Py_XDECREF(name);
    return result == 0 && l->rows != NULL ? ml_rows_add(l->rows, tensor, true) : result;
}

/* ---- The model ---- */

static PyObject *
join(PyObject *prefix, PyObject *key)
{
    return PyUnicode_GET_LENGTH(prefix) > 0 ? PyUnicode_FromFormat("%U.%U", prefix, key)
                                            : Py_NewRef(key);
}

static int
add_entries(look *l, PyObject *module, PyObject *prefix, const char *which)
{
    PyObject *dict = ml_own_dict(module, which);
    Py_ssize_t position = 0;
    PyObject *key, *value;
    int result = 0;

    while (dict != NULL && result == 0 && PyDict_Next(dict, &position, &key, &value)) {
        if (PyUnicode_Check(key) && is_tensor(l, value)) {
            result = add_named(l, value, join(prefix, key));
        }
    }
    Py_XDECREF(dict);
    return result;
}

/* Adds WHICH, "_parameters" or "_buffers", of MODULE and its submodules, in the order
 * and with the names of named_parameters(). */
static int
add_module(look *l, PyObject *module, PyObject *prefix, const char *which)
{
    int added = ml_addresses_add(&l->modules, (uintptr_t)module, 0);
    if (added == 0) {
        return 0;
    }
    if (added < 0) {
        PyErr_NoMemory();
        return -1;
    }
    if (Py_EnterRecursiveCall(" while the model's modules were gone through")) {
        return -1;
    }
    int result = add_entries(l, module, prefix, which);
    PyObject *children = ml_own_dict(module, "_modules");
    Py_ssize_t position = 0;
    PyObject *key, *child;
    while (children != NULL && result == 0 &&
           PyDict_Next(children, &position, &key, &child)) {
        if (PyUnicode_Check(key) && child != Py_None) {
            PyObject *path = join(prefix, key);
            result = path != NULL ? add_module(l, child, path, which) : -1;
            Py_XDECREF(path);
        }
    }
    Py_XDECREF(children);
    Py_LeaveRecursiveCall();
    return result;
}

static int
add_model(look *l)
{
    static const char *const kinds[] = {"_parameters", "_buffers"};
    PyObject *model = l->self->model != NULL ? alive(l->self->model) : NULL;
    PyObject *prefix = PyUnicode_FromString("");
    int result = prefix != NULL ? 0 : -1;

    for (size_t i = 0; i < 2 && model != NULL && result == 0; i++) {
        result = add_module(l, model, prefix, kinds[i]);
        ml_addresses_fini(&l->modules);
    }
    Py_XDECREF(prefix);
    Py_XDECREF(model);
    return result;
}

/* ---- Optimizers ---- */

/* Adds the tensors in VALUE, which an optimizer keeps under PATH. */
static int
add_state(look *l, PyObject *value, PyObject *path, unsigned depth)
{
    Py_ssize_t position = 0, count = 0;
    PyObject *key, *item;
    int result = 0;

    if (is_tensor(l, value)) {
        return add_named(l, value, Py_NewRef(path));
    }
    if (depth == STATE_DEPTH) {
        return 0;
    }
    if (PyDict_Check(value)) {
        while (result == 0 && PyDict_Next(value, &position, &key, &item)) {
            if (PyUnicode_Check(key) || PyLong_Check(key)) {
                PyObject *inner = PyUnicode_FromFormat("%U.%S", path, key);
                result = inner != NULL ? add_state(l, item, inner, depth + 1) : -1;
                Py_XDECREF(inner);
            }
        }
        return result;
    }
    count = PyList_Check(value)    ? PyList_GET_SIZE(value)
            : PyTuple_Check(value) ? PyTuple_GET_SIZE(value)
                                   : 0;
    for (Py_ssize_t i = 0; i < count && result == 0; i++) {
        item = PyList_Check(value) ? PyList_GET_ITEM(value, i)
                                   : PyTuple_GET_ITEM(value, i);
        PyObject *inner = PyUnicode_FromFormat("%U.%zd", path, i);
        result = inner != NULL ? add_state(l, item, inner, depth + 1) : -1;
        Py_XDECREF(inner);
    }
    return result;
}

/* The parameter's name.  If no model has it, it gets its number now. */
static PyObject *
parameter_name(look *l, PyObject *parameter)
{
    uint64_t order;
    PyObject *name = ml_names_find(l->self->names, parameter, &order);
    return name != NULL
               ? Py_NewRef(name)
               : ml_names_number(l->self->names, parameter, true, &l->self->number);
}

static int
add_optimizer(look *l, PyObject *optimizer)
{
    PyObject *state = ml_own_dict(optimizer, "state");
    const char *dot = strrchr(Py_TYPE(optimizer)->tp_name, '.');
    const char *type = dot != NULL ? dot + 1 : Py_TYPE(optimizer)->tp_name;
    Py_ssize_t position = 0;
    PyObject *parameter, *entries;
    int result = 0;

    while (state != NULL && result == 0 &&
           PyDict_Next(state, &position, &parameter, &entries)) {
        if (!is_tensor(l, parameter)) {
            continue;
        }
        PyObject *name = parameter_name(l, parameter);
        PyObject *path =
            name != NULL ? PyUnicode_FromFormat("%s.%U", type, name) : NULL;
        result = path != NULL ? add_state(l, entries, path, 0) : -1;
        Py_XDECREF(path);
        Py_XDECREF(name);
    }
    Py_XDECREF(state);
    return result;
}

static int
add_optimizers(look *l)
{
    PyObject *references = l->self->optimizers;
    int result = 0;

    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(references) && result == 0; i++) {
        PyObject *optimizer = alive(PyList_GET_ITEM(references, i));
        if (optimizer != NULL) {
            result = add_optimizer(l, optimizer);
            Py_DECREF(optimizer);
        }
    }
    return result;
}

/* ---- All other tensors ---- */

typedef struct stranger {
    PyObject *tensor; /* borrowed */
    uint64_t order;
} stranger;

static int
compare_strangers(const void *left, const void *right)
{
    const stranger *a = left, *b = right;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* Those of FOUND with names come first, in the order of naming. */
static int
add_strangers(look *l, PyObject *found)
{
    size_t count = (size_t)PyList_GET_SIZE(found), others = 0;
    stranger *strangers = ml_alloc_zeroed(count + 1, sizeof(*strangers));
    int result = 0;

    if (strangers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (ml_rows_reserve(l->rows, count) < 0) {
        ml_free(strangers);
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        stranger s = {PyList_GET_ITEM(found, (Py_ssize_t)i), 0};
        if (ml_rows_has(l->rows, s.tensor)) {
            continue;
        }
        if (ml_names_find(l->self->names, s.tensor, &s.order) == NULL) {
            s.order = UINT64_MAX - count + i;
        }
        strangers[others++] = s;
    }
    qsort(strangers, others, sizeof(*strangers), compare_strangers);
    for (size_t i = 0; i < others && result == 0; i++) {
        result = ml_rows_add(l->rows, strangers[i].tensor, false);
    }
    ml_free(strangers);
    return result;
}

/* ---- Looking ---- */

/* Whether the objects that named tensors are gone. */
static bool
owners_gone(const reporter_object *self)
{
    PyObject *model = self->model != NULL ? alive(self->model) : NULL;
    bool gone = self->model != NULL && model == NULL;
    Py_XDECREF(model);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(self->optimizers); i++) {
        PyObject *optimizer = alive(PyList_GET_ITEM(self->optimizers, i));
        gone = gone || optimizer == NULL;
        Py_XDECREF(optimizer);
    }
    return gone;
}

static int
look_at(look *l, PyObject *found)
{
    ml_names_begin(l->self->names, owners_gone(l->self));
    if (add_model(l) < 0 || add_optimizers(l) < 0 || add_strangers(l, found) < 0 ||
        ml_rows_settle(l->rows, l->self->names, &l->self->number) < 0) {
        return -1;
    }
    ml_names_end(l->self->names);
    return 0;
}

PyDoc_STRVAR(collect_doc,
             "_collect($self, tensor_type, parameter_type, /)\n--\n\n"
             "Looks at every tensor that the garbage collector knows, for _devices().");

static PyObject *
reporter_collect(PyObject *op, PyObject *args)
{
    reporter_object *self = (reporter_object *)op;
    PyTypeObject *tensor_type, *parameter_type;
    if (!PyArg_ParseTuple(args, "O!O!:_collect", &PyType_Type, &tensor_type,
                          &PyType_Type, &parameter_type)) {
        return NULL;
    }
    PyObject *found = ml_collector_find(&tensor_type, 1);
    ml_rows *rows = ml_rows_new(self->tensors, tensor_type, parameter_type);
    look l = {.self = self, .rows = rows, .tensor_type = tensor_type};
    int result = -1;
    if (rows == NULL && found != NULL) {
        PyErr_NoMemory();
    }
    if (rows != NULL && found != NULL) {
        /* A collection would run the program's code during iteration over its dicts. */
        int collecting = PyGC_Disable();
        result = look_at(&l, found);
        if (collecting) {
            PyGC_Enable();
        }
    }
    ml_addresses_fini(&l.modules);
    ml_rows *old = result == 0 ? self->rows : rows;
    if (result == 0) {
        self->rows = rows;
    }
    ml_rows_free(old);
    Py_XDECREF(found);
    return result == 0 ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(devices_doc, "_devices($self, /)\n--\n\n"
                          "What the last _collect() saw, a list of dicts; [] before.");

static PyObject *
reporter_devices(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    const ml_rows *rows = ((reporter_object *)op)->rows;
    return rows != NULL ? ml_rows_list(rows) : PyList_New(0);
}

PyDoc_STRVAR(claims_doc,
             "_claims($self, device, /)\n--\n\n"
             "Address and used bytes of what the last _collect() saw on a GPU, each "
             "storage once, as\n"
             "numbers of 64 bits.");

static PyObject *
reporter_claims(PyObject *op, PyObject *device)
{
    const ml_rows *rows = ((reporter_object *)op)->rows;
    long index = PyLong_AsLong(device);
    if (index == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return rows != NULL ? ml_rows_claims(rows, (int)index)
                        : PyBytes_FromStringAndSize(NULL, 0);
}

PyDoc_STRVAR(
    nameless_doc,
    "_nameless($self, tensor_type, wanted, /)\n--\n\n"
    "The tensors among those that the set WANTED names to which the last "
    "_collect()\n"
    "gave a number, since nobody names them: a list of names, and of tensors.");

static PyObject *
reporter_nameless(PyObject *op, PyObject *args)
{
    const ml_names *known = ((reporter_object *)op)->names;
    PyTypeObject *tensor_type;
    PyObject *wanted;
    if (!PyArg_ParseTuple(args, "O!O!:_nameless", &PyType_Type, &tensor_type,
                          &PySet_Type, &wanted)) {
        return NULL;
    }
    PyObject *found = ml_collector_find(&tensor_type, 1);
    PyObject *names = PyList_New(0);
    PyObject *tensors = PyList_New(0);
    int result = found != NULL && names != NULL && tensors != NULL ? 0 : -1;
    for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(found); i++) {
        PyObject *tensor = PyList_GET_ITEM(found, i);
        PyObject *name = ml_names_find_number(known, tensor);
        int asked = name != NULL ? PySet_Contains(wanted, name) : 0;
        if (asked > 0) {
            asked = PyList_Append(names, name) < 0 || PyList_Append(tensors, tensor) < 0
                        ? -1
                        : 0;
        }
        result = asked;
    }
    Py_XDECREF(found);
    PyObject *answer = result == 0 ? PyTuple_Pack(2, names, tensors) : NULL;
    Py_XDECREF(names);
    Py_XDECREF(tensors);
    return answer;
}

PyDoc_STRVAR(watch_model_doc,
             "_watch_model($self, model, tensor_type, /)\n--\n\n"
             "Takes names from a torch.nn.Module, now and as long as it lives.");

static PyObject *
reporter_watch_model(PyObject *op, PyObject *args)
{
    reporter_object *self = (reporter_object *)op;
    PyObject *model, *tensor_type;
    if (!PyArg_ParseTuple(args, "OO!:_watch_model", &model, &PyType_Type,
                          &tensor_type)) {
        return NULL;
    }
    PyObject *reference = PyWeakref_NewRef(model, NULL);
    if (reference == NULL) {
        return NULL;
    }
    Py_XSETREF(self->model, reference);
    look l = {.self = self, .tensor_type = (PyTypeObject *)tensor_type};
    int collecting = PyGC_Disable();
    int result = add_model(&l);
    if (collecting) {
        PyGC_Enable();
    }
    return result == 0 ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(watch_optimizer_doc,
             "_watch_optimizer($self, optimizer, /)\n--\n\n"
             "Takes names from a torch.optim.Optimizer, for as long as it lives.");

static PyObject *
reporter_watch_optimizer(PyObject *op, PyObject *optimizer)
{
    PyObject *list = ((reporter_object *)op)->optimizers;
    PyObject *reference = PyWeakref_NewRef(optimizer, NULL);
    int result = reference != NULL ? PySequence_Contains(list, reference) : -1;
    if (result == 0) {
        result = PyList_Append(list, reference);
    }
    Py_XDECREF(reference);
    return result >= 0 ? Py_NewRef(Py_None) : NULL;
}

/* ---- The type ---- */

static PyObject *
reporter_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    ml_state *state = ml_state_of(type);
    const ml_tensors *tensors = state->tensors;
    if (tensors == NULL) {
        return ml_py_raise(state, ML_ESTATE,
                           "no torch bridge is loaded, and there are no tensors to "
                           "look at; use memlab.MemReporter");
    }
    reporter_object *self = (reporter_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->tensors = tensors;
    self->names = ml_names_new(tensors);
    self->optimizers = PyList_New(0);
    if (self->names == NULL || self->optimizers == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static PyMethodDef reporter_methods[] = {
    {"_watch_model", reporter_watch_model, METH_VARARGS, watch_model_doc},
    {"_watch_optimizer", reporter_watch_optimizer, METH_O, watch_optimizer_doc},
    {"_collect", reporter_collect, METH_VARARGS, collect_doc},
    {"_claims", reporter_claims, METH_O, claims_doc},
    {"_devices", reporter_devices, METH_NOARGS, devices_doc},
    {"_nameless", reporter_nameless, METH_VARARGS, nameless_doc},
    {NULL, NULL, 0, NULL},
};

static int
reporter_traverse(PyObject *op, visitproc visit, void *arg)
{
    reporter_object *self = (reporter_object *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->model);
    Py_VISIT(self->optimizers);
    return 0;
}

static void
reporter_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    reporter_object *self = (reporter_object *)op;
    PyObject_GC_UnTrack(op);
    ml_rows_free(self->rows);
    ml_names_free(self->names);
    Py_XDECREF(self->model);
    Py_XDECREF(self->optimizers);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(
    reporter_doc,
    "MemReporter()\n--\n\n"
    "The C half of memlab.MemReporter: the tensors that Python sees, by name.");

static PyType_Slot reporter_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)reporter_doc},
    {Py_tp_new, reporter_new},
    {Py_tp_methods, reporter_methods},
    {Py_tp_traverse, reporter_traverse},
    {Py_tp_dealloc, reporter_dealloc},
    {0, NULL},
};

static PyType_Spec reporter_spec = {
    .name = "memlab._core.MemReporter",
    .basicsize = sizeof(reporter_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = reporter_slots,
};

PyObject *
ml_mem_reporter_type_new(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &reporter_spec, NULL);
}
