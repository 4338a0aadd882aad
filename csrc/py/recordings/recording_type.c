/* memlab._core.Recording: an immutable recording, as a Python object.
 *
 * Owns the type and its methods, except those in answers.h, differences.h and
 * exports.h.  Methods only read the wrapped object, so they may run in parallel and
 * without the GIL. */
#include "state.h"

#include <string.h>

#include "core/base/base.h"
#include "core/file/snapshot/pickle_writer.h"
#include "core/file/snapshot/snapshot_reader.h"
#include "core/recording/recording.h"
#include "core/show/page/page_data.h"
#include "dicts/actions.h"
#include "dicts/notes_list.h"
#include "dicts/ranks_list.h"
#include "dicts/snapshot_dict.h"
#include "files/load.h"
#include "files/mlab_file.h"
#include "files/pictures.h"
#include "files/whole_file.h"
#include "frames/code_lines.h"
#include "recordings/answers.h"
#include "recordings/differences.h"
#include "recordings/exports.h"
#include "recordings/recording_object.h"

PyDoc_STRVAR(from_bytes_doc,
             "from_bytes($type, data, /)\n--\n\n"
             "Reads a snapshot pickle of torch or memlab from a bytes-like object.\n\n"
             "Raises memlab.SnapshotError for anything that is not one, TypeError for "
             "what has no\n"
             "bytes, MemoryError.");

static PyObject *
recording_from_bytes(PyObject *type, PyObject *data)
{
    ml_state *state = ml_state_of((PyTypeObject *)type);
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    ml_recording *recording = NULL;
    ml_read_error error = {0};
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_snapshot_read(view.buf, (size_t)view.len, &recording, &error);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    if (result < 0) {
        return ml_py_raise_read(&error, state->snapshot_error);
    }
    return ml_recording_wrap(state, recording);
}

PyDoc_STRVAR(from_file_doc,
             "from_file($type, path, /)\n--\n\n"
             "Reads a .mlab file, which may be written meanwhile.\n\n"
             "path is a str, bytes or os.PathLike. Raises memlab.SnapshotError for one "
             "that makes\n"
             "no sense, OSError, MemoryError.");

static PyObject *
recording_from_file(PyObject *type, PyObject *path)
{
    ml_state *state = ml_state_of((PyTypeObject *)type);
    PyObject *encoded, *about;
    if (!PyUnicode_FSConverter(path, &encoded)) {
        return NULL;
    }
    ml_recording *recording = ml_py_read_mlab(state, encoded, &about);
    Py_DECREF(encoded);
    if (recording == NULL) {
        return NULL;
    }
    return ml_recording_wrap_file(state, recording, about);
}

static PyObject *
recording_get_file(PyObject *op, void *Py_UNUSED(closure))
{
    PyObject *file = ((ml_recording_object *)op)->file;
    return Py_NewRef(file != NULL ? file : Py_None);
}

PyDoc_STRVAR(
    code_lines_doc,
    "code_lines($self, /)\n--\n\n"
    "What the lines of code say that frames name, as far as the recording has it: "
    "a list\n"
    "of (file, function, line, text, qualname, first line, last line, changed), the "
    "last\n"
    "three 0 where not known, the very last in unix microseconds. Raises "
    "MemoryError.");

static PyObject *
recording_code_lines(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return ml_py_code_lines(ml_recording_of(op));
}

/* The options that leave out the events of actions in NAMES, a sequence of str, or
 * NULL.  0, or -1 with TypeError or ValueError. */
static int
parse_skipped(PyObject *names, unsigned *options)
{
    uint32_t actions;
    int result = ml_py_actions(names, &actions);
    *options = ML_PICKLE_SKIP(0) * actions;
    return result;
}

PyDoc_STRVAR(
    to_dict_doc,
    "to_dict($self, skipped=(), /)\n--\n\n"
    "The recording as torch.cuda.memory._snapshot() would give it, a dict.\n\n"
    "Without the events of actions in SKIPPED, such as 'alloc'. Sizes in bytes, "
    "times\n"
    "in unix microseconds. Raises MemoryError, ValueError for an unknown action.");

static PyObject *
recording_to_dict(PyObject *op, PyObject *args)
{
    PyObject *names = NULL;
    unsigned options;
    if (!PyArg_ParseTuple(args, "|O:to_dict", &names) ||
        parse_skipped(names, &options) < 0) {
        return NULL;
    }
    return ml_py_snapshot(ml_recording_of(op), options);
}

/* ---- Files ---- */

static int
sink_file(void *context, const void *bytes, size_t length)
{
    return ml_outfile_write(context, bytes, length);
}

typedef struct pickle_job {
    const ml_recording *recording;
    unsigned options;
} pickle_job;

