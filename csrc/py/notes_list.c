/* The notes of a recording as Python objects: one dict a note, of every kind alike. */
#include "notes_list.h"

#include "state.h"

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

static PyObject *
note_dict(const ml_recording *recording, const ml_note *note)
{
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
        ml_py_set(dict, "device", PyLong_FromLong(note->device)) < 0 ||
        ml_py_set(dict, "thread", PyLong_FromUnsignedLong(note->thread)) < 0 ||
        ml_py_set(dict, "values", values_list(note)) < 0) {
        Py_DECREF(dict);
        return NULL;
    }
    return dict;
}

PyObject *
ml_py_notes(const ml_recording *recording)
{
    PyObject *list = PyList_New((Py_ssize_t)recording->note_count);
    for (size_t i = 0; list != NULL && i < recording->note_count; i++) {
        PyObject *dict = note_dict(recording, &recording->notes[i]);
        if (dict == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, dict);
    }
    return list;
}
