/* memlab._core.Recording: an immutable recording, as a Python object.
 *
 * Owns the type and its methods, but for those of exports.h.  They only read what the
 * object wraps, so they may run side by side and without the GIL. */
#include "state.h"

#include <string.h>

#include "core/base/base.h"
#include "core/file/snapshot/pickle_writer.h"
#include "core/file/snapshot/snapshot_reader.h"
#include "core/recording/recording.h"
#include "core/show/page/page_data.h"
#include "dicts/advice_dict.h"
#include "dicts/difference_dict.h"
#include "dicts/instant_event.h"
#include "dicts/notes_list.h"
#include "dicts/oom_dict.h"
#include "dicts/peak_dict.h"
#include "dicts/ranks_list.h"
#include "dicts/snapshot_dict.h"
#include "dicts/stack_lines_dict.h"
#include "dicts/trial_dict.h"
#include "files/load.h"
#include "files/mlab_file.h"
#include "files/pictures.h"
#include "files/whole_file.h"
#include "frames/code_lines.h"
#include "recordings/exports.h"
#include "recordings/recording_object.h"

static const ml_recording *
recording_of(PyObject *op)
{
    return ((ml_recording_object *)op)->recording;
}

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
    return ml_py_code_lines(recording_of(op));
}

PyDoc_STRVAR(to_dict_doc,
             "to_dict($self, /)\n--\n\n"
             "The recording as torch.cuda.memory._snapshot() would give it, a dict.\n\n"
             "Sizes in bytes, times in unix microseconds. Raises MemoryError.");

static PyObject *
recording_to_dict(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return ml_py_snapshot(recording_of(op));
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
    "write_pickle($self, path, extras, /)\n--\n\n"
    "Writes a pickle that torch's viewer reads; it appears whole or not at all.\n\n"
    "path is a str, bytes or os.PathLike; extras, a bool, adds what memlab knows "
    "beyond\n"
    "torch, under the key 'memlab'. Raises OSError, MemoryError.");

static PyObject *
recording_write_pickle(PyObject *op, PyObject *args)
{
    PyObject *path;
    int extras;
    if (!PyArg_ParseTuple(args, "Op:write_pickle", &path, &extras)) {
        return NULL;
    }
    pickle_job job = {recording_of(op), extras ? ML_PICKLE_EXTRAS : 0};
    return ml_py_write_whole(ml_state_of(Py_TYPE(op)), path, write_pickle_job, &job);
}

