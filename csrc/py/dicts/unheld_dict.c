/* The answer to "what is allocated that nobody is known to hold".  See unheld_dict.h. */
#include "dicts/unheld_dict.h"

#include <string.h>

#include "core/base/base.h"
#include "core/record/current_memory.h"
#include "core/record/recorder.h"
#include "dicts/dict_values.h"
#include "dicts/peak_dict.h"

/* Without a recording a block need not be from before one: it may be of one that ended. */
static int
set_not_recorded(PyObject *dict)
{
    return ml_py_set(dict, "reason", PyUnicode_FromString("nothing is recorded now")) <
                       0 ||
                   ml_py_set(dict, "phase",
                             PyUnicode_FromString(ml_phase_text(ML_PHASE_UNKNOWN))) < 0
               ? -1
               : 0;
}

static PyObject *
row_dict(const ml_unheld_row *row, bool recorded)
{
    PyObject *dict = ml_py_peak_line(&row->line);
    if (dict != NULL && !recorded && row->line.no_line == ML_NO_LINE_BEFORE &&
        set_not_recorded(dict) < 0) {
        Py_CLEAR(dict);
    }
    if (dict != NULL &&
        (ml_py_set(dict, "keeper", PyUnicode_FromString(ml_keeper_text(row->keeper))) <
             0 ||
         ml_py_set(dict, "pool",
                   Py_BuildValue("[KK]", (unsigned long long)row->pool[0],
                                 (unsigned long long)row->pool[1])) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
rows_list(const ml_unheld *unheld, bool recorded)
{
    PyObject *list;
    FILL_LIST(list, i, unheld->row_count, row_dict(&unheld->rows[i], recorded));
    return list;
}

PyObject *
ml_py_unheld(const ml_unheld *unheld, bool recorded)
{
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (ml_py_set(dict, "reserved_bytes", number(unheld->reserved)) < 0 ||
         ml_py_set(dict, "allocated_bytes", number(unheld->allocated)) < 0 ||
         ml_py_set(dict, "awaiting_free_bytes", number(unheld->awaiting)) < 0 ||
         ml_py_set(dict, "cached_bytes", number(unheld->cached)) < 0 ||
         ml_py_set(dict, "split_remainder_bytes", number(unheld->remainders)) < 0 ||
         ml_py_set(dict, "held_bytes", number(unheld->held)) < 0 ||
         ml_py_set(dict, "held_blocks", number(unheld->held_blocks)) < 0 ||
         ml_py_set(dict, "claimed_bytes", number(unheld->claimed)) < 0 ||
         ml_py_set(dict, "slack_bytes", number(unheld->slack)) < 0 ||
         ml_py_set(dict, "unheld_bytes", number(unheld->unheld)) < 0 ||
         ml_py_set(dict, "unheld_blocks", number(unheld->unheld_blocks)) < 0 ||
         ml_py_set(dict, "outside_bytes", number(unheld->outside)) < 0 ||
         ml_py_set(dict, "outside_claims", number(unheld->outside_claims)) < 0 ||
         ml_py_set(dict, "rows", rows_list(unheld, recorded)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* ---- The function ---- */

/* Looks until memory stands still meanwhile, so many times at most. */
#define TRIES 4

/* *OUT is owned by the caller.  0 or -1 with an exception. */
static int
take_claims(PyObject *collect, ml_claim **out, size_t *count)
{
    PyObject *answer = PyObject_CallNoArgs(collect);
    char *packed;
    Py_ssize_t length;
    int result =
        answer != NULL ? PyBytes_AsStringAndSize(answer, &packed, &length) : -1;
    if (result == 0 && (size_t)length % sizeof(ml_claim) != 0) {
        PyErr_SetString(PyExc_ValueError, "a claim is two numbers of 64 bits");
        result = -1;
    }
    if (result == 0) {
        *out = ml_alloc((size_t)length + 1);
        if (*out == NULL) {
            PyErr_NoMemory();
            result = -1;
        }
        else {
            memcpy(*out, packed, (size_t)length);
            *count = (size_t)length / sizeof(ml_claim);
        }
    }
    Py_XDECREF(answer);
    return result;
}

typedef struct look {
    const ml_source *source;
    int device;
    bool recorded;
    bool changed;
    ml_claim *claims;
    size_t count;
    ml_recording *memory;
    ml_unheld *unheld;
} look;

/* One look; 0 or -1 with an exception. */
static int
look_once(ml_state *state, PyObject *collect, look *at)
{
    ml_memory_mark before, now;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_memory_mark_now(at->source, &before);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        ml_py_raise(state, result, NULL);
        return -1;
    }
    if (take_claims(collect, &at->claims, &at->count) < 0) {
        return -1;
    }
    Py_BEGIN_ALLOW_THREADS
    result = ml_memory_read(at->source, &now, &at->recorded, &at->memory);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        ml_py_raise(state, result, NULL);
        return -1;
    }
    at->changed = !ml_memory_same(&before, &now, at->device);
    return 0;
}

static void
forget_memory(look *at)
{
    ml_free(at->claims);
    at->claims = NULL;
    ml_recording_free(at->memory);
    at->memory = NULL;
}

static PyObject *
answer(ml_state *state, look *at)
{
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_unheld_new(at->memory, (size_t)at->device, at->claims, at->count,
                           &at->unheld);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return ml_py_raise(state, result, ml_strerror(result));
    }
    PyObject *dict = ml_py_unheld(at->unheld, at->recorded);
    if (dict != NULL &&
        (ml_py_set(dict, "device", PyLong_FromLong(at->device)) < 0 ||
         ml_py_set(dict, "recorded", PyBool_FromLong(at->recorded)) < 0 ||
         ml_py_set(dict, "changed", PyBool_FromLong(at->changed)) < 0)) {
        Py_CLEAR(dict);
    }
    ml_unheld_free(at->unheld);
    return dict;
}

const char ml_py_unheld_now_doc[] =
    "unheld($module, source, device, collect, /)\n--\n\n"
    "What is allocated on a device, by whether a claim lies in it, as a dict.\n\n"
    "collect() gives what known holders keep as bytes: address and length of each, "
    "two\n"
    "numbers of 64 bits. It is called again where memory changed meanwhile, a few "
    "times\n"
    "at most. memlab._answers.Unheld describes the answer. Raises memlab.Error where\n"
    "memory cannot be read, ValueError for a device that cannot be, what collect()\n"
    "raises, TypeError or ValueError where that gives no such bytes, MemoryError.";

PyObject *
ml_py_unheld_now(PyObject *module, PyObject *args)
{
    ml_state *state = PyModule_GetState(module);
    const char *name;
    PyObject *collect;
    look at = {0};
    if (!PyArg_ParseTuple(args, "siO:unheld", &name, &at.device, &collect)) {
        return NULL;
    }
    at.source = ml_recorder_source(name);
    if (at.source == NULL) {
        return PyErr_Format(state->error,
                            "no source of events named '%s' here; memlab.backends() "
                            "says why",
                            name);
    }
    if (at.device < 0 || at.device >= ML_DEVICE_MAX) {
        return PyErr_Format(PyExc_ValueError, "device must be from 0 to %d, not %d",
                            ML_DEVICE_MAX - 1, at.device);
    }
    PyObject *dict = NULL;
    int result = look_once(state, collect, &at);
    for (int i = 1; result == 0 && at.changed && i < TRIES; i++) {
        forget_memory(&at);
        result = look_once(state, collect, &at);
    }
    if (result == 0) {
        dict = answer(state, &at);
    }
    forget_memory(&at);
    return dict;
}
