/* memlab._core.MemorySnapshot: a recording in progress.  See snapshot_type.h. */
#include "training/snapshot_type.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/base.h"
#include "dicts/actions.h"
#include "frames/code_lines.h"

typedef struct snapshot_object {
    PyObject_HEAD
    ml_shared_window *shared; /* one use of it; NULL: not recording */
    char source[16];          /* name, while recording */
} snapshot_object;

ml_shared_window *
ml_snapshot_share(PyObject *self)
{
    ml_shared_window *shared = ((snapshot_object *)self)->shared;
    if (shared != NULL) {
        shared->users++;
    }
    return shared;
}

void
ml_shared_window_drop(ml_shared_window *shared)
{
    if (shared == NULL || --shared->users > 0) {
        return;
    }
    Py_BEGIN_ALLOW_THREADS
    ml_window_stop(shared->window);
    Py_END_ALLOW_THREADS
    ml_free(shared);
}

/* As ml_snapshot_share, but an exception if it is not recording. */
static ml_shared_window *
share_or_raise(PyObject *op)
{
    ml_shared_window *shared = ml_snapshot_share(op);
    if (shared == NULL) {
        ml_py_raise(ml_state_of(Py_TYPE(op)), ML_ESTATE,
                    "not recording; start() first");
    }
    return shared;
}

bool
ml_snapshot_is_cpu(PyObject *self)
{
    return strcmp(((snapshot_object *)self)->source, "cpu") == 0;
}

static int
parse_context(PyObject *value, enum ml_context *out)
{
    static const struct {
        const char *name;
        enum ml_context context;
    } names[] = {{"state", ML_CONTEXT_STATE},
                 {"alloc", ML_CONTEXT_ALLOC},
                 {"all", ML_CONTEXT_ALL}};
    if (value == Py_None) {
        *out = ML_CONTEXT_NONE;
        return 0;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (PyUnicode_Check(value) &&
            PyUnicode_CompareWithASCIIString(value, names[i].name) == 0) {
            *out = names[i].context;
            return 0;
        }
    }
    /* torch's own words, for scripts that match on them */
    PyErr_SetString(PyExc_RuntimeError,
                    "expected context to be 'state', 'alloc', 'all', or None");
    return -1;
}

/* Writes one line to stderr, from any thread, without Python and without stdio, whose
 * locks the program may hold. */
static void
warn(const char *text)
{
    char line[4600];
    int length = snprintf(line, sizeof(line), "%s\n", text);
    ssize_t written = write(2, line, (size_t)length);
    (void)written;
}

/* FILE is None or a path, which becomes bytes owned by the caller. */
static int
parse_file(PyObject *file, PyObject *max_bytes, PyObject *kept_steps, PyObject **path,
           ml_window_options *options)
{
    if (file == Py_None) {
        return 0;
    }
    options->warn = warn;
    options->file_bytes = UINT64_MAX;
    if (max_bytes != Py_None) {
        options->file_bytes = PyLong_AsUnsignedLongLong(max_bytes);
        if (PyErr_Occurred()) {
            return -1;
        }
    }
    if (kept_steps != NULL) {
        options->kept_steps = PyLong_AsUnsignedLongLong(kept_steps);
        if (PyErr_Occurred()) {
            return -1;
        }
    }
    if (!PyUnicode_FSConverter(file, path)) {
        return -1;
    }
    options->file = PyBytes_AS_STRING(*path);
    return 0;
}

/* PLACE is None or (world_size, rank, local_rank). */
static int
parse_place(PyObject *place, ml_process_place *out)
{
    int world_size, rank, local_rank;
    *out = (ml_process_place){0};
    if (place == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(place)) {
        PyErr_SetString(PyExc_TypeError, "expected place to be a tuple, or None");
        return -1;
    }
    if (!PyArg_ParseTuple(place, "iii;place is (world_size, rank, local_rank)",
                          &world_size, &rank, &local_rank)) {
        return -1;
    }
    if (world_size > 0 && world_size <= ML_WORLD_MAX && rank >= 0 && local_rank >= 0) {
        *out = (ml_process_place){(uint32_t)world_size, (uint32_t)rank,
                                  (uint32_t)local_rank};
    }
    return 0;
}

