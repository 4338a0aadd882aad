/* Files that appear whole or not at all, written for Python.  See whole_file.h. */
#include "whole_file.h"

#include <errno.h>

#include "../core/base.h"

/* WRITE's answer by which it says that it has set a Python exception. */
#define RAISED 1

PyObject *
ml_py_write_whole(ml_state *state, PyObject *path,
                  int (*write)(void *context, ml_outfile *file), void *context)
{
    PyObject *encoded;
    if (!PyUnicode_FSConverter(path, &encoded)) {
        return NULL;
    }
    const char *name = PyBytes_AS_STRING(encoded);
    ml_outfile *file = NULL;
    ml_outfile_error error = {0};
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_outfile_open(&file, name, &error);
    if (result == 0) {
        result = write(context, file);
        if (result == 0) {
            result = ml_outfile_commit(file, &error);
        }
        else {
            ml_outfile_abort(file, &error);
        }
    }
    Py_END_ALLOW_THREADS
    Py_DECREF(encoded);
    if (result == RAISED) {
        return NULL;
    }
    if (result == ML_EIO) {
        errno = error.errnum;
        return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    }
    if (result < 0) {
        return ml_py_raise(state, result, ml_strerror(result));
    }
    Py_RETURN_NONE;
}

/* ---- write_file ---- */

/* Adds DATA, with the GIL held.  0, RAISED or ML_E*. */
static int
write_piece(ml_outfile *file, PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return RAISED;
    }
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_outfile_write(file, view.buf, (size_t)view.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    return result;
}

static int
write_each(ml_outfile *file, PyObject *pieces)
{
    PyObject *iterator = PyObject_GetIter(pieces);
    if (iterator == NULL) {
        return RAISED;
    }
    int result = 0;
    PyObject *piece;
    while (result == 0 && (piece = PyIter_Next(iterator)) != NULL) {
        result = write_piece(file, piece);
        Py_DECREF(piece);
    }
    Py_DECREF(iterator);
    return result == 0 && PyErr_Occurred() ? RAISED : result;
}

static int
write_data(void *context, ml_outfile *file)
{
    PyObject *data = context;
    PyGILState_STATE held = PyGILState_Ensure();
    int result =
        PyObject_CheckBuffer(data) ? write_piece(file, data) : write_each(file, data);
    PyGILState_Release(held);
    return result;
}

const char ml_write_file_doc[] =
    "write_file($module, path, data, /)\n--\n\n"
    "Writes data as the file at path, which appears whole or not at all and readable "
    "by\n"
    "its owner only.\n\n"
    "data is a bytes-like object, or an iterable of such, each of which is taken when "
    "its\n"
    "turn comes and not kept. Raises OSError, TypeError for other data, and what the\n"
    "iterable raises.";

PyObject *
ml_write_file(PyObject *module, PyObject *args)
{
    PyObject *path, *data;
    if (!PyArg_ParseTuple(args, "OO:write_file", &path, &data)) {
        return NULL;
    }
    if (PyUnicode_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "write_file() takes bytes, no str");
        return NULL;
    }
    return ml_py_write_whole(PyModule_GetState(module), path, write_data, data);
}