static int
write_pickle_job(void *context, ml_outfile *file)
{
    const pickle_job *job = context;
    return ml_pickle_write(job->recording, job->options, sink_file, file);
}

PyDoc_STRVAR(
    write_pickle_doc,
    "write_pickle($self, path, extras, skipped=(), /)\n--\n\n"
    "Writes a pickle that torch's viewer reads; it appears whole or not at all.\n\n"
    "path is a str, bytes or os.PathLike; extras, a bool, adds what memlab knows "
    "beyond\n"
    "torch, under the key 'memlab'; skipped, the actions whose events are left out, "
    "not\n"
    "with extras. Raises OSError, MemoryError, ValueError.");

static PyObject *
recording_write_pickle(PyObject *op, PyObject *args)
{
    PyObject *path, *names = NULL;
    int extras;
    unsigned options;
    if (!PyArg_ParseTuple(args, "Op|O:write_pickle", &path, &extras, &names) ||
        parse_skipped(names, &options) < 0) {
        return NULL;
    }
    if (extras && options != 0) {
        PyErr_SetString(PyExc_ValueError, "extras need the events of all actions");
        return NULL;
    }
    pickle_job job = {ml_recording_of(op), extras ? ML_PICKLE_EXTRAS : options};
    return ml_py_write_whole(ml_state_of(Py_TYPE(op)), path, write_pickle_job, &job);
}

PyDoc_STRVAR(
    page_data_doc,
    "page_data($self, pack=None, /)\n--\n\n"
    "The data of the HTML page: its head, as bytes of JSON that may stand in a "
    "script\n"
    "element, and a list of blobs, bytes of columns, which docs/FORMAT.md "
    "describes.\n"
    "With pack each blob is what it returns of these bytes, which are packed one by "
    "one.\n\n"
    "Sizes in bytes, times in microseconds. Raises MemoryError, ValueError for more\n"
    "events than a page can number (2^31), and what pack raises.");

/* Moves the contents of BUFFER, which is freed. */
static PyObject *
bytes_of(ml_buffer *buffer)
{
    PyObject *bytes =
        PyBytes_FromStringAndSize(buffer->bytes, (Py_ssize_t)buffer->length);
    ml_buffer_fini(buffer);
    return bytes;
}

static PyObject *
page_tuple(ml_page_data *data)
{
    PyObject *blobs = PyList_New((Py_ssize_t)data->blob_count);
    for (size_t i = 0; blobs != NULL && i < data->blob_count; i++) {
        PyObject *blob = bytes_of(&data->blobs[i]);
        if (blob == NULL) {
            Py_CLEAR(blobs);
            break;
        }
        PyList_SET_ITEM(blobs, (Py_ssize_t)i, blob);
    }
    PyObject *head = blobs != NULL ? bytes_of(&data->head) : NULL;
    PyObject *tuple = head != NULL ? PyTuple_Pack(2, head, blobs) : NULL;
    Py_XDECREF(head);
    Py_XDECREF(blobs);
    return tuple;
}

typedef struct packing {
    PyThreadState *thread;
    PyObject *pack;
} packing;

/* Without the GIL. */
static int
pack_blob(void *context, ml_buffer *blob)
{
    packing *p = context;
    PyEval_RestoreThread(p->thread);
    PyObject *bytes = bytes_of(blob);
    PyObject *packed = bytes != NULL ? PyObject_CallOneArg(p->pack, bytes) : NULL;
    Py_XDECREF(bytes);
    char *text;
    Py_ssize_t length;
    bool got = packed != NULL && PyBytes_AsStringAndSize(packed, &text, &length) == 0;
    if (got) {
        ml_buffer_append(blob, text, (size_t)length);
    }
    Py_XDECREF(packed);
    p->thread = PyEval_SaveThread();
    return got ? blob->error : ML_EINVALID;
}

static PyObject *
recording_page_data(PyObject *op, PyObject *args)
{
    ml_page_data data;
    packing p = {.pack = Py_None};
    if (!PyArg_ParseTuple(args, "|O:page_data", &p.pack)) {
        return NULL;
    }
    ml_page_packer packer = {pack_blob, &p};
    p.thread = PyEval_SaveThread();
    int result = ml_page_data_make(&data, ml_recording_of(op),
                                   p.pack != Py_None ? &packer : NULL);
    PyEval_RestoreThread(p.thread);
    PyObject *tuple = NULL;
    if (PyErr_Occurred() != NULL) {
        ml_page_data_fini(&data);
        return NULL;
    }
    if (result == ML_ELIMIT) {
        PyErr_SetString(PyExc_ValueError, "more events than a page can number: 2^31");
    }
    else if (result < 0) {
        ml_py_raise(ml_state_of(Py_TYPE(op)), result, ml_strerror(result));
    }
    else {
        tuple = page_tuple(&data);
    }
    ml_page_data_fini(&data);
    return tuple;
}