/* The caller owns *PATH and releases it after using OPTIONS. */
static int
parse_options(PyObject *args, PyObject *kwargs, const char *format, const char **source,
              ml_window_options *options, PyObject **path)
{
    static char *keywords[] = {"source",     "max_entries", "context", "native",
                               "events",     "device",      "file",    "max_file_bytes",
                               "keys",       "place",       "uses",    "skipped",
                               "kept_steps", NULL};
    PyObject *max_entries, *context, *file = Py_None, *max_file_bytes = Py_None;
    PyObject *place = Py_None, *skipped = NULL, *kept_steps = NULL;
    int native, events;
    unsigned int keys = 0;
    *options = (ml_window_options){0};
    *path = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, keywords, source,
                                     &max_entries, &context, &native, &events,
                                     &options->device, &file, &max_file_bytes, &keys,
                                     &place, &options->uses, &skipped, &kept_steps) ||
        ml_py_actions(skipped, &options->skipped) < 0 ||
        parse_place(place, &options->place) < 0 ||
        parse_file(file, max_file_bytes, kept_steps, path, options) < 0) {
        return -1;
    }
    options->keys = keys;
    int overflow;
    long long entries = PyLong_AsLongLongAndOverflow(max_entries, &overflow);
    if (entries == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (overflow < 0 || (overflow == 0 && entries < 1)) {
        PyErr_Format(PyExc_ValueError, "max_entries must be at least 1, not %R",
                     max_entries);
        return -1;
    }
    options->max_entries = overflow > 0 ? INT64_MAX : (uint64_t)entries;
    options->native = native != 0;
    options->keep_events = events != 0;
    return parse_context(context, &options->context);
}

PyDoc_STRVAR(
    begin_doc,
    "_begin($self, source, max_entries, context, native, events, device, file=None,\n"
    "       max_file_bytes=None, keys=0, place=None, uses=0, skipped=(),\n"
    "       kept_steps=0)\n--\n\n"
    "Begins to record. device is an index, or -1 for all; max_entries counts events a\n"
    "device; context None, 'state', 'alloc' or 'all'. file is a path that is written\n"
    "meanwhile, up to max_file_bytes; place (world_size, rank, local_rank); uses: in "
    "one of\n"
    "how many steps last uses are followed, 0 none; skipped: actions whose events do "
    "not count\n"
    "in max_entries; kept_steps: 0, or the newest steps that stay when the first part "
    "of\n"
    "the file is dropped at its limit. Raises memlab.Error naming the cause, "
    "RuntimeError\n"
    "for a context, ValueError for a number that makes no sense, MemoryError.");

static PyObject *
snapshot_begin(PyObject *op, PyObject *args, PyObject *kwargs)
{
    snapshot_object *self = (snapshot_object *)op;
    ml_state *state = ml_state_of(Py_TYPE(op));
    const char *name;
    ml_window_options options;
    PyObject *path;
    if (parse_options(args, kwargs, "sOOppi|OOIOIOO:_begin", &name, &options, &path) <
        0) {
        Py_XDECREF(path);
        return NULL;
    }
    const ml_source *source = ml_recorder_source(name);
    if (source == NULL) {
        Py_XDECREF(path);
        return PyErr_Format(state->error,
                            "no source of events named '%s' here; memlab.backends() "
                            "says why",
                            name);
    }
    ml_shared_window *shared = NULL;
    int result = ML_ESTATE;
    if (self->shared == NULL) {
        shared = ml_alloc_zeroed(1, sizeof(*shared));
        if (shared == NULL) {
            Py_XDECREF(path);
            return PyErr_NoMemory();
        }
        shared->users = 1;
        Py_BEGIN_ALLOW_THREADS
        result = ml_window_start(source, &options, &shared->window);
        Py_END_ALLOW_THREADS
        if (result < 0) {
            ml_free(shared);
            Py_XDECREF(path);
            return ml_py_raise(state, result, NULL);
        }
    }
    Py_XDECREF(path);
    if (self->shared != NULL) {
        /* Recording already, or another thread began while the GIL was free. */
        ml_shared_window_drop(shared);
        return ml_py_raise(state, ML_ESTATE, "recording already; stop() first");
    }
    self->shared = shared;
    strncpy(self->source, name, sizeof(self->source) - 1);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    configure_doc,
    "_configure($self, source, max_entries, context, native, events, device, "
    "file=None,\n"
    "           max_file_bytes=None, keys=0, place=None, uses=0, "
    "skipped=(),\n"
    "           kept_steps=0)\n--\n\n"
    "Changes what is recorded from here on; what was recorded stays. Raises as _begin "
    "does.");

