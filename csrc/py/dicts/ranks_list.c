/* The ranks of a recording.  See ranks_list.h. */
#include "dicts/ranks_list.h"

#include "dicts/dict_values.h"

/* None unless KNOWN. */
static PyObject *
maybe(bool known, long long value)
{
    return known ? PyLong_FromLongLong(value) : Py_NewRef(Py_None);
}

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

/* The devices of RANK, or all devices of a recording that is not merged. */
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
        ml_py_set(dict, "called", PyUnicode_FromString(ml_rank_word(rank))) < 0 ||
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
