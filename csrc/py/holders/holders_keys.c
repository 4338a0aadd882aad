/* Finds the names by which an object refers to another.  See holders_keys.h. */
#include "holders/holders_keys.h"

#include <structmember.h>

/* ---- Keys ---- */

static bool
is_plain(PyObject *key)
{
    if (PyTuple_CheckExact(key)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++) {
            PyObject *item = PyTuple_GET_ITEM(key, i);
            if (PyTuple_Check(item) || !is_plain(item)) {
                return false;
            }
        }
        return true;
    }
    return PyUnicode_CheckExact(key) || PyLong_CheckExact(key) ||
           PyFloat_CheckExact(key) || PyBytes_CheckExact(key) || PyBool_Check(key) ||
           key == Py_None;
}

/* Longest key that is shown: some keys are whole texts. */
#define KEY_LENGTH 80

/* What stands for KEY in a path, new; NULL with an exception. */
static PyObject *
text_of_key(PyObject *key)
{
    PyObject *text = PyObject_Repr(key);

    if (text == NULL && PyErr_ExceptionMatches(PyExc_ValueError)) {
        /* CPython refuses to format an int of thousands of digits. */
        PyErr_Clear();
        return PyUnicode_FromFormat("<%s>", Py_TYPE(key)->tp_name);
    }
    if (text == NULL || PyUnicode_GET_LENGTH(text) <= KEY_LENGTH) {
        return text;
    }
    PyObject *begin = PyUnicode_Substring(text, 0, KEY_LENGTH);
    Py_DECREF(text);
    text = begin != NULL ? PyUnicode_FromFormat("%U...", begin) : NULL;
    Py_XDECREF(begin);
    return text;
}

int
ml_add_key(ml_namer *n, PyObject *key)
{
    uint32_t index;

    if (is_plain(key)) {
        return ml_namer_add(n, Py_BuildValue("(sN)", "item", text_of_key(key)));
    }
    if (PyFunction_Check(key)) {
        return ml_namer_add(n, Py_BuildValue("(sO)", "item", ml_qualname(key)));
    }
    if (PyType_Check(key)) {
        return ml_namer_add(
            n, Py_BuildValue("(ss)", "item", ((PyTypeObject *)key)->tp_name));
    }
    if (n->key_path != NULL && ml_walk_find(n->walk, key, &index)) {
        const ml_thing *thing = ml_walk_thing(n->walk, index);
        const ml_hold way = {.from = thing->parent, .to = index, .lent = thing->lent};
        return ml_namer_add(n,
                            Py_BuildValue("(sN)", "item", n->key_path(n->walk, &way)));
    }
    return ml_namer_add(
        n, Py_BuildValue("(sN)", "item",
                         PyUnicode_FromFormat("<%s>", Py_TYPE(key)->tp_name)));
}

PyObject *
ml_key_of(PyObject *dict, const PyObject *value, uint32_t nth)
{
    PyObject *key, *other;
    PyObject *found = NULL;
    Py_ssize_t position = 0;

    while (PyDict_Next(dict, &position, &key, &other)) {
        if (other == value) {
            found = key;
            if (nth-- == 0) {
                break;
            }
        }
    }
    return found;
}

/* On the way to a target, one key is enough.  IPython's Out is also its _oh, and a
 * user's name may also be its _. */
PyObject *
ml_key_on_way(const ml_namer *n, PyObject *dict, const PyObject *value)
{
    PyObject *key, *other;
    PyObject *found = NULL;
    Py_ssize_t position = 0;

    if (n->last) {
        return ml_key_of(dict, value, n->nth);
    }
    while (PyDict_Next(dict, &position, &key, &other)) {
        if (other != value) {
            continue;
        }
        bool hidden = PyUnicode_CheckExact(key) && PyUnicode_GET_LENGTH(key) > 0 &&
                      PyUnicode_READ_CHAR(key, 0) == '_';
        if (!hidden) {
            return key;
        }
        if (found == NULL) {
            found = key;
        }
    }
    return found;
}

/* ---- Attributes ---- */

PyObject *
ml_attributes_of(PyObject *object)
{
    PyObject *dict = NULL;

    if (PyModule_Check(object)) {
        dict = PyModule_GetDict(object);
        Py_XINCREF(dict);
    }
    else if (PyType_Check(object)) {
        dict = ((PyTypeObject *)object)->tp_dict;
        Py_XINCREF(dict);
    }
    else if (Py_TYPE(object)->tp_dictoffset != 0) {
        dict = PyObject_GenericGetDict(object, NULL);
        PyErr_Clear();
    }
    if (dict != NULL && !PyDict_Check(dict)) {
        Py_CLEAR(dict);
    }
    return dict;
}

bool
ml_is_own_dict(PyObject *object, const PyObject *dict)
{
    PyObject *own = object != NULL ? ml_attributes_of(object) : NULL;

    Py_XDECREF(own);
    return own != NULL && own == dict;
}

/* The slot of OBJECT that refers to VALUE: of __slots__, or a member of a C type. */
static PyObject *
slot_of(PyObject *object, const PyObject *value)
{
    PyObject *mro = Py_TYPE(object)->tp_mro;

    for (Py_ssize_t i = 0; mro != NULL && i < PyTuple_GET_SIZE(mro); i++) {
        PyObject *dict = ((PyTypeObject *)PyTuple_GET_ITEM(mro, i))->tp_dict;
        PyObject *key, *slot;
        Py_ssize_t position = 0;
        while (dict != NULL && PyDict_Next(dict, &position, &key, &slot)) {
            if (!Py_IS_TYPE(slot, &PyMemberDescr_Type)) {
                continue;
            }
            const PyMemberDef *member = ((PyMemberDescrObject *)slot)->d_member;
            if ((member->type == T_OBJECT || member->type == T_OBJECT_EX) &&
                *(PyObject **)((char *)object + member->offset) == value) {
                return key;
            }
        }
    }
    return NULL;
}

int
ml_add_attribute(ml_namer *n, PyObject *object, PyObject *value)
{
    PyObject *dict = ml_attributes_of(object);
    PyObject *key = dict != NULL ? ml_key_on_way(n, dict, value) : NULL;

    if (key == NULL) {
        key = slot_of(object, value);
    }
    int result = 0;
    if (dict == value) {
        result = 1; /* a part of it: the next step names the attribute */
    }
    else if (key != NULL && PyUnicode_CheckExact(key)) {
        result = ml_namer_add(n, Py_BuildValue("(sO)", "name", key)) == 0 ? 1 : -1;
    }
    Py_XDECREF(dict);
    return result;
}
