/* Reads questions to a recording's device and answers them.  See answers.h. */
#include "recordings/answers.h"

#include "core/analysis/answers/module_rows.h"
#include "dicts/advice_dict.h"
#include "dicts/growth_dict.h"
#include "dicts/instant_event.h"
#include "dicts/oom_dict.h"
#include "dicts/peak_dict.h"
#include "dicts/stack_lines_dict.h"
#include "dicts/trial_dict.h"
#include "dicts/verdict_dict.h"
#include "recordings/recording_object.h"

/* DICT, or NULL, about a part of the RECORDING: replaces its device by the index in the
 * whole. */
static PyObject *
name_device(PyObject *dict, Py_ssize_t device)
{
    PyObject *own = NULL;
    if (dict != NULL && PyDict_Check(dict) &&
        (ml_py_get(dict, "device", &own) < 0 ||
         (own != NULL && ml_py_set(dict, "device", PyLong_FromSsize_t(device)) < 0))) {
        Py_CLEAR(dict);
    }
    return dict;
}

const char ml_recording_find_event_doc[] =
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
    "MemoryError.";

PyObject *
ml_recording_find_event(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"device", "time_us", "step", NULL};
    const ml_recording *recording = ml_recording_of(op);
    PyObject *arg, *time = Py_None, *step = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OO:find_event", keywords, &arg,
                                     &time, &step)) {
        return NULL;
    }
    Py_ssize_t device = ml_recording_device_of(recording, arg);
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

/* ANSWER for the device ARG, asked of its own rank in a merged recording. */
static PyObject *
answer_of(PyObject *op, PyObject *arg,
          PyObject *(*answer)(ml_state *state, const ml_recording *recording,
                              int device))
{
    const ml_recording *recording = ml_recording_of(op);
    Py_ssize_t device = ml_recording_device_of(recording, arg);
    if (device < 0) {
        return NULL;
    }
    size_t own = (size_t)device;
    const ml_recording *part = ml_recording_part(recording, &own);
    return name_device(answer(ml_state_of(Py_TYPE(op)), part, (int)own), device);
}

const char ml_recording_peak_doc[] =
    "peak($self, device, event=None, *, module_rows=10)\n--\n\n"
    "What was live on a device when its allocated bytes were at their peak, as a "
    "dict.\n\n"
    "event: an index, for what was live after that event instead; -1 for before "
    "the first.\n"
    "module_rows: the most rows that the answer's module_rows has, 1 to 10.\n"
    "Bytes and microseconds; docs/REPORT.md describes each key. Raises "
    "IndexError for a\n"
    "device or an event that the recording does not have, ValueError for other rows,\n"
    "MemoryError.";

PyObject *
ml_recording_peak(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"device", "event", "module_rows", NULL};
    const ml_recording *recording = ml_recording_of(op);
    PyObject *arg, *event = Py_None;
    int rows = ML_MODULE_ROWS;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O$i:peak", keywords, &arg, &event,
                                     &rows)) {
        return NULL;
    }
    if (rows < 1 || rows > ML_MODULE_ROWS) {
        return PyErr_Format(PyExc_ValueError, "module_rows must be 1 to %d, not %d",
                            ML_MODULE_ROWS, rows);
    }
    Py_ssize_t device = ml_recording_device_of(recording, arg);
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
                                event != Py_None ? &position : NULL, (size_t)rows);
    return name_device(dict, device);
}

const char ml_recording_replay_doc[] =
    "replay($self, device, /, *, conf=None, memory=None, memory_fraction=None)\n--\n\n"
    "What the run would have needed of a device under other allocator settings, as a "
    "dict.\n\n"
    "conf: a str, as in PYTORCH_CUDA_ALLOC_CONF; None for the recorded settings. "
    "memory: "
    "bytes\n"
    "that there are for torch's allocator, an int; None for as many as there were. "
    "memory_fraction:\n"
    "that part of them, or of the GPU's memory, is the process's limit, a float; None "
    "for "
    "the\n"
    "recorded limit. Sizes in\n"
    "bytes; docs/LABORATORY.md describes each key. Raises ValueError for settings that "
    "torch\n"
    "would not take, IndexError for a device that the recording does not have, "
    "memlab.Error for\n"
    "one whose allocator keeps no cache, MemoryError.";

PyObject *
ml_recording_replay(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"", "conf", "memory", "memory_fraction", NULL};
    const ml_recording *recording = ml_recording_of(op);
    PyObject *arg, *conf = Py_None, *memory = Py_None, *fraction = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOO:replay", keywords, &arg,
                                     &conf, &memory, &fraction)) {
        return NULL;
    }
    Py_ssize_t device = ml_recording_device_of(recording, arg);
    if (device < 0) {
        return NULL;
    }
    size_t own = (size_t)device;
    const ml_recording *part = ml_recording_part(recording, &own);
    return name_device(
        ml_py_replay(ml_state_of(Py_TYPE(op)), part, (int)own, conf, memory, fraction),
        device);
}

