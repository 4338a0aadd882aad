/* Makes the answer to "which lines leave memory behind step by step" a dict.  See
 * growth_dict.h. */
#include "dicts/growth_dict.h"

#include "core/base/base.h"
#include "core/recording/code_names.h"
#include "core/show/text/verdict_text.h"
#include "dicts/dict_values.h"

PyObject *
ml_py_inner(const ml_recording *recording, const ml_cause *cause)
{
    if (!ml_cause_has_inner(recording, cause)) {
        return Py_NewRef(Py_None);
    }
    ml_code_names names;
    if (ml_code_names_init(&names, recording) < 0) {
        return PyErr_NoMemory();
    }
    uint32_t qualname = ml_code_name(&names, cause->model);
    ml_code_names_fini(&names);
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (set_frame(dict, recording, cause->model) < 0 ||
         ml_py_set(dict, "qualname", text(recording->strings[qualname])) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

int
ml_py_set_cause(PyObject *dict, const ml_recording *recording, const ml_cause *cause)
{
    if (set_frame(dict, recording, cause->frame) < 0 ||
        ml_py_set(dict, "inner", ml_py_inner(recording, cause)) < 0 ||
        ml_py_set(dict, "module", text(recording->strings[cause->module])) < 0) {
        return -1;
    }
    return ml_py_set(dict, "how", PyUnicode_FromString(ml_how_text(cause->how)));
}

int
ml_py_set_growing(PyObject *dict, const ml_recording *recording,
                  const ml_growing *growing)
{
    static const ml_growing none;
    bool known = growing != NULL;
    growing = known ? growing : &none;
    if (ml_py_set(dict, "since_step",
                  known ? number(growing->since) : Py_NewRef(Py_None)) < 0 ||
        ml_py_set(dict, "steps", number(growing->steps)) < 0 ||
        ml_py_set(dict, "graph", PyBool_FromLong(growing->graph)) < 0) {
        return -1;
    }
    return ml_py_set(dict, "holder", text(recording->strings[growing->holder]));
}

/* Addresses of the blocks to look up. */
static PyObject *
address_list(const ml_analysis *analysis, const ml_growing *growing)
{
    PyObject *list;
    FILL_LIST(
        list, i, growing->row_count,
        number(ml_lifetimes_request(&analysis->lifetimes, growing->rows[i]).addr));
    return list;
}

static PyObject *
line_dict(const ml_analysis *analysis, const ml_growing *growing)
{
    const ml_recording *recording = analysis->recording;
    PyObject *dict = PyDict_New();
    const char *reason = ml_no_line_text(growing->cause.no_line);
    if (dict != NULL &&
        (ml_py_set(dict, "bytes_per_step", number(growing->per_step)) < 0 ||
         ml_py_set(dict, "bytes", number(growing->bytes)) < 0 ||
         ml_py_set(dict, "blocks", number(growing->blocks)) < 0 ||
         ml_py_set(dict, "certain", PyBool_FromLong(growing->certain)) < 0 ||
         ml_py_set(dict, "lines", PyLong_FromUnsignedLong(growing->lines)) < 0 ||
         ml_py_set(dict, "phase",
                   PyUnicode_FromString(ml_phase_text(growing->cause.phase))) < 0 ||
         ml_py_set(dict, "reason", PyUnicode_FromString(reason)) < 0 ||
         ml_py_set_growing(dict, recording, growing) < 0 ||
         ml_py_set_cause(dict, recording, &growing->cause) < 0 ||
         ml_py_set(dict, "addresses", address_list(analysis, growing)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
streams_text(const ml_growing_streams *growing)
{
    ml_buffer out = {0};
    ml_verdict_streams(&out, growing);
    return text_of(&out);
}

static PyObject *
streams_dict(const ml_growing_streams *growing)
{
    if (growing->streams == 0) {
        return Py_NewRef(Py_None);
    }
    PyObject *dict = PyDict_New();
    if (dict != NULL &&
        (ml_py_set(dict, "text", streams_text(growing)) < 0 ||
         ml_py_set(dict, "streams", number(growing->streams)) < 0 ||
         ml_py_set(dict, "bytes_per_step", number(growing->per_step)) < 0 ||
         ml_py_set(dict, "bytes", number(growing->bytes)) < 0 ||
         ml_py_set(dict, "blocks", number(growing->blocks)) < 0 ||
         ml_py_set(dict, "since_step", number(growing->since)) < 0 ||
         ml_py_set(dict, "steps", number(growing->steps)) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
growth_dict(const ml_analysis *analysis, int device, const ml_growth *growth)
{
    PyObject *lines;
    FILL_LIST(lines, i, growth->count, line_dict(analysis, &growth->lines[i]));
    PyObject *dict = PyDict_New();
    if (dict == NULL || lines == NULL) {
        Py_XDECREF(lines);
        Py_XDECREF(dict);
        return NULL;
    }
    if (ml_py_set(dict, "lines", lines) < 0 ||
        ml_py_set(dict, "workspaces", streams_dict(&growth->workspaces)) < 0 ||
        ml_py_set(dict, "device", PyLong_FromLong(device)) < 0 ||
        ml_py_set(dict, "steps_by",
                  PyUnicode_FromString(ml_growth_by_text(growth->by))) < 0 ||
        ml_py_set(dict, "steps", number(growth->steps)) < 0 ||
        ml_py_set(dict, "last_step",
                  growth->steps != 0 ? number(growth->last) : Py_NewRef(Py_None)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyObject *
ml_py_growth(ml_state *state, const ml_recording *recording, int device)
{
    const ml_analysis *analysis = NULL;
    const ml_growth *growth = NULL;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_analysis_of(recording, (size_t)device, &analysis);
    if (result == 0) {
        result = ml_growth_of(analysis, &growth);
    }
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return ml_py_raise(state, result, ml_strerror(result));
    }
    return growth_dict(analysis, device, growth);
}
