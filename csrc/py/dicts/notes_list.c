/* Makes a recording's notes Python objects: one dict a note, with equal keys for every
 * kind. */
#include "dicts/notes_list.h"

#include "dicts/dict_values.h"

static PyObject *
values_list(const ml_note *note)
{
    PyObject *values = PyList_New(ML_NOTE_VALUES);
    for (Py_ssize_t i = 0; values != NULL && i < ML_NOTE_VALUES; i++) {
        PyObject *value = note->values[i] == ML_NOTE_UNKNOWN
                              ? Py_NewRef(Py_None)
                              : PyLong_FromUnsignedLongLong(note->values[i]);
        if (value == NULL) {
            Py_CLEAR(values);
            break;
        }
        PyList_SET_ITEM(values, i, value);
    }
    return values;
}

/* RANK: the note's rank; NULL: none. */
static PyObject *
note_dict(const ml_recording *recording, const ml_rank *rank, const ml_note *note)
{
    bool merged = rank != NULL && rank->part != NULL;
    long device =
        note->device + (merged && note->device >= 0 ? (long)rank->first_device : 0);
    PyObject *dict = PyDict_New();
    if (dict == NULL) {
        return NULL;
    }
    const ml_string *name = &recording->strings[note->name];
    if (ml_py_set(dict, "time_ns", PyLong_FromUnsignedLongLong(note->time)) < 0 ||
        ml_py_set(dict, "kind", PyUnicode_FromString(ml_note_text(note->kind))) < 0 ||
        ml_py_set(dict, "name",
                  PyUnicode_DecodeUTF8(name->bytes, (Py_ssize_t)name->length,
                                       "surrogatepass")) < 0 ||
        ml_py_set(dict, "device", PyLong_FromLong(device)) < 0 ||
        ml_py_set(dict, "rank", PyLong_FromLong(rank != NULL ? rank->rank : -1)) < 0 ||
        ml_py_set(dict, "thread", PyLong_FromUnsignedLong(note->thread)) < 0 ||
        ml_py_set(dict, "values", values_list(note)) < 0) {
        Py_DECREF(dict);
        return NULL;
    }
    return dict;
}

/* A list of the COUNT NOTES. */
static PyObject *
notes_of(const ml_recording *recording, const ml_rank *rank, const ml_note *notes,
         size_t count)
{
    PyObject *list;
    FILL_LIST(list, i, count, note_dict(recording, rank, &notes[i]));
    return list;
}

/* The notes of all ranks, rank by rank. */
static PyObject *
notes_by_rank(const ml_recording *recording)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < recording->rank_count; i++) {
        const ml_rank *rank = &recording->ranks[i];
        PyObject *more =
            notes_of(recording, rank, rank->part->notes, rank->part->note_count);
        Py_ssize_t end = PyList_Size(list);
        if (more == NULL || PyList_SetSlice(list, end, end, more) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(more);
    }
    return list;
}

PyObject *
ml_py_notes(const ml_recording *recording)
{
    return ml_recording_is_merged(recording)
               ? notes_by_rank(recording)
               : notes_of(recording, recording->ranks, recording->notes,
                          recording->note_count);
}
