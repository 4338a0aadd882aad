/* Adds a hook to torch's hooks on optimizer steps.  See step_hooks.h.
 *
 * torch iterates over a dict of hooks while it runs them, on any thread.  It raises if
 * a hook was added or removed meanwhile; replacing a hook is safe.  An iterating thread
 * holds a reference to the dict, so a dict that only torch's module refers to is not
 * being iterated.  Each query and change here is one call, during which no other thread
 * runs. */
#include "training/step_hooks.h"

#include <stdbool.h>

const char ml_step_hooks_put_doc[] =
    "put_step_hook($module, namespace, name, key, hook, behind, /)\n--\n\n"
    "Puts hook under key, an int, into the dict of hooks that the dict namespace has "
    "as "
    "name.\n\n"
    "While a step may be going through them, the callable behind takes the place of "
    "the "
    "last\n"
    "hook instead, which becomes its attribute first; a later call gives that its "
    "place "
    "back.\n"
    "Returns whether hook has a place of its own now. Raises TypeError where there is "
    "no "
    "such\n"
    "dict, MemoryError.";

/* The key of BEHIND in HOOKS, else of the last hook; borrowed; NULL if there is
 * none. */
static PyObject *
find_place(PyObject *hooks, const PyObject *behind, PyObject **value)
{
    PyObject *key, *place = NULL;
    Py_ssize_t position = 0;

    *value = NULL;
    while (*value != behind && PyDict_Next(hooks, &position, &key, value)) {
        place = key;
    }
    return place;
}

static int
replace(PyObject *hooks, PyObject *place, PyObject *value)
{
    Py_INCREF(place);
    int result = PyObject_SetItem(hooks, place, value);
    Py_DECREF(place);
    return result;
}

/* Restores the hook that BEHIND displaced, if BEHIND still has its PLACE. */
static int
withdraw(PyObject *hooks, PyObject *place, PyObject *behind)
{
    PyObject *first = PyObject_GetAttrString(behind, "first");
    int result = first != NULL ? 0 : -1;

    if (result == 0 && place != NULL) {
        result = replace(hooks, place, first);
    }
    Py_XDECREF(first);
    return result == 0 ? PyObject_SetAttrString(behind, "first", Py_None) : -1;
}

/* BEHIND takes the PLACE of VALUE.  Not if the program took away BEHIND's first place:
 * a step may still be about to call it for the hook that it displaced. */
static int
stand_in(PyObject *hooks, PyObject *place, PyObject *value, PyObject *behind)
{
    PyObject *first = PyObject_GetAttrString(behind, "first");
    bool is_free = first == Py_None;

    if (first == NULL) {
        return -1;
    }
    Py_DECREF(first);
    if (!is_free) {
        return 0;
    }
    int result = PyObject_SetAttrString(behind, "first", value);
    return result == 0 ? replace(hooks, place, behind) : -1;
}

PyObject *
ml_step_hooks_put(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *namespace, *name, *key, *hook, *behind, *value;

    if (!PyArg_ParseTuple(args, "O!UO!OO:put_step_hook", &PyDict_Type, &namespace,
                          &name, &PyLong_Type, &key, &hook, &behind)) {
        return NULL;
    }
    PyObject *hooks = PyDict_GetItemWithError(namespace, name);
    if (hooks == NULL || !PyDict_Check(hooks)) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError, "%U is not a dict of hooks", name);
        }
        return NULL;
    }
    int has_place = PyDict_Contains(hooks, key);
    if (has_place != 0) {
        return has_place > 0 ? PyBool_FromLong(1) : NULL;
    }
    PyObject *place = find_place(hooks, behind, &value);
    bool stands = place != NULL && value == behind;
    bool still = place == NULL || Py_REFCNT(hooks) == 1;
    int result = 0;
    if (still) {
        result = withdraw(hooks, stands ? place : NULL, behind);
        result = result == 0 ? PyObject_SetItem(hooks, key, hook) : -1;
    }
    else if (!stands) {
        result = stand_in(hooks, place, value, behind);
    }
    return result == 0 ? PyBool_FromLong(still) : NULL;
}
