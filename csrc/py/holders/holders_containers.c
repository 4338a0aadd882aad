/* Puts references of containers into words.  See holders_containers.h. */
#include "holders/holders_containers.h"

#include "holders/holders_frames.h"
#include "holders/holders_keys.h"
#include "state.h"

static int
name_in_function(ml_namer *n, PyObject *function, const char *kind, PyObject *name)
{
    return ml_namer_add(n, Py_BuildValue("(sOO)", kind, name, ml_qualname(function)));
}

bool
ml_is_local_store(const PyObject *object)
{
    return ml_is_named(object, "_thread._local");
}

static int
name_in_dict(ml_namer *n, size_t i, PyObject *dict, PyObject *value)
{
    PyObject *owner = ml_namer_object_before(n, i, 1);
    PyObject *key = ml_key_on_way(n, dict, value);

    if (ml_is_named(owner, "functools._lru_cache_wrapper") ||
        ml_is_local_store(owner)) {
        return 0; /* named with its owner, or by the next step */
    }
    if (key == NULL) {
        int named = PyDict_CheckExact(dict) ? 0 : ml_add_attribute(n, dict, value);
        if (named != 0) {
            return named < 0 ? -1 : 0;
        }
        return ml_namer_add(n, Py_BuildValue("(ss)", "key", Py_TYPE(dict)->tp_name));
    }
    if (owner != NULL && PyFunction_Check(owner) &&
        ((PyFunctionObject *)owner)->func_kwdefaults == dict) {
        return name_in_function(n, owner, "default", key);
    }
    bool store = ml_is_local_store(ml_namer_object_before(n, i, 2));
    const ml_thing *before = i > 0 ? ml_namer_thing(n, i - 1) : NULL;
    const ml_frame *frame = owner != NULL ? ml_frame_within(owner) : NULL;
    bool scope = (before != NULL && before->kind == ML_THING_FRAME) ||
                 (frame != NULL && ml_frame_shows(frame, dict));
    if (PyUnicode_CheckExact(key) && (scope || store || ml_is_own_dict(owner, dict))) {
        return ml_namer_add(n,
                            Py_BuildValue("(sO)", store ? "threadlocal" : "name", key));
    }
    return ml_add_key(n, key);
}

static int
add_index(ml_namer *n, Py_ssize_t index)
{
    return ml_namer_add(
        n, Py_BuildValue("(sN)", "item", PyUnicode_FromFormat("%zd", index)));
}

/* INDEX counts the arguments with defaults, which are the last ones. */
static int
name_default(ml_namer *n, PyObject *function, Py_ssize_t index, Py_ssize_t count)
{
    PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(function);
#if PY_VERSION_HEX >= 0x030b0000
    PyObject *names = code->co_localsplusnames;
#else
    PyObject *names = code->co_varnames;
#endif
    index += code->co_argcount - count;
    if (index < 0 || index >= PyTuple_GET_SIZE(names)) {
        return ml_namer_add_name(n, "__defaults__");
    }
    return name_in_function(n, function, "default", PyTuple_GET_ITEM(names, index));
}

static int
name_closure(ml_namer *n, PyObject *function, Py_ssize_t index)
{
    PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(function);
#if PY_VERSION_HEX >= 0x030b0000
    PyObject *names = code->co_localsplusnames;
    /* The last of them are the closure's. */
    index += code->co_nlocalsplus - code->co_nfreevars;
#else
    PyObject *names = code->co_freevars;
#endif
    if (index < 0 || index >= PyTuple_GET_SIZE(names)) {
        return ml_namer_add_name(n, "__closure__");
    }
    return name_in_function(n, function, "closure", PyTuple_GET_ITEM(names, index));
}

