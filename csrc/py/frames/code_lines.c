/* Passes the text of code lines between a recording and Python.  See code_lines.h. */
#include "frames/code_lines.h"

#include "core/analysis/attribution/stack_facts.h"
#include "core/base/base.h"
#include "dicts/dict_values.h"

/* ---- Asked ---- */

/* Frames whose lines are requested, by index in the list. */
typedef struct asked {
    uint32_t *frames; /* owned */
    bool *models;   /* owned; by frame: a model's own line, wherever it is installed */
    PyObject *list; /* owned */
} asked;

static int
find_models(const ml_recording *recording, bool *models)
{
    ml_stack_facts facts;
    int error = ml_stack_facts_init(&facts, recording);
    if (error < 0) {
        return error;
    }
    for (size_t i = 1; i < recording->stack_count; i++) {
        uint32_t own = recording->stacks[i].frame;
        bool model = facts.of[i].model == own && facts.of[i].module != 0;
        models[own] = models[own] || model;
    }
    ml_stack_facts_fini(&facts);
    return 0;
}

/* As the program has it, so that it can be opened. */
static PyObject *
exact_text(ml_string string)
{
    return PyUnicode_DecodeUTF8(string.bytes, (Py_ssize_t)string.length,
                                "surrogatepass");
}

static PyObject *
frame_tuple(const ml_recording *recording, uint32_t id, bool model)
{
    const ml_frame *frame = &recording->frames[id];
    bool named = model || ml_frame_place_of(recording, id) == ML_PLACE_USER;
    return Py_BuildValue("(NNLO)", exact_text(recording->strings[frame->filename]),
                         exact_text(recording->strings[frame->name]),
                         (long long)frame->line, named ? Py_True : Py_False);
}

static int
list_frames(const ml_recording *recording, asked *to)
{
    Py_ssize_t count = 0;
    to->frames = ml_alloc_zeroed(recording->frame_count, sizeof(*to->frames));
    to->models = ml_alloc_zeroed(recording->frame_count, sizeof(*to->models));
    if (to->frames == NULL || to->models == NULL ||
        find_models(recording, to->models) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    to->list = PyList_New(0);
    if (to->list == NULL) {
        return -1;
    }
    for (size_t i = 1; i < recording->frame_count; i++) {
        uint32_t id = (uint32_t)i;
        if (recording->frames[i].line <= 0 || recording->frames[i].line > INT32_MAX ||
            ml_frame_place_of(recording, id) == ML_PLACE_NATIVE) {
            continue;
        }
        PyObject *item = frame_tuple(recording, id, to->models[id]);
        if (item == NULL || PyList_Append(to->list, item) < 0) {
            Py_XDECREF(item);
            return -1;
        }
        Py_DECREF(item);
        to->frames[count++] = id;
    }
    return 0;
}

static int
add_text(ml_recording *recording, PyObject *value, uint32_t *id)
{
    PyObject *bytes = PyUnicode_AsEncodedString(value, "utf-8", "surrogatepass");
    if (bytes == NULL) {
        return -1;
    }
    int result = 0;
    if (PyBytes_GET_SIZE(bytes) > 0) {
        result = ml_recording_add_string(recording, PyBytes_AS_STRING(bytes),
                                         (size_t)PyBytes_GET_SIZE(bytes), id);
    }
    Py_DECREF(bytes);
    if (result < 0) {
        PyErr_NoMemory();
    }
    return result;
}

static int
add_line(ml_recording *recording, const asked *of, PyObject *item)
{
    Py_ssize_t index;
    PyObject *content, *qualname;
    long long first, last, changed;
    unsigned char forward;
    if (!PyTuple_Check(item) ||
        !PyArg_ParseTuple(item, "nUULLLb;a line of code", &index, &content, &qualname,
                          &first, &last, &changed, &forward)) {
        return -1;
    }
    if (index < 0 || index >= PyList_GET_SIZE(of->list)) {
        PyErr_SetString(PyExc_IndexError, "a line of code that was not asked for");
        return -1;
    }
    const ml_frame *frame = &recording->frames[of->frames[index]];
    ml_code_line line = {
        .filename = frame->filename,
        .name = frame->name,
        .line = frame->line,
        .first_line = first,
        .last_line = last,
        .changed_us = changed,
        .forward = ml_code_forward_of(forward),
    };
    if (add_text(recording, content, &line.text) < 0 ||
        add_text(recording, qualname, &line.qualname) < 0) {
        return -1;
    }
    if (ml_recording_add_code_line(recording, line) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

int
ml_py_ask_code(ml_recording *recording, PyObject *read)
{
    asked of = {NULL, NULL, NULL};
    PyObject *told = NULL;
    int result = list_frames(recording, &of);
    if (result == 0) {
        told = PyObject_CallFunctionObjArgs(read, of.list, NULL);
        result = told == NULL ? -1 : 0;
    }
    if (result == 0 && !PyList_Check(told)) {
        PyErr_SetString(PyExc_TypeError, "expected a list of lines of code");
        result = -1;
    }
    for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(told); i++) {
        result = add_line(recording, &of, PyList_GET_ITEM(told, i));
    }
    Py_XDECREF(told);
    Py_XDECREF(of.list);
    ml_free(of.frames);
    ml_free(of.models);
    return result;
}

/* ---- Told ---- */

static PyObject *
line_tuple(const ml_recording *recording, const ml_code_line *line)
{
    const ml_string *strings = recording->strings;
    return Py_BuildValue("(NNLNNLLL)", text(strings[line->filename]),
                         text(strings[line->name]), (long long)line->line,
                         text(strings[line->text]), text(strings[line->qualname]),
                         (long long)line->first_line, (long long)line->last_line,
                         (long long)line->changed_us);
}

PyObject *
ml_py_code_lines(const ml_recording *recording)
{
    PyObject *list;
    FILL_LIST(list, i, recording->code_line_count,
              line_tuple(recording, &recording->code_lines[i]));
    return list;
}
