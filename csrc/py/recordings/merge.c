/* Merging recordings of several ranks.  See merge.h. */
#include "recordings/merge.h"

#include "core/base/base.h"
#include "core/compare/ranks/merge.h"
#include "core/recording/recording.h"

const char ml_py_merge_doc[] =
    "merge($module, items, /)\n--\n\n"
    "One Recording of several processes. items is an iterable of (recording, name of "
    "its\n"
    "file, rank where the recording does not say or -1); each is taken when its turn\n"
    "comes and not kept. Raises ValueError where there is none, where their sources\n"
    "differ, or for more devices than a recording may have, and MemoryError.";

/* Adds ITEM, a tuple.  0 or -1. */
static int
add_item(ml_state *state, ml_merge *merge, PyObject *item)
{
    PyObject *source;
    const char *file;
    int rank;
    if (!PyArg_ParseTuple(item, "Osi:merge", &source, &file, &rank)) {
        return -1;
    }
    const ml_recording *recording = ml_recording_behind(state, source);
    if (recording == NULL) {
        PyErr_SetString(PyExc_TypeError, "merge() takes Recordings");
        return -1;
    }
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_merge_add(merge, recording, file, rank);
    Py_END_ALLOW_THREADS
    if (result == ML_EINVALID) {
        PyErr_Format(PyExc_ValueError,
                     "%s: of source '%s', unlike those before: merge recordings of one "
                     "source",
                     file, recording->source);
    }
    else if (result == ML_EFULL) {
        PyErr_Format(
            PyExc_ValueError,
            "%s: with it there would be more than %d devices or ranks, or more stacks "
            "than a recording can have: merge fewer",
            file, ML_RECORDING_DEVICES_MAX);
    }
    else if (result < 0) {
        ml_py_raise(state, result, ml_strerror(result));
    }
    return result;
}

static PyObject *
merge_all(ml_state *state, ml_merge *merge, PyObject *iterator)
{
    PyObject *item;
    while ((item = PyIter_Next(iterator)) != NULL) {
        int result = -1;
        if (PyTuple_Check(item)) {
            result = add_item(state, merge, item);
        }
        else {
            PyErr_SetString(PyExc_TypeError, "merge() takes tuples");
        }
        Py_DECREF(item);
        if (result < 0) {
            return NULL;
        }
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    ml_recording *merged = NULL;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_merge_finish(merge, &merged);
    Py_END_ALLOW_THREADS
    if (result == ML_EINVALID) {
        PyErr_SetString(PyExc_ValueError,
                        "there is nothing to merge: give one recording or more");
        return NULL;
    }
    return result < 0 ? ml_py_raise(state, result, ml_strerror(result))
                      : ml_recording_wrap(state, merged);
}

PyObject *
ml_py_merge(PyObject *module, PyObject *items)
{
    ml_state *state = PyModule_GetState(module);
    PyObject *iterator = PyObject_GetIter(items);
    ml_merge *merge = NULL;
    int result = iterator == NULL ? 0 : ml_merge_new(&merge);
    PyObject *merged = NULL;
    if (result < 0) {
        ml_py_raise(state, result, ml_strerror(result));
    }
    else if (iterator != NULL) {
        merged = merge_all(state, merge, iterator);
    }
    ml_merge_free(merge);
    Py_XDECREF(iterator);
    return merged;
}