/* The device index ARG; -1 with IndexError for one that the recording does not have. */
static Py_ssize_t
device_of(const ml_recording *recording, PyObject *arg)
{
    Py_ssize_t device = PyNumber_AsSsize_t(arg, PyExc_IndexError);
    if (device == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (device < 0 || (size_t)device >= recording->device_count) {
        PyErr_Format(PyExc_IndexError, "the recording has %zu devices, no %zd",
                     recording->device_count, device);
        return -1;
    }
    return device;
}

/* DICT, or NULL, said of a part of the RECORDING: with the index that DEVICE has in the
 * whole. */
static PyObject *
name_device(PyObject *dict, Py_ssize_t device)
{
    if (dict != NULL && PyDict_Check(dict) &&
        PyDict_GetItemString(dict, "device") != NULL &&
        ml_py_set(dict, "device", PyLong_FromSsize_t(device)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyDoc_STRVAR(
    find_event_doc,
    "find_event($self, device, *, time_us=None, step=None)\n--\n\n"
    "The index of the event of a device that an instant is, for peak(); -1 for "
    "before the first.\n\n"
    "time_us: the one before the first that is later than so many microseconds after\n"
    "the recording's first event, of any device. step: the event of that training "
    "step\n"
    "after which most was allocated. Just one of them is given. Raises ValueError for\n"
    "one that the recording does not have, naming what there is, IndexError for such "
    "a\n"
    "device, TypeError, OverflowError, "
    "MemoryError.");

static PyObject *
recording_find_event(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"device", "time_us", "step", NULL};
    const ml_recording *recording = recording_of(op);
    PyObject *arg, *time = Py_None, *step = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OO:find_event", keywords, &arg,
                                     &time, &step)) {
        return NULL;
    }
    Py_ssize_t device = device_of(recording, arg);
    if (device < 0) {
        return NULL;
    }
    if ((time == Py_None) == (step == Py_None)) {
        PyErr_SetString(PyExc_TypeError, "find_event() takes one of time_us and step");
        return NULL;
    }
    return step == Py_None ? ml_py_event_at(recording, (size_t)device, time)
                           : ml_py_event_in_step(ml_state_of(Py_TYPE(op)), recording,
                                                 (size_t)device, step);
}

/* What ANSWER says of the device ARG, by its own rank alone in a merged recording. */
static PyObject *
answer_of(PyObject *op, PyObject *arg,
          PyObject *(*answer)(ml_state *state, const ml_recording *recording,
                              int device))
{
    const ml_recording *recording = recording_of(op);
    Py_ssize_t device = device_of(recording, arg);
    if (device < 0) {
        return NULL;
    }
    size_t own = (size_t)device;
    const ml_recording *part = ml_recording_part(recording, &own);
    return name_device(answer(ml_state_of(Py_TYPE(op)), part, (int)own), device);
}

PyDoc_STRVAR(
    peak_doc,
    "peak($self, device, event=None)\n--\n\n"
    "What was live on a device when its allocated bytes were at their peak, as a "
    "dict.\n\n"
    "event: an index, for what was live after that event instead; -1 for before "
    "the first.\n"
    "Bytes and microseconds; docs/REPORT.md describes each key. Raises "
    "IndexError for a\n"
    "device or an event that the recording does not have, MemoryError.");

static PyObject *
recording_peak(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"device", "event", NULL};
    const ml_recording *recording = recording_of(op);
    PyObject *arg, *event = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:peak", keywords, &arg,
                                     &event)) {
        return NULL;
    }
    Py_ssize_t device = device_of(recording, arg);
    if (device < 0) {
        return NULL;
    }
    Py_ssize_t index = -1;
    if (event != Py_None) {
        index = PyNumber_AsSsize_t(event, PyExc_IndexError);
        if (index == -1 && PyErr_Occurred()) {
            return NULL;
        }
    }
    size_t own = (size_t)device;
    const ml_recording *part = ml_recording_part(recording, &own);
    size_t count = part->devices[own].event_count;
    if (index < -1 || (index >= 0 && (size_t)index >= count)) {
        return PyErr_Format(PyExc_IndexError, "the device has %zu events, no %zd",
                            count, index);
    }
    uint64_t position = (uint64_t)(index + 1);
    PyObject *dict = ml_py_peak(ml_state_of(Py_TYPE(op)), part, (int)own,
                                event != Py_None ? &position : NULL);
    return name_device(dict, device);
}

PyDoc_STRVAR(
    replay_doc,
    "replay($self, device, /, *, conf=None, memory=None)\n--\n\n"
    "What the run would have needed of a device under other allocator settings, as a "
    "dict.\n\n"
    "conf: a str, as in PYTORCH_CUDA_ALLOC_CONF; None for the recorded settings. "
    "memory: "
    "bytes\n"
    "that there are for torch's allocator, an int; None for as many as there were. "
    "Sizes in\n"
    "bytes; docs/LABORATORY.md describes each key. Raises ValueError for settings that "
    "torch\n"
    "would not take, IndexError for a device that the recording does not have, "
    "memlab.Error for\n"
    "one whose allocator keeps no cache, MemoryError.");

static PyObject *
recording_replay(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"", "conf", "memory", NULL};
    const ml_recording *recording = recording_of(op);
    PyObject *arg, *conf = Py_None, *memory = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OO:replay", keywords, &arg,
                                     &conf, &memory)) {
        return NULL;
    }
    Py_ssize_t device = device_of(recording, arg);
    if (device < 0) {
        return NULL;
    }
    size_t own = (size_t)device;
    const ml_recording *part = ml_recording_part(recording, &own);
    return name_device(
        ml_py_replay(ml_state_of(Py_TYPE(op)), part, (int)own, conf, memory), device);
}