static PyObject *
snapshot_configure(PyObject *op, PyObject *args, PyObject *kwargs)
{
    const char *name;
    ml_window_options options;
    PyObject *path;
    if (parse_options(args, kwargs, "sOOppi|OOIOIOO:_configure", &name, &options,
                      &path) < 0) {
        Py_XDECREF(path);
        return NULL;
    }
    /* A file is for a whole recording. */
    Py_XDECREF(path);
    options.file = NULL;
    ml_shared_window *shared = share_or_raise(op);
    if (shared == NULL) {
        return NULL;
    }
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_window_configure(shared->window, &options);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        ml_py_raise(ml_state_of(Py_TYPE(op)), result, NULL);
    }
    ml_shared_window_drop(shared);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(
    freeze_doc,
    "_freeze($self, keys, place=None, code=None, /)\n--\n\n"
    "What was recorded so far, as an immutable Recording; recording goes on.\n\n"
    "keys is the set of optional keys of the running torch's schema, as a bit mask.\n"
    "place is (world_size, rank, local_rank), or None where that is not known.\n"
    "code reads lines of code, as for _tell_code; None, or where it raises an "
    "Exception:\n"
    "they are left out.\n"
    "Raises memlab.Error where nothing is recorded or memory cannot be read, "
    "MemoryError,\n"
    "and what code raises that is no Exception, as KeyboardInterrupt.");

/* Lets READ add the code lines that RECORDING's frames name.  If that fails, their text
 * is left out, because the recording is worth more.  -1 with an exception if
 * interrupted. */
static int
add_code(ml_recording *recording, PyObject *read)
{
    if (read == Py_None || ml_py_ask_code(recording, read) == 0) {
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return -1;
    }
    PyErr_Clear();
    return 0;
}

/* RECORDING, with events of the source NAME, is of this process. */
static int
tell_process(const char *name, ml_process_place place, ml_recording *recording)
{
    ml_process process;
    ml_process_here(&process, place, ml_recorder_source(name));
    return ml_process_tell(&process, ML_RANK_UNKNOWN, recording);
}

static PyObject *
snapshot_freeze(PyObject *op, PyObject *args)
{
    ml_state *state = ml_state_of(Py_TYPE(op));
    unsigned int keys;
    PyObject *given = Py_None, *code = Py_None;
    ml_process_place place;
    if (!PyArg_ParseTuple(args, "I|OO:_freeze", &keys, &given, &code) ||
        parse_place(given, &place) < 0) {
        return NULL;
    }
    ml_shared_window *shared = share_or_raise(op);
    if (shared == NULL) {
        return NULL;
    }
    ml_recording *recording = NULL;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_window_freeze(shared->window, keys, &recording);
    if (result == 0) {
        result = tell_process(((snapshot_object *)op)->source, place, recording);
    }
    if (result == 0) {
        ml_window_place(shared->window, place);
    }
    Py_END_ALLOW_THREADS
    PyObject *frozen = NULL;
    if (result < 0) {
        ml_recording_free(recording);
        ml_py_raise(state, result, NULL);
    }
    else if (add_code(recording, code) < 0) {
        ml_recording_free(recording);
    }
    else {
        frozen = ml_recording_wrap(state, recording);
    }
    ml_shared_window_drop(shared);
    return frozen;
}