/* The field name of a named tuple's item, borrowed; NULL: an ordinary tuple. */
static PyObject *
field_name(PyObject *tuple, Py_ssize_t index)
{
    PyObject *dict = Py_TYPE(tuple)->tp_dict;
    PyObject *fields = dict != NULL ? ml_py_seek(dict, "_fields") : NULL;

    if (PyTuple_CheckExact(tuple) || fields == NULL || !PyTuple_CheckExact(fields) ||
        index >= PyTuple_GET_SIZE(fields)) {
        return NULL;
    }
    PyObject *name = PyTuple_GET_ITEM(fields, index);
    return PyUnicode_CheckExact(name) ? name : NULL;
}

static int
name_in_tuple(ml_namer *n, size_t i, PyObject *tuple, Py_ssize_t index)
{
    PyObject *owner = ml_namer_object_before(n, i, 1);
    PyObject *field = field_name(tuple, index);

    if (owner != NULL && PyFunction_Check(owner)) {
        PyFunctionObject *function = (PyFunctionObject *)owner;
        if (function->func_closure == tuple) {
            return name_closure(n, owner, index);
        }
        if (function->func_defaults == tuple) {
            return name_default(n, owner, index, PyTuple_GET_SIZE(tuple));
        }
    }
    if (field != NULL) {
        return ml_namer_add(n, Py_BuildValue("(sO)", "name", field));
    }
    return add_index(n, index);
}

/* 1: named; 0: VALUE is no item of it; or -1. */
static int
name_in_sequence(ml_namer *n, size_t i, PyObject *sequence, PyObject *value)
{
    bool list = PyList_Check(sequence);
    Py_ssize_t count = list ? PyList_GET_SIZE(sequence) : PyTuple_GET_SIZE(sequence);

    uint32_t nth = n->nth;

    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *item =
            list ? PyList_GET_ITEM(sequence, k) : PyTuple_GET_ITEM(sequence, k);
        if (item == value && nth-- == 0) {
            int result = list ? add_index(n, k) : name_in_tuple(n, i, sequence, k);
            return result == 0 ? 1 : -1;
        }
    }
    return 0;
}

/* 1, or -1. */
static int
name_in_set(ml_namer *n, PyObject *set, PyObject *value)
{
    int named = PyAnySet_CheckExact(set) ? 0 : ml_add_attribute(n, set, value);

    if (named == 0) {
        named =
            ml_namer_add(n, Py_BuildValue("(ss)", "member", Py_TYPE(set)->tp_name)) == 0
                ? 1
                : -1;
    }
    return named;
}

static PyTypeObject *
base_named(PyTypeObject *type, const char *name)
{
    while (type != NULL && strcmp(type->tp_name, name) != 0) {
        type = type->tp_base;
    }
    return type;
}

/* By deque's own iterator, which is CPython's, whatever a subclass defines. */
static int
name_in_deque(ml_namer *n, const PyTypeObject *type, PyObject *deque,
              const PyObject *value)
{
    PyObject *items = type->tp_iter(deque);
    PyObject *item;
    Py_ssize_t found = -1;

    for (Py_ssize_t k = 0; items != NULL && found < 0; k++) {
        item = Py_TYPE(items)->tp_iternext(items);
        if (item == NULL) {
            break;
        }
        if (item == value) {
            found = k;
        }
        Py_DECREF(item);
    }
    Py_XDECREF(items);
    PyErr_Clear();
    if (found < 0) {
        return 0;
    }
    return add_index(n, found) == 0 ? 1 : -1;
}

int
ml_name_in_container(ml_namer *n, size_t i, PyObject *object, PyObject *value)
{
    PyTypeObject *deque = base_named(Py_TYPE(object), "collections.deque");

    if (ml_is_dict(object)) {
        return name_in_dict(n, i, object, value) == 0 ? 1 : -1;
    }
    if (PyList_Check(object) || PyTuple_Check(object)) {
        return name_in_sequence(n, i, object, value);
    }
    if (deque != NULL) {
        return name_in_deque(n, deque, object, value);
    }
    if (PyAnySet_Check(object)) {
        return name_in_set(n, object, value);
    }
    return 0;
}