PyDoc_STRVAR(
    explain_doc,
    "explain($self, device, /, *, memory=None)\n--\n\n"
    "Why the peak of a device is what it is, and what to change, as a dict.\n\n"
    "memory: bytes that there are for torch's allocator, an int, to say which batch "
    "fits;\n"
    "None for what the recording knows of it. Sizes in bytes; docs/LABORATORY.md "
    "describes\n"
    "each key. Raises ValueError, IndexError for a device that the recording does not "
    "have,\n"
    "memlab.Error for one whose allocator keeps no cache, MemoryError.");

/* What ANSWER says of a device, by FORMAT with a memory as a keyword. */
static PyObject *
answer_with_memory(PyObject *op, PyObject *args, PyObject *kwargs, const char *format,
                   PyObject *(*answer)(ml_state *state, const ml_recording *recording,
                                       int device, PyObject *memory))
{
    static char *keywords[] = {"", "memory", NULL};
    const ml_recording *recording = recording_of(op);
    PyObject *arg, *memory = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, keywords, &arg, &memory)) {
        return NULL;
    }
    Py_ssize_t device = device_of(recording, arg);
    if (device < 0) {
        return NULL;
    }
    size_t own = (size_t)device;
    const ml_recording *part = ml_recording_part(recording, &own);
    return name_device(answer(ml_state_of(Py_TYPE(op)), part, (int)own, memory),
                       device);
}

static PyObject *
recording_explain(PyObject *op, PyObject *args, PyObject *kwargs)
{
    return answer_with_memory(op, args, kwargs, "O|$O:explain", ml_py_advice);
}

PyDoc_STRVAR(
    tune_doc,
    "tune($self, device, /, *, memory=None)\n--\n\n"
    "The allocator settings with which the run would have reserved least of a device, "
    "as "
    "a dict.\n\n"
    "memory: as for replay(). Sizes in bytes; docs/LABORATORY.md describes each key. "
    "Raises\n"
    "ValueError, IndexError, memlab.Error and MemoryError, as replay().");

static PyObject *
recording_tune(PyObject *op, PyObject *args, PyObject *kwargs)
{
    return answer_with_memory(op, args, kwargs, "O|$O:tune", ml_py_tune);
}

PyDoc_STRVAR(lines_doc,
             "lines($self, device, /)\n--\n\n"
             "What memory did on a device while each line of the program ran, as a "
             "dict.\n\n"
             "start_time_us is the time of the first event; functions are those of all "
             "files, torch's\n"
             "too, each with its lines; docs/REPORT.md describes the figures. Raises "
             "IndexError for a\n"
             "device that the recording does not have, MemoryError.");

static PyObject *
recording_lines(PyObject *op, PyObject *arg)
{
    return answer_of(op, arg, ml_py_lines);
}

PyDoc_STRVAR(oom_doc,
             "oom($self, device, /)\n--\n\n"
             "Why the last request of a device that ran out of memory failed, "
             "as a dict; None where\n"
             "none did.\n\n"
             "docs/REPORT.md describes each key. Raises IndexError for a device "
             "that the recording\n"
             "does not have.");

static PyObject *
recording_oom(PyObject *op, PyObject *arg)
{
    return answer_of(op, arg, ml_py_oom);
}

PyDoc_STRVAR(
    page_data_doc,
    "page_data($self, /)\n--\n\n"
    "The data of the HTML page: its head, as bytes of JSON that may stand in a "
    "script\n"
    "element, and a list of blobs, bytes of columns, which docs/FORMAT.md "
    "describes.\n\n"
    "Sizes in bytes, times in microseconds. Raises MemoryError, and ValueError "
    "for more\n"
    "events than a page can number (2^31).");

/* Takes what BUFFER holds, which is taken down. */
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

