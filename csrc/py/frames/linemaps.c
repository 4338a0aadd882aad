/* Copies torch.compile's line maps, torch._inductor.codecache's PyCodeCache.linemaps,
 * to the recorder's origins.
 *
 * Owns the knowledge of that dict: by path, the zip() of (line, trace), or [] if
 * there is none; a trace is text, "" or None.  torch's recorder reads the dict when
 * a snapshot is made; a .mlab file needs it earlier.  No code of the program runs
 * here. */
#include "frames/linemaps.h"

#include "core/base/base.h"
#include "core/record/recorder.h"

/* Fills LINES from a line map's two rows; false if torch has changed their form. */
static bool
read_lines(PyObject *numbers, PyObject *traces, ml_made_line *lines, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *number = PyTuple_GET_ITEM(numbers, i);
        PyObject *trace = PyTuple_GET_ITEM(traces, i);
        lines[i] = (ml_made_line){.trace = {.bytes = "", .length = 0}};
        if (!PyLong_CheckExact(number)) {
            return false;
        }
        lines[i].line = PyLong_AsLongLong(number);
        if (PyUnicode_CheckExact(trace)) {
            Py_ssize_t length;
            lines[i].trace.bytes = PyUnicode_AsUTF8AndSize(trace, &length);
            lines[i].trace.length = (size_t)length;
        }
        else if (trace != Py_None) {
            return false;
        }
        if (PyErr_Occurred()) {
            return false;
        }
    }
    return true;
}

/* Takes one file.  -1 with an exception. */
static int
take_file(PyObject *module, PyObject *path, PyObject *map)
{
    Py_ssize_t length;
    const char *bytes =
        PyUnicode_Check(path) ? PyUnicode_AsUTF8AndSize(path, &length) : NULL;
    if (PyList_Check(map) && PyList_GET_SIZE(map) == 0) {
        return 0;
    }
    bool known = bytes != NULL && PyList_Check(map) && PyList_GET_SIZE(map) == 2;
    PyObject *numbers = known ? PyList_GET_ITEM(map, 0) : NULL;
    PyObject *traces = known ? PyList_GET_ITEM(map, 1) : NULL;
    known = known && PyTuple_Check(numbers) && PyTuple_Check(traces) &&
            PyTuple_GET_SIZE(numbers) == PyTuple_GET_SIZE(traces);
    Py_ssize_t count = known ? PyTuple_GET_SIZE(numbers) : 0;
    ml_made_line *lines = ml_alloc_zeroed((size_t)count + 1, sizeof(*lines));
    if (lines == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (!known || !read_lines(numbers, traces, lines, count)) {
        ml_free(lines);
        PyErr_SetString(PyExc_TypeError, "PyCodeCache.linemaps is not as it was known");
        return -1;
    }
    /* The texts belong to these objects. */
    Py_INCREF(numbers);
    Py_INCREF(traces);
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = ml_recorder_add_origins(
        (ml_slice){.bytes = bytes, .length = (size_t)length}, lines, (size_t)count);
    Py_END_ALLOW_THREADS
    Py_DECREF(numbers);
    Py_DECREF(traces);
    ml_free(lines);
    if (error < 0) {
        ml_py_raise(PyModule_GetState(module), error,
                    "lines of compiled code are lost");
        return -1;
    }
    return 0;
}

const char ml_linemaps_take_doc[] = "take_linemaps($module, linemaps, /)\n--\n\n"
                                    "Takes what LINEMAPS, torch's dict, says of the "
                                    "files of compiled code; of each once.";

PyObject *
ml_linemaps_take(PyObject *module, PyObject *linemaps)
{
    ml_state *state = PyModule_GetState(module);
    if (!PyDict_Check(linemaps)) {
        return PyErr_Format(PyExc_TypeError, "PyCodeCache.linemaps is a %s",
                            Py_TYPE(linemaps)->tp_name);
    }
    if (PyDict_Size(linemaps) == state->linemaps) {
        Py_RETURN_NONE;
    }
    /* Another thread may compile meanwhile. */
    PyObject *items = PyDict_Items(linemaps);
    if (items == NULL) {
        return NULL;
    }
    state->linemaps = PyList_GET_SIZE(items);
    int result = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items) && result == 0; i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        result =
            take_file(module, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1));
    }
    Py_DECREF(items);
    if (result < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}