const char ml_recording_explain_doc[] =
    "explain($self, device, /, *, memory=None)\n--\n\n"
    "Why the peak of a device is what it is, and what to change, as a dict.\n\n"
    "memory: bytes that there are for torch's allocator, an int, to say which batch "
    "fits;\n"
    "None for what the recording knows of it. Sizes in bytes; docs/LABORATORY.md "
    "describes\n"
    "each key. Raises ValueError, IndexError for a device that the recording does not "
    "have,\n"
    "memlab.Error for one whose allocator keeps no cache, MemoryError.";

/* ANSWER for a device, with a memory as a keyword, by FORMAT. */
static PyObject *
answer_with_memory(PyObject *op, PyObject *args, PyObject *kwargs, const char *format,
                   PyObject *(*answer)(ml_state *state, const ml_recording *recording,
                                       int device, PyObject *memory))
{
    static char *keywords[] = {"", "memory", NULL};
    const ml_recording *recording = ml_recording_of(op);
    PyObject *arg, *memory = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, keywords, &arg, &memory)) {
        return NULL;
    }
    Py_ssize_t device = ml_recording_device_of(recording, arg);
    if (device < 0) {
        return NULL;
    }
    size_t own = (size_t)device;
    const ml_recording *part = ml_recording_part(recording, &own);
    return name_device(answer(ml_state_of(Py_TYPE(op)), part, (int)own, memory),
                       device);
}

PyObject *
ml_recording_explain(PyObject *op, PyObject *args, PyObject *kwargs)
{
    return answer_with_memory(op, args, kwargs, "O|$O:explain", ml_py_advice);
}

const char ml_recording_verdict_doc[] =
    "verdict($self, device, /, *, trials=False, start='')\n--\n\n"
    "What happened on a device, why, and what to change, as a dict.\n\n"
    "trials: a bool, whether changes are tried in replays of the whole run; None: if "
    "it is\n"
    "short.  start: the folder to which paths in its texts are relative; '': none. "
    "Sizes "
    "in\n"
    "bytes; docs/REPORT.md describes each key. Raises IndexError for a device that "
    "the\n"
    "recording does not have, MemoryError.";

PyObject *
ml_recording_verdict(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"", "trials", "start", NULL};
    const ml_recording *recording = ml_recording_of(op);
    PyObject *arg, *asked = Py_False;
    const char *start = "";
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$Os:verdict", keywords, &arg,
                                     &asked, &start)) {
        return NULL;
    }
    Py_ssize_t device = ml_recording_device_of(recording, arg);
    if (device < 0) {
        return NULL;
    }
    int error = 0, trials = PyObject_IsTrue(asked);
    if (trials < 0) {
        return NULL;
    }
    size_t own = (size_t)device;
    const ml_recording *part = ml_recording_part(recording, &own);
    bool tries = asked == Py_None ? ml_run_verdict_tries(part, own) : trials != 0;
    const ml_run_verdict *verdict =
        ml_recording_verdict_of(op, (size_t)device, tries, &error);
    if (verdict == NULL) {
        return ml_py_raise_trial(ml_state_of(Py_TYPE(op)), error, "");
    }
    ml_verdict_words words = {part, verdict, start};
    return ml_py_verdict(&words, (int)device);
}

const char ml_recording_growth_doc[] =
    "growth($self, device, /)\n--\n\n"
    "Which lines of the program leave memory behind on a device step by step, as a "
    "dict.\n\n"
    "Sizes in bytes; docs/REPORT.md describes each key. Raises IndexError for a device "
    "that\n"
    "the recording does not have, MemoryError.";

PyObject *
ml_recording_growth(PyObject *op, PyObject *arg)
{
    return answer_of(op, arg, ml_py_growth);
}

const char ml_recording_tune_doc[] =
    "tune($self, device, /, *, memory=None)\n--\n\n"
    "The allocator settings with which the run would have reserved least of a device, "
    "as "
    "a dict.\n\n"
    "memory: as for replay(). Sizes in bytes; docs/LABORATORY.md describes each key. "
    "Raises\n"
    "ValueError, IndexError, memlab.Error and MemoryError, as replay().";

PyObject *
ml_recording_tune(PyObject *op, PyObject *args, PyObject *kwargs)
{
    return answer_with_memory(op, args, kwargs, "O|$O:tune", ml_py_tune);
}

const char ml_recording_lines_doc[] =
    "lines($self, device, /)\n--\n\n"
    "What memory did on a device while each line of the program ran, as a "
    "dict.\n\n"
    "start_time_us is the time of the first event; functions are those of all "
    "files, torch's\n"
    "too, each with its lines; docs/REPORT.md describes the figures. Raises "
    "IndexError for a\n"
    "device that the recording does not have, MemoryError.";

PyObject *
ml_recording_lines(PyObject *op, PyObject *arg)
{
    return answer_of(op, arg, ml_py_lines);
}

const char ml_recording_oom_doc[] =
    "oom($self, device, /)\n--\n\n"
    "Why the last request of a device that ran out of memory failed, "
    "as a dict; None where\n"
    "none did.\n\n"
    "docs/REPORT.md describes each key. Raises IndexError for a device "
    "that the recording\n"
    "does not have.";

PyObject *
ml_recording_oom(PyObject *op, PyObject *arg)
{
    return answer_of(op, arg, ml_py_oom);
}