static PyObject *
recording_page_data(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ml_page_data data;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_page_data_make(&data, recording_of(op));
    Py_END_ALLOW_THREADS
    PyObject *tuple = NULL;
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
    return ml_py_flame(ml_state_of(Py_TYPE(op)), recording_of(op), false, args, kwargs);
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
    return ml_py_flame(ml_state_of(Py_TYPE(op)), recording_of(op), true, args, kwargs);
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
    return ml_py_segments_page(ml_state_of(Py_TYPE(op)), recording_of(op), args,
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
    return ml_py_timeline_page(ml_state_of(Py_TYPE(op)), recording_of(op), args,
                               kwargs);
}

static PyObject *
recording_get_device_count(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(recording_of(op)->device_count);
}

static PyObject *
recording_get_source(PyObject *op, void *Py_UNUSED(closure))
{
    const ml_recording *recording = recording_of(op);
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
    return ml_py_notes(recording_of(op));
}

PyDoc_STRVAR(ranks_doc,
             "ranks($self, /)\n--\n\n"
             "The processes of which the recording is, by rank: a list of dicts.\n\n"
             "docs/REPORT.md describes each key. Empty where the file does not say.");

static PyObject *
recording_ranks(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return ml_py_ranks(recording_of(op));
}

PyDoc_STRVAR(device_name_doc,
             "device_name($self, device, /)\n--\n\n"
             "What people call a device, as cuda:0, or rank 1 (cuda:1) in a merged "
             "recording.\n\n"
             "Raises IndexError for a device that the recording does not have.");

static PyObject *
recording_device_name(PyObject *op, PyObject *arg)
{
    const ml_recording *recording = recording_of(op);
    Py_ssize_t device = device_of(recording, arg);
    if (device < 0) {
        return NULL;
    }
    char name[200];
    ml_recording_device_name(recording, (size_t)device, name, sizeof(name));
    return PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "replace");
}

PyDoc_STRVAR(
    difference_doc,
    "difference($self, device, after, after_device, /, *, event=None, "
    "after_event=None,\n"
    "           same_code=False, phases=False, one_step=False)\n--\n\n"
    "What of a device of the recording after is more, and what less, than of one "
    "here, as a\n"
    "dict: at their peaks, or after event number event here, and after_event there; "
    "-1 is\n"
    "before the first.\n\n"
    "same_code: both ran the same files, so that a line is what it says. phases: of "
    "each\n"
    "phase too, one_step: only of those in the instant's step. Bytes; docs/REPORT.md\n"
    "describes each key. Raises IndexError for a device or an event that its recording "
    "does\n"
    "not have, TypeError, MemoryError.");

/* The side of DEVICE of RECORDING after EVENT, or at its peak for None.  0 or -1. */
static int
side_of(const ml_recording *recording, PyObject *device, PyObject *event,
        ml_difference_side *side)
{
    Py_ssize_t index = device_of(recording, device);
    if (index < 0) {
        return -1;
    }
    side->device = (size_t)index;
    side->recording = ml_recording_part(recording, &side->device);
    side->position = ML_DIFFERENCE_PEAK;
    if (event != Py_None) {
        Py_ssize_t number = PyNumber_AsSsize_t(event, PyExc_IndexError);
        if (number == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (number < -1) {
            PyErr_Format(PyExc_IndexError, "no event has number %zd", number);
            return -1;
        }
        side->position = (uint64_t)number + 1;
    }
    return 0;
}

/* What difference() is called with, and difference_page() with a title and a sentence
 * before.  0 or -1. */
static int
read_ask(PyObject *op, PyObject *args, PyObject *kwargs, ml_difference_ask *ask,
         PyObject **title, PyObject **said)
{
    static char *keywords[] = {
        "", "", "", "event", "after_event", "same_code", "phases", "one_step", NULL};
    static char *page_keywords[] = {
        "",       "",         "",      "event", "after_event", "same_code",
        "phases", "one_step", "title", "said",  NULL};
    PyTypeObject *type = (PyTypeObject *)ml_state_of(Py_TYPE(op))->recording_type;
    PyObject *device, *after, *after_device;
    PyObject *event = Py_None, *after_event = Py_None;
    int same_code = 0, phases = 0, one_step = 0;
    int read = title == NULL
                   ? PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O|$OOppp:difference",
                                                 keywords, &device, type, &after,
                                                 &after_device, &event, &after_event,
                                                 &same_code, &phases, &one_step)
                   : PyArg_ParseTupleAndKeywords(
                         args, kwargs, "OO!O|$OOpppUU:difference_page", page_keywords,
                         &device, type, &after, &after_device, &event, &after_event,
                         &same_code, &phases, &one_step, title, said);
    if (!read || side_of(recording_of(op), device, event, &ask->sides[0]) < 0 ||
        side_of(recording_of(after), after_device, after_event, &ask->sides[1]) < 0) {
        return -1;
    }
    ask->same_code = same_code != 0;
    ask->phases = phases != 0;
    ask->one_step = one_step != 0;
    return 0;
}

