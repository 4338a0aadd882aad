/* Recordings of several ranks as Python objects.  See merge_dict.h. */
#include "merge_dict.h"

#include <string.h>

#include "../core/base.h"
#include "../core/difference.h"
#include "../core/merge.h"

static PyObject *
number(uint64_t value)
{
    return PyLong_FromUnsignedLongLong(value);
}

static PyObject *
text(ml_string string)
{
    return PyUnicode_DecodeUTF8(string.bytes, (Py_ssize_t)string.length,
                                "backslashreplace");
}

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
    PyObject *list = PyList_New((Py_ssize_t)recording->rank_count);
    for (size_t i = 0; list != NULL && i < recording->rank_count; i++) {
        PyObject *dict = rank_dict(recording, &recording->ranks[i]);
        if (dict == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, dict);
    }
    return list;
}

/* ---- Differences ---- */

/* Of sizes as a file may say them, which no 64 bits with a sign hold. */
static PyObject *
difference_of(const ml_two *two)
{
    if (two->bytes[1] >= two->bytes[0]) {
        return number(two->bytes[1] - two->bytes[0]);
    }
    PyObject *less = number(two->bytes[0] - two->bytes[1]);
    PyObject *difference = less != NULL ? PyNumber_Negative(less) : NULL;
    Py_XDECREF(less);
    return difference;
}

static int
set_two(PyObject *dict, const ml_two *two)
{
    if (ml_py_set(dict, "before_bytes", number(two->bytes[0])) < 0 ||
        ml_py_set(dict, "after_bytes", number(two->bytes[1])) < 0 ||
        ml_py_set(dict, "difference_bytes", difference_of(two)) < 0 ||
        ml_py_set(dict, "before_blocks", number(two->blocks[0])) < 0 ||
        ml_py_set(dict, "after_blocks", number(two->blocks[1])) < 0) {
        return -1;
    }
    return 0;
}

static PyObject *
line_dict(const ml_difference_line *line)
{
    PyObject *dict = PyDict_New();
    const char *module = line->module != NULL ? line->module : "";
    if (dict == NULL || ml_py_set(dict, "file", text(line->file)) < 0 ||
        ml_py_set(dict, "line", PyLong_FromLongLong(line->line)) < 0 ||
        ml_py_set(dict, "function", text(line->function)) < 0 ||
        ml_py_set(dict, "module",
                  PyUnicode_DecodeUTF8(module, (Py_ssize_t)strlen(module),
                                       "backslashreplace")) < 0 ||
        ml_py_set(dict, "category",
                  PyUnicode_FromString(ml_category_text(line->category))) < 0 ||
        ml_py_set(dict, "phase", PyUnicode_FromString(ml_phase_text(line->phase))) <
            0 ||
        ml_py_set(dict, "reason",
                  PyUnicode_FromString(ml_no_line_text(line->no_line))) < 0 ||
        set_two(dict, &line->two) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
module_dict(const ml_difference_module *module)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL || ml_py_set(dict, "module", text(module->module)) < 0 ||
        ml_py_set(dict, "reason",
                  PyUnicode_FromString(ml_no_module_text(module->no_module))) < 0 ||
        set_two(dict, &module->two) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
categories_dict(const ml_difference *difference)
{
    PyObject *dict = PyDict_New();
    for (unsigned i = 0; dict != NULL && i < ML_CATEGORY_COUNT; i++) {
        const ml_two *two = &difference->categories[i];
        if (two->bytes[0] != two->bytes[1] &&
            ml_py_set(dict, ml_category_text(i), difference_of(two)) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

static PyObject *
difference_dict(const ml_difference *difference)
{
    PyObject *lines = PyList_New((Py_ssize_t)difference->line_count);
    for (size_t i = 0; lines != NULL && i < difference->line_count; i++) {
        PyObject *dict = line_dict(&difference->lines[i]);
        if (dict == NULL) {
            Py_CLEAR(lines);
            break;
        }
        PyList_SET_ITEM(lines, (Py_ssize_t)i, dict);
    }
    PyObject *modules = PyList_New((Py_ssize_t)difference->module_count);
    for (size_t i = 0; modules != NULL && i < difference->module_count; i++) {
        PyObject *dict = module_dict(&difference->modules[i]);
        if (dict == NULL) {
            Py_CLEAR(modules);
            break;
        }
        PyList_SET_ITEM(modules, (Py_ssize_t)i, dict);
    }
    PyObject *dict = PyDict_New();
    if (dict == NULL || set_two(dict, &difference->whole) < 0) {
        Py_XDECREF(lines);
        Py_XDECREF(modules);
        Py_XDECREF(dict);
        return NULL;
    }
    int failed = ml_py_set(dict, "by_line", lines) < 0;
    failed |= ml_py_set(dict, "by_module", modules) < 0;
    if (failed || ml_py_set(dict, "by_category", categories_dict(difference)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static int
compare_peaks(const ml_recording *of_before, size_t before,
              const ml_recording *of_after, size_t after, ml_difference **out)
{
    const ml_recording *first = ml_recording_part(of_before, &before);
    const ml_recording *second = ml_recording_part(of_after, &after);
    ml_peak *one = NULL, *other = NULL;
    int result = ml_peak_new(first, before, &one);
    if (result == 0) {
        result = ml_peak_new(second, after, &other);
    }
    if (result == 0) {
        result = ml_difference_new(first, one, second, other, out);
    }
    ml_peak_free(one);
    ml_peak_free(other);
    return result;
}

PyObject *
ml_py_difference(ml_state *state, const ml_recording *of_before, size_t before,
                 const ml_recording *of_after, size_t after)
{
    ml_difference *difference = NULL;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = compare_peaks(of_before, before, of_after, after, &difference);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return ml_py_raise(state, result, ml_strerror(result));
    }
    PyObject *dict = difference_dict(difference);
    ml_difference_free(difference);
    return dict;
}
