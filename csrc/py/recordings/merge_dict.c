/* Recordings of several ranks as Python objects.  See merge_dict.h. */
#include "recordings/merge_dict.h"

#include "core/base/base.h"
#include "core/compare/ranks/merge.h"
#include "dicts/dict_values.h"

/* None where KNOWN is false. */
static PyObject *
maybe(bool known, long long value)
{
    return known ? PyLong_FromLongLong(value) : Py_NewRef(Py_None);
}

/* ---- Merging ---- */

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
        PyErr_SetString(PyExc_ValueError, "there is nothing to merge");
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

/* ---- Ranks ---- */

static PyObject *
clock_dict(const ml_rank *rank)
{
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (ml_py_set(dict, "method",
                   PyUnicode_FromString(ml_alignment_text(rank->alignment))) < 0 ||
         ml_py_set(dict, "offset_ns", PyLong_FromLongLong(rank->offset)) < 0 ||
         ml_py_set(dict, "bound_ns",
                   rank->bound == ML_NOTE_UNKNOWN ? Py_NewRef(Py_None)
                                                  : number(rank->bound)) < 0 ||
         ml_py_set(dict, "common_steps", PyLong_FromUnsignedLong(rank->common_steps)) <
             0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* The devices of RANK, or all of a recording that is not merged. */
static PyObject *
devices_list(const ml_recording *recording, const ml_rank *rank)
{
    bool merged = rank->part != NULL;
    size_t first = merged ? rank->first_device : 0;
    size_t count = merged ? rank->device_count : recording->device_count;
    PyObject *list = PyList_New(0);
    for (size_t i = first; list != NULL && i < first + count; i++) {
        uint32_t own = merged ? recording->devices[i].number : (uint32_t)i;
        PyObject *item = Py_BuildValue("{s:n,s:I}", "device", (Py_ssize_t)i, "number",
                                       (unsigned int)own);
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *
rank_dict(const ml_recording *recording, const ml_rank *rank)
{
    const ml_string *strings = recording->strings;
    PyObject *dict = PyDict_New();
    if (dict == NULL ||
        ml_py_set(dict, "rank", maybe(rank->rank >= 0, rank->rank)) < 0 ||
        ml_py_set(dict, "local_rank", maybe(rank->local_rank >= 0, rank->local_rank)) <
            0 ||
        ml_py_set(dict, "world_size", maybe(rank->world_size > 0, rank->world_size)) <
            0 ||
        ml_py_set(dict, "file", text(strings[rank->file])) < 0 ||
        ml_py_set(dict, "host", text(strings[rank->host])) < 0 ||
        ml_py_set(dict, "boot_id", text(strings[rank->boot])) < 0 ||
        ml_py_set(dict, "pid", rank->pid > 0 ? number(rank->pid) : Py_NewRef(Py_None)) <
            0 ||
        ml_py_set(dict, "state",
                  PyUnicode_FromString(ml_rank_state_text(rank->state))) < 0 ||
        ml_py_set(dict, "devices", devices_list(recording, rank)) < 0 ||
        ml_py_set(dict, "clock", clock_dict(rank)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyObject *
ml_py_ranks(const ml_recording *recording)
{
    PyObject *list;
    FILL_LIST(list, i, recording->rank_count,
              rank_dict(recording, &recording->ranks[i]));
    return list;
}