static PyObject *
recording_difference(PyObject *op, PyObject *args, PyObject *kwargs)
{
    ml_difference_ask ask;
    return read_ask(op, args, kwargs, &ask, NULL, NULL) < 0
               ? NULL
               : ml_py_difference(ml_state_of(Py_TYPE(op)), &ask);
}

PyDoc_STRVAR(
    difference_page_doc,
    "difference_page($self, device, after, after_device, /, *, event=None,\n"
    "                after_event=None, same_code=False, phases=False, "
    "one_step=False,\n"
    "                title=\"Two recordings\", said=\"\")\n--\n\n"
    "What difference() says as an HTML page, which loads nothing: UTF-8 bytes, with "
    "title\n"
    "and below it the sentence said, both from anywhere. Raises what it raises, and "
    "ValueError\n"
    "for a title that is too long.");

static PyObject *
recording_difference_page(PyObject *op, PyObject *args, PyObject *kwargs)
{
    ml_difference_ask ask;
    PyObject *title = NULL, *said = NULL;
    if (read_ask(op, args, kwargs, &ask, &title, &said) < 0) {
        return NULL;
    }
    /* What was not given, as a reference of ours. */
    PyObject *head =
        title != NULL ? Py_NewRef(title) : PyUnicode_FromString("Two recordings");
    PyObject *body = said != NULL ? Py_NewRef(said) : PyUnicode_FromString("");
    PyObject *page = NULL;
    if (head != NULL && body != NULL) {
        page = ml_py_difference_page(ml_state_of(Py_TYPE(op)), &ask, head, body);
    }
    Py_XDECREF(head);
    Py_XDECREF(body);
    return page;
}

static PyObject *
recording_get_lost_notes(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(recording_of(op)->lost_notes);
}

static PyObject *
recording_get_unread(PyObject *op, void *Py_UNUSED(closure))
{
    const ml_recording *recording = recording_of(op);
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
    const ml_recording *recording = recording_of(op);
    Py_ssize_t device = device_of(recording, arg);
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
    {"to_dict", recording_to_dict, METH_NOARGS, to_dict_doc},
    {"write_pickle", recording_write_pickle, METH_VARARGS, write_pickle_doc},
    {"peak", (PyCFunction)(void (*)(void))recording_peak, METH_VARARGS | METH_KEYWORDS,
     peak_doc},
    {"replay", (PyCFunction)(void (*)(void))recording_replay,
     METH_VARARGS | METH_KEYWORDS, replay_doc},
    {"tune", (PyCFunction)(void (*)(void))recording_tune, METH_VARARGS | METH_KEYWORDS,
     tune_doc},
    {"explain", (PyCFunction)(void (*)(void))recording_explain,
     METH_VARARGS | METH_KEYWORDS, explain_doc},
    {"find_event", (PyCFunction)(void (*)(void))recording_find_event,
     METH_VARARGS | METH_KEYWORDS, find_event_doc},
    {"lines", recording_lines, METH_O, lines_doc},
    {"oom", recording_oom, METH_O, oom_doc},
    {"page_data", recording_page_data, METH_NOARGS, page_data_doc},
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
    {"difference", (PyCFunction)(void (*)(void))recording_difference,
     METH_VARARGS | METH_KEYWORDS, difference_doc},
    {"difference_page", (PyCFunction)(void (*)(void))recording_difference_page,
     METH_VARARGS | METH_KEYWORDS, difference_page_doc},
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
