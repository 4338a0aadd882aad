/* Tables of a recording as buffers.  See columns.h. */
#include "dicts/columns.h"

#include <string.h>

#include "core/analysis/attribution/cause.h"
#include "core/show/export/recording_tables.h"

const char ml_columns_doc[] =
    "columns($self, table, device=0)\n--\n\n"
    "A table of the recording: a dict of memoryviews, by the names of its columns.\n\n"
    "table is 'events', 'allocations', 'segments', 'blocks' or 'steps' of device, or\n"
    "'notes', 'stacks', 'frames' or 'strings' of all; docs/VIEWING.md says what the\n"
    "columns are.\n"
    "Raises ValueError, IndexError for a device that the recording does not have,\n"
    "memlab.Error for over two billion events, MemoryError.";

static PyObject *
texts_of(const char *(*text)(unsigned), unsigned count)
{
    PyObject *texts = PyTuple_New(count);
    for (unsigned i = 0; i < count && texts != NULL; i++) {
        PyObject *item = PyUnicode_FromString(text(i));
        if (item == NULL) {
            Py_CLEAR(texts);
        }
        else {
            PyTuple_SET_ITEM(texts, i, item);
        }
    }
    return texts;
}

static const char *
state_text(unsigned state)
{
    static const char *const texts[] = {[ML_BLOCK_INACTIVE] = "inactive",
                                        [ML_BLOCK_ALLOCATED] = "active_allocated",
                                        [ML_BLOCK_PENDING_FREE] =
                                            "active_pending_free"};
    return texts[state];
}

PyObject *
ml_columns_texts(void)
{
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (ml_py_set(dict, "action", texts_of(ml_action_text, ML_ACTION_COUNT)) < 0 ||
         ml_py_set(dict, "category", texts_of(ml_category_text, ML_CATEGORY_COUNT)) <
             0 ||
         ml_py_set(dict, "phase", texts_of(ml_phase_text, ML_PHASE_COUNT)) < 0 ||
         ml_py_set(dict, "how", texts_of(ml_how_text, ML_HOW_COUNT)) < 0 ||
         ml_py_set(dict, "kind", texts_of(ml_note_text, ML_NOTE_COUNT)) < 0 ||
         ml_py_set(dict, "state", texts_of(state_text, ML_BLOCK_PENDING_FREE + 1)) <
             0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static int
kind_of(const char *name, enum ml_recording_table_kind *kind)
{
    static const char *const names[] = {
#define XX(name, text, of_device) text,
        ML_RECORDING_TABLES(XX)
#undef XX
    };
    for (unsigned i = 0; i < ML_RECORDING_TABLE_COUNT; i++) {
        if (strcmp(name, names[i]) == 0) {
            *kind = (enum ml_recording_table_kind)i;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError,
                 "no table '%s': there are events, allocations, segments, blocks, "
                 "steps, notes, stacks, frames and strings",
                 name);
    return -1;
}

static PyObject *
column_view(const ml_column_table_column *column)
{
    size_t size = column->count * ml_column_table_item_size(column->format);
    PyObject *bytes = PyBytes_FromStringAndSize(column->items, (Py_ssize_t)size);
    PyObject *view = bytes == NULL ? NULL : PyMemoryView_FromObject(bytes);
    Py_XDECREF(bytes);
    if (view == NULL || column->format == 'B') {
        return view;
    }
    PyObject *typed = PyObject_CallMethod(view, "cast", "C", (int)column->format);
    Py_DECREF(view);
    return typed;
}

/* Frees TABLE's columns one by one, so that at most one exists twice. */
static PyObject *
table_dict(ml_column_table *table)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; i < table->column_count && dict != NULL; i++) {
        ml_column_table_column *column = &table->columns[i];
        PyObject *view = column_view(column);
        ml_free(column->items);
        column->items = NULL;
        if (ml_py_set(dict, column->name, view) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

PyObject *
ml_py_columns(ml_state *state, const ml_recording *recording, PyObject *args,
              PyObject *kwargs)
{
    static char *keywords[] = {"table", "device", NULL};
    const char *name;
    Py_ssize_t device = 0;
    enum ml_recording_table_kind kind;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|n:columns", keywords, &name,
                                     &device) ||
        kind_of(name, &kind) < 0) {
        return NULL;
    }
    if (ml_recording_table_is_of_device(kind) &&
        (device < 0 || (size_t)device >= recording->device_count)) {
        PyErr_Format(PyExc_IndexError, "the recording has %zu devices, no %zd",
                     recording->device_count, device);
        return NULL;
    }
    ml_column_table table;
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = ml_recording_tables_make(&table, recording, kind, (size_t)device);
    Py_END_ALLOW_THREADS
    PyObject *dict = error < 0 ? ml_py_raise(state, error, NULL) : table_dict(&table);
    ml_column_table_fini(&table);
    return dict;
}