PyDoc_STRVAR(
    tell_code_doc,
    "_tell_code($self, code, /)\n--\n\n"
    "Stores lines of code in the file of the recording; nothing where there is "
    "none.\n\n"
    "code is called with a list of (file, function, line, user) of the frames that "
    "the\n"
    "file names so far, and returns one of (index in it, text, qualname, first line,\n"
    "last line, changed, forward): lines of the function, 0 for unknown, when the\n"
    "file last changed, unix microseconds, and whether a torch.autograd.Function has\n"
    "it as its forward: 0 unknown, 1 no, 2 yes. Raises what code raises, MemoryError.");

static PyObject *
snapshot_tell_code(PyObject *op, PyObject *code)
{
    ml_shared_window *shared = ml_snapshot_share(op);
    if (shared == NULL) {
        Py_RETURN_NONE;
    }
    ml_recording *frames = NULL;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_window_file_frames(shared->window, &frames);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        ml_py_raise(ml_state_of(Py_TYPE(op)), result, ml_strerror(result));
    }
    else if (frames != NULL) {
        result = ml_py_ask_code(frames, code);
    }
    if (result == 0 && frames != NULL) {
        Py_BEGIN_ALLOW_THREADS
        ml_window_tell_code(shared->window, frames);
        Py_END_ALLOW_THREADS
    }
    ml_recording_free(frames);
    ml_shared_window_drop(shared);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(end_doc, "_end($self, /)\n--\n\n"
                      "Ends the recording; nothing where there is none. Calls of other "
                      "threads that use it\n"
                      "finish first.");

static PyObject *
snapshot_end(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    snapshot_object *self = (snapshot_object *)op;
    ml_shared_window *shared = self->shared;
    self->shared = NULL;
    ml_shared_window_drop(shared);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(clear_doc, "_clear($self, /)\n--\n\n"
                        "Forgets the events so far and goes on recording.");

static PyObject *
snapshot_clear(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ml_shared_window *shared = ml_snapshot_share(op);
    if (shared != NULL) {
        Py_BEGIN_ALLOW_THREADS
        ml_window_clear(shared->window);
        Py_END_ALLOW_THREADS
        ml_shared_window_drop(shared);
    }
    Py_RETURN_NONE;
}

static PyObject *
snapshot_get_recording(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((snapshot_object *)op)->shared != NULL);
}

static PyObject *
snapshot_get_waiting(PyObject *op, void *Py_UNUSED(closure))
{
    const ml_shared_window *shared = ((snapshot_object *)op)->shared;
    return PyBool_FromLong(shared != NULL && !ml_window_begun(shared->window));
}

static PyMethodDef snapshot_methods[] = {
    {"_begin", (PyCFunction)(void (*)(void))snapshot_begin,
     METH_VARARGS | METH_KEYWORDS, begin_doc},
    {"_configure", (PyCFunction)(void (*)(void))snapshot_configure,
     METH_VARARGS | METH_KEYWORDS, configure_doc},
    {"_freeze", snapshot_freeze, METH_VARARGS, freeze_doc},
    {"_tell_code", snapshot_tell_code, METH_O, tell_code_doc},
    {"_end", snapshot_end, METH_NOARGS, end_doc},
    {"_clear", snapshot_clear, METH_NOARGS, clear_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef snapshot_getset[] = {
    {"recording", snapshot_get_recording, NULL,
     "bool: whether a recording is under way", NULL},
    {"waiting", snapshot_get_waiting, NULL,
     "bool: whether it waits for the program to initialise CUDA", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static int
snapshot_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static void
snapshot_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    snapshot_object *self = (snapshot_object *)op;
    PyObject_GC_UnTrack(op);
    ml_shared_window_drop(self->shared);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(
    snapshot_doc,
    "MemorySnapshot()\n--\n\n"
    "The C half of memlab.MemorySnapshot: one recording of a source of memory events.");

static PyType_Slot snapshot_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)snapshot_doc},
    {Py_tp_methods, snapshot_methods},
    {Py_tp_getset, snapshot_getset},
    {Py_tp_traverse, snapshot_traverse},
    {Py_tp_dealloc, snapshot_dealloc},
    {0, NULL},
};

static PyType_Spec snapshot_spec = {
    .name = "memlab._core.MemorySnapshot",
    .basicsize = sizeof(snapshot_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = snapshot_slots,
};

PyObject *
ml_snapshot_type_new(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &snapshot_spec, NULL);
}
