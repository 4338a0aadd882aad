/* memlab._core.Follower: a .mlab file, followed while it is written.
 *
 * Owns an ml_follower, for one thread at a time: a call during another is refused. */
#include "state.h"

#include <errno.h>

#include "core/analysis/follow/follower.h"
#include "core/recording/annotations.h"
#include "files/load.h"
#include "files/mlab_file.h"

typedef struct live_object {
    PyObject_HEAD
    ml_follower *live; /* owned; NULL: closed */
    bool busy;
} live_object;

/* The file behind OP, reserved until release(); NULL with an exception. */
static ml_follower *
take_follower(PyObject *op)
{
    live_object *self = (live_object *)op;
    if (self->live == NULL) {
        PyErr_SetString(PyExc_ValueError, "the file is closed");
        return NULL;
    }
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread reads this file");
        return NULL;
    }
    self->busy = true;
    return self->live;
}

static void
release(PyObject *op)
{
    ((live_object *)op)->busy = false;
}

static PyObject *
raise_error(PyObject *op, const ml_read_error *error, int errnum)
{
    if (error->code == 0) {
        errno = errnum;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return ml_py_raise_read(error, ml_state_of(Py_TYPE(op))->snapshot_error);
}

PyDoc_STRVAR(
    poll_doc,
    "poll($self, events=None, /)\n--\n\n"
    "Reads what came since the last look, events events or little more, None for "
    "all.\n\n"
    "A dict: more, whether the file has more; cut, whether it is shorter than "
    "what was read,\n"
    "which stays; bytes of the file and read_bytes of these; events so far, and "
    "gone_events\n"
    "of these, which made room for newer ones. Raises OSError, "
    "memlab.SnapshotError,\n"
    "MemoryError, ValueError for a closed file.");

static PyObject *
live_poll(PyObject *op, PyObject *args)
{
    PyObject *most = Py_None;
    uint64_t events = UINT64_MAX;
    if (!PyArg_ParseTuple(args, "|O:poll", &most)) {
        return NULL;
    }
    if (most != Py_None) {
        events = PyLong_AsUnsignedLongLong(most);
        if (PyErr_Occurred()) {
            return NULL;
        }
    }
    ml_follower *live = take_follower(op);
    if (live == NULL) {
        return NULL;
    }
    ml_follower_news news;
    ml_read_error error = {0};
    int result;
    int errnum;
    Py_BEGIN_ALLOW_THREADS
    result = ml_follower_poll(live, events, &news, &error);
    errnum = errno;
    Py_END_ALLOW_THREADS
    release(op);
    if (result < 0) {
        return raise_error(op, &error, errnum);
    }
    return Py_BuildValue(
        "{s:O,s:O,s:K,s:K,s:K,s:K}", "more", news.more ? Py_True : Py_False, "cut",
        news.cut ? Py_True : Py_False, "bytes", (unsigned long long)news.bytes,
        "read_bytes", (unsigned long long)news.read_bytes, "events",
        (unsigned long long)news.events, "gone_events", (unsigned long long)news.gone);
}

PyDoc_STRVAR(
    recording_doc,
    "recording($self, /)\n--\n\n"
    "What was read so far, as Recording.from_file() would give it of the file as it "
    "was then.\n\n"
    "Where events made room for newer ones, the categories of what they "
    "allocated are as\n"
    "of then. Raises memlab.SnapshotError, MemoryError, ValueError for a "
    "closed file.");

static PyObject *
live_recording(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ml_follower *live = take_follower(op);
    if (live == NULL) {
        return NULL;
    }
    ml_recording *recording = NULL;
    ml_mlab_info info = {0};
    ml_read_error error = {0};
    int result;
    bool locked = false;
    Py_BEGIN_ALLOW_THREADS
    result = ml_follower_recording(live, &recording, &info, &error);
    if (result == 0) {
        locked = !info.ended && ml_py_mlab_locked(ml_follower_descriptor(live));
        if (locked) {
            recording->ranks[0].state = ML_RANK_RECORDING;
        }
        if (ml_annotations_add_notes(recording) < 0) {
            ml_mlab_info_fini(&info);
            ml_recording_free(recording);
            result = error.code = ML_ENOMEM;
        }
    }
    Py_END_ALLOW_THREADS
    release(op);
    if (result < 0) {
        return raise_error(op, &error, 0);
    }
    PyObject *about = ml_py_about_mlab(&info, locked);
    ml_mlab_info_fini(&info);
    if (about == NULL) {
        ml_recording_free(recording);
        return NULL;
    }
    return ml_recording_wrap_file(ml_state_of(Py_TYPE(op)), recording, about);
}

PyDoc_STRVAR(
    history_doc,
    "history($self, device, /)\n--\n\n"
    "The most bytes that were allocated on a device in each of some spans of equal "
    "time, since\n"
    "the first event and up to the last recording(): a dict of start_time_us, "
    "column_us, a float,\n"
    "and allocated_bytes, a list. Raises IndexError for a device that there cannot "
    "be.");

static PyObject *
history_dict(const ml_follower_history *history)
{
    PyObject *columns = PyList_New((Py_ssize_t)history->count);
    for (size_t i = 0; columns != NULL && i < history->count; i++) {
        PyObject *bytes = PyLong_FromUnsignedLongLong(history->most[i]);
        if (bytes == NULL) {
            Py_CLEAR(columns);
            break;
        }
        PyList_SET_ITEM(columns, (Py_ssize_t)i, bytes);
    }
    return columns == NULL
               ? NULL
               : Py_BuildValue("{s:K,s:d,s:N}", "start_time_us",
                               (unsigned long long)(history->start / 1000), "column_us",
                               (double)history->column_ns / 1000, "allocated_bytes",
                               columns);
}

static PyObject *
live_history(PyObject *op, PyObject *arg)
{
    Py_ssize_t device = PyNumber_AsSsize_t(arg, PyExc_IndexError);
    if (device == -1 && PyErr_Occurred()) {
        return NULL;
    }
    const ml_follower *live = take_follower(op);
    if (live == NULL) {
        return NULL;
    }
    const ml_follower_history *history =
        device < 0 || device >= ML_DEVICE_MAX
            ? NULL
            : ml_follower_get_history(live, (unsigned)device);
    /* Held while objects are made: a garbage collection lets other threads run. */
    PyObject *dict = history != NULL ? history_dict(history) : NULL;
    release(op);
    if (history == NULL) {
        return PyErr_Format(PyExc_IndexError, "there is no device %zd", device);
    }
    return dict;
}

PyDoc_STRVAR(fileno_doc,
             "fileno($self, /)\n--\n\n"
             "The descriptor of the open file. Raises ValueError for a closed "
             "one.");

static PyObject *
live_fileno(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    const ml_follower *live = take_follower(op);
    if (live == NULL) {
        return NULL;
    }
    release(op);
    return PyLong_FromLong(ml_follower_descriptor(live));
}

PyDoc_STRVAR(close_doc, "close($self, /)\n--\n\n"
                        "Closes the file. Raises RuntimeError while another thread "
                        "reads it.");

static PyObject *
live_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    live_object *self = (live_object *)op;
    if (self->live != NULL && take_follower(op) == NULL) {
        return NULL;
    }
    ml_follower_close(self->live);
    self->live = NULL;
    release(op);
    Py_RETURN_NONE;
}

