/* Writes files that appear whole or not at all, for Python.  See whole_file.h. */
#include "files/whole_file.h"

#include <errno.h>

#include "core/base/base.h"

/* WRITE's result if it has set a Python exception. */
#define RAISED 1

/* The suffix of PATH's name with its dot; "" if there is none or it is too long. */
static const char *
ending_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *dot = strrchr(slash != NULL ? slash : path, '.');
    return dot != NULL && strlen(dot) <= 16 ? dot : "";
}

/* PATH is a device, pipe or socket, of which the system says "Invalid argument" only. */
static PyObject *
refuse_special(PyObject *path)
{
    PyObject *args = Py_BuildValue(
        "(isO)", EINVAL,
        "it is a device or a pipe, and memlab writes whole files only: name a file",
        path);
    if (args != NULL) {
        PyErr_SetObject(PyExc_OSError, args);
        Py_DECREF(args);
    }
    return NULL;
}

static PyObject *
write_whole(ml_state *state, PyObject *encoded, PyObject *path, bool by_name,
            int (*write)(void *context, ml_outfile *file), void *context)
{
    const char *name = PyBytes_AS_STRING(encoded);
    ml_outfile *file = NULL;
    ml_outfile_error error = {0};
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_outfile_open(&file, name, by_name ? ending_of(name) : "", &error);
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
    if (result == RAISED) {
        return NULL;
    }
    if (result == ML_EIO) {
        if (error.errnum == EINVAL && strcmp(error.step, "replace") == 0) {
            return refuse_special(path);
        }
        errno = error.errnum;
        return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    }
    if (result < 0) {
        return ml_py_raise(state, result, ml_strerror(result));
    }
    Py_RETURN_NONE;
}

PyObject *
ml_py_write_whole(ml_state *state, PyObject *path,
                  int (*write)(void *context, ml_outfile *file), void *context)
{
    PyObject *encoded;
    if (!PyUnicode_FSConverter(path, &encoded)) {
        return NULL;
    }
    PyObject *result = write_whole(state, encoded, path, false, write, context);
    Py_DECREF(encoded);
    return result;
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

typedef struct by_name {
    PyObject *writer;
    PyObject *path; /* bytes: the final file's path */
} by_name;

/* Calls the writer with the path of FILE's temporary file, with the GIL held. */
static int
call_writer(const by_name *job, ml_outfile *file)
{
    const char *wanted = PyBytes_AS_STRING(job->path);
    const char *slash = strrchr(wanted, '/');
    Py_ssize_t folder = slash != NULL ? slash + 1 - wanted : 0;
    PyObject *path = PyBytes_FromStringAndSize(wanted, folder);
    /* On failure, clears PATH. */
    PyBytes_ConcatAndDel(&path, PyBytes_FromString(ml_outfile_temporary(file)));
    if (path == NULL) {
        return RAISED;
    }
    PyObject *text = PyUnicode_DecodeFSDefaultAndSize(PyBytes_AS_STRING(path),
                                                      PyBytes_GET_SIZE(path));
    Py_DECREF(path);
    PyObject *done = text != NULL ? PyObject_CallOneArg(job->writer, text) : NULL;
    Py_XDECREF(text);
    if (done == NULL) {
        return RAISED;
    }
    Py_DECREF(done);
    return 0;
}

static int
write_by_name(void *context, ml_outfile *file)
{
    PyGILState_STATE held = PyGILState_Ensure();
    int result = call_writer(context, file);
    PyGILState_Release(held);
    return result == 0 ? ml_outfile_take(file) : result;
}

const char ml_write_file_doc[] =
    "write_file($module, path, data, /)\n--\n\n"
    "Writes data as the file at path, which appears whole or not at all. A new file "
    "can "
    "be\n"
    "opened by whom the umask says; one that is replaced by whom could open it "
    "before.\n\n"
    "data is a bytes-like object, or an iterable of such, each of which is taken when "
    "its\n"
    "turn comes and not kept, or a function that is called with the path of a file of "
    "the\n"
    "same ending, which it writes. Raises OSError, TypeError for other data, and what "
    "the\n"
    "iterable or function raises.";

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
    ml_state *state = PyModule_GetState(module);
    if (!PyCallable_Check(data)) {
        return ml_py_write_whole(state, path, write_data, data);
    }
    PyObject *encoded;
    if (!PyUnicode_FSConverter(path, &encoded)) {
        return NULL;
    }
    by_name job = {data, encoded};
    PyObject *result = write_whole(state, encoded, path, true, write_by_name, &job);
    Py_DECREF(encoded);
    return result;
}