PyDoc_STRVAR(
    flame_svg_doc,
    "flame_svg($self, what, device=None)\n--\n\n"
    "The memory at the end of the recording by the stacks that hold it: a flame "
    "graph,\n"
    "as bytes of an SVG file that needs nothing else.\n\n"
    "what is 'segments', each for itself, or 'memory', those of a stream as one. "
    "device "
    "None\n"
    "is all. Raises ValueError, IndexError for a device that the recording does not "
    "have,\n"
    "MemoryError.");

static PyObject *
recording_flame_svg(PyObject *op, PyObject *args, PyObject *kwargs)
{
    return ml_py_flame(ml_state_of(Py_TYPE(op)), ml_recording_of(op), false, args,
                       kwargs);
}

PyDoc_STRVAR(flame_folded_doc,
             "flame_folded($self, what, device=None)\n--\n\n"
             "The same as bytes of text, a line for each block: names from the "
             "outermost on, with\n"
             "';' between, and bytes, as torch.cuda._memory_viz gives them to "
             "flamegraph.pl.\n\n"
             "Arguments and errors are those of flame_svg().");

static PyObject *
recording_flame_folded(PyObject *op, PyObject *args, PyObject *kwargs)
{
    return ml_py_flame(ml_state_of(Py_TYPE(op)), ml_recording_of(op), true, args,
                       kwargs);
}

PyDoc_STRVAR(segments_page_doc,
             "segments_page($self, device=None)\n--\n\n"
             "The segments at the end of the recording with their blocks in place, as "
             "bytes of an\n"
             "HTML file that needs nothing else.\n\n"
             "device None is all. Raises IndexError for a device that the recording "
             "does not have,\n"
             "MemoryError.");

static PyObject *
recording_segments_page(PyObject *op, PyObject *args, PyObject *kwargs)
{
    return ml_py_segments_page(ml_state_of(Py_TYPE(op)), ml_recording_of(op), args,
                               kwargs);
}

PyDoc_STRVAR(timeline_page_doc,
             "timeline_page($self, device=None, title='Memory by category')\n--\n\n"
             "The allocated bytes by category over time, as bytes of an HTML file that "
             "needs nothing\n"
             "else; of any number of events the peaks are exact.\n\n"
             "device None is all. Raises IndexError for a device that the recording "
             "does not have,\n"
             "MemoryError.");

static PyObject *
recording_timeline_page(PyObject *op, PyObject *args, PyObject *kwargs)
{
    return ml_py_timeline_page(ml_state_of(Py_TYPE(op)), ml_recording_of(op), args,
                               kwargs);
}

static PyObject *
recording_get_device_count(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(ml_recording_of(op)->device_count);
}

static PyObject *
recording_get_source(PyObject *op, void *Py_UNUSED(closure))
{
    const ml_recording *recording = ml_recording_of(op);
    return PyUnicode_FromString(recording->source_known ? recording->source : "");
}

PyDoc_STRVAR(
    notes_doc,
    "notes($self, /)\n--\n\n"
    "What happened beside memory events, oldest first: a list of dicts.\n\n"
    "time_ns (unix nanoseconds), kind, name, device (-1: none), thread, and values, a\n"
    "list of seven ints whose meaning is the kind's, None for one that is not known.");

static PyObject *
recording_notes(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return ml_py_notes(ml_recording_of(op));
}

PyDoc_STRVAR(ranks_doc,
             "ranks($self, /)\n--\n\n"
             "The processes of which the recording is, by rank: a list of dicts.\n\n"
             "docs/REPORT.md describes each key. Empty where the file does not say.");

static PyObject *
recording_ranks(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return ml_py_ranks(ml_recording_of(op));
}

PyDoc_STRVAR(device_name_doc,
             "device_name($self, device, /)\n--\n\n"
             "What people call a device, as cuda:0, or rank 1 (cuda:1) in a merged "
             "recording.\n\n"
             "Raises IndexError for a device that the recording does not have.");

static PyObject *
recording_device_name(PyObject *op, PyObject *arg)
{
    const ml_recording *recording = ml_recording_of(op);
    Py_ssize_t device = ml_recording_device_of(recording, arg);
    if (device < 0) {
        return NULL;
    }
    char name[200];
    ml_recording_device_name(recording, (size_t)device, name, sizeof(name));
    return PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "replace");
}

static PyObject *
recording_get_lost_notes(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(ml_recording_of(op)->lost_notes);
}