static PyObject *
live_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"path", "kept", NULL};
    PyObject *path;
    Py_ssize_t kept = ML_FOLLOWER_EVENTS;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|$n:Follower", keywords,
                                     PyUnicode_FSConverter, &path, &kept)) {
        return NULL;
    }
    if (kept < 1) {
        Py_DECREF(path);
        return PyErr_Format(PyExc_ValueError, "kept: expected at least 1, not %zd",
                            kept);
    }
    ml_follower *live = NULL;
    ml_read_error error = {0};
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_follower_open(&live, PyBytes_AS_STRING(path), (size_t)kept, &error);
    Py_END_ALLOW_THREADS
    if (result < 0 && error.code == 0) {
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    }
    else if (result < 0) {
        ml_py_raise_read(&error, ml_state_of(type)->snapshot_error);
    }
    Py_DECREF(path);
    if (result < 0) {
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    live_object *self = (live_object *)allocate(type, 0);
    if (self == NULL) {
        ml_follower_close(live);
        return NULL;
    }
    self->live = live;
    return (PyObject *)self;
}

static PyMethodDef live_methods[] = {
    {"poll", live_poll, METH_VARARGS, poll_doc},
    {"recording", live_recording, METH_NOARGS, recording_doc},
    {"history", live_history, METH_O, history_doc},
    {"fileno", live_fileno, METH_NOARGS, fileno_doc},
    {"close", live_close, METH_NOARGS, close_doc},
    {NULL, NULL, 0, NULL},
};

static int
live_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static void
live_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    ml_follower_close(((live_object *)op)->live);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(live_doc,
             "Follower(path, *, kept=524288)\n--\n\n"
             "Follows a .mlab file while it is written; only the file is read.\n\n"
             "kept: events that are kept in memory before the older half of them makes "
             "room. Raises\n"
             "OSError, memlab.SnapshotError for a file that is none, ValueError, "
             "MemoryError.");

static PyType_Slot live_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)live_doc},
    {Py_tp_new, live_new},
    {Py_tp_methods, live_methods},
    {Py_tp_traverse, live_traverse},
    {Py_tp_dealloc, live_dealloc},
    {0, NULL},
};

static PyType_Spec live_spec = {
    .name = "memlab._core.Follower",
    .basicsize = sizeof(live_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = live_slots,
};

PyObject *
ml_follower_type_new(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &live_spec, NULL);
}