static PyObject *
recording_get_unread(PyObject *op, void *Py_UNUSED(closure))
{
    const ml_recording *recording = ml_recording_of(op);
    PyObject *dict = PyDict_New();
    for (unsigned kind = 0; dict != NULL && kind < ML_UNREAD_COUNT; kind++) {
        if (recording->unread[kind] != 0 &&
            ml_py_set(dict, ml_unread_text(kind),
                      PyLong_FromUnsignedLongLong(recording->unread[kind])) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

PyDoc_STRVAR(counts_doc,
             "counts($self, device, /)\n--\n\n"
             "How much of a device the recording holds, as a dict of ints: "
             "events, segments, blocks,\n"
             "overwritten_events, dropped_events, lost_stacks, lost_names. Raises "
             "IndexError for a\n"
             "device that the recording does not have.");

static PyObject *
recording_counts(PyObject *op, PyObject *arg)
{
    const ml_recording *recording = ml_recording_of(op);
    Py_ssize_t device = ml_recording_device_of(recording, arg);
    if (device < 0) {
        return NULL;
    }
    const ml_device_trace *trace = &recording->devices[device];
    return Py_BuildValue("{s:n,s:n,s:n,s:K,s:K,s:K,s:K}", "events",
                         (Py_ssize_t)trace->event_count, "segments",
                         (Py_ssize_t)trace->segment_count, "blocks",
                         (Py_ssize_t)trace->block_count, "overwritten_events",
                         (unsigned long long)trace->overwritten_events,
                         "dropped_events", (unsigned long long)trace->dropped_events,
                         "lost_stacks", (unsigned long long)trace->lost_stacks,
                         "lost_names", (unsigned long long)trace->lost_names);
}

static PyMethodDef recording_methods[] = {
    {"from_bytes", recording_from_bytes, METH_O | METH_CLASS, from_bytes_doc},
    {"from_file", recording_from_file, METH_O | METH_CLASS, from_file_doc},
    {"code_lines", recording_code_lines, METH_NOARGS, code_lines_doc},
    {"to_dict", recording_to_dict, METH_VARARGS, to_dict_doc},
    {"write_pickle", recording_write_pickle, METH_VARARGS, write_pickle_doc},
    ML_RECORDING_ANSWERS,
    {"page_data", recording_page_data, METH_VARARGS, page_data_doc},
    {"flame_svg", (PyCFunction)(void (*)(void))recording_flame_svg,
     METH_VARARGS | METH_KEYWORDS, flame_svg_doc},
    {"flame_folded", (PyCFunction)(void (*)(void))recording_flame_folded,
     METH_VARARGS | METH_KEYWORDS, flame_folded_doc},
    {"segments_page", (PyCFunction)(void (*)(void))recording_segments_page,
     METH_VARARGS | METH_KEYWORDS, segments_page_doc},
    {"timeline_page", (PyCFunction)(void (*)(void))recording_timeline_page,
     METH_VARARGS | METH_KEYWORDS, timeline_page_doc},
    {"counts", recording_counts, METH_O, counts_doc},
    {"notes", recording_notes, METH_NOARGS, notes_doc},
    {"ranks", recording_ranks, METH_NOARGS, ranks_doc},
    {"device_name", recording_device_name, METH_O, device_name_doc},
    ML_RECORDING_EXPORTS,
    {"difference", (PyCFunction)(void (*)(void))ml_recording_difference,
     METH_VARARGS | METH_KEYWORDS, ml_recording_difference_doc},
    {"difference_page", (PyCFunction)(void (*)(void))ml_recording_difference_page,
     METH_VARARGS | METH_KEYWORDS, ml_recording_difference_page_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef recording_getset[] = {
    {"file", recording_get_file, NULL,
     "dict | None: of a .mlab file what it tells of its making", NULL},
    {"lost_notes", recording_get_lost_notes, NULL,
     "int: older notes that had to make room", NULL},
    {"unread", recording_get_unread, NULL,
     "dict[str, int]: of a snapshot how many values of which kind could not be read",
     NULL},
    {"device_count", recording_get_device_count, NULL, "int: devices, by index", NULL},
    {"source", recording_get_source, NULL,
     "str: 'cuda', 'cpu', 'script', or '' where the file does not say", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static int
recording_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((ml_recording_object *)op)->file);
    return 0;
}

static void
recording_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    ml_recording_drop_verdicts(op);
    ml_recording_free(((ml_recording_object *)op)->recording);
    Py_XDECREF(((ml_recording_object *)op)->file);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(recording_doc, "A finished recording, immutable. Made by MemorySnapshot "
                            "or Recording.from_bytes().");

static PyType_Slot recording_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)recording_doc},
    {Py_tp_methods, recording_methods},
    {Py_tp_getset, recording_getset},
    {Py_tp_traverse, recording_traverse},
    {Py_tp_dealloc, recording_dealloc},
    {0, NULL},
};

static PyType_Spec recording_spec = {
    .name = "memlab._core.Recording",
    .basicsize = sizeof(ml_recording_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = recording_slots,
};

PyObject *
ml_recording_type_new(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &recording_spec, NULL);
}
