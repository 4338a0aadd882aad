/* Notes steps, phases and marks from Python.  See annotations.h. */
#include "training/annotations.h"

#include <stdatomic.h>
#include <string.h>

#include "core/record/recorder.h"
#include "dicts/gpu_dict.h"

/* The last phase's number. */
static _Atomic uint64_t phase_number;

/* Notes NAME, a str.  If memory is too short to encode the name, the note has none: the
 * event matters more. */
static void
note_named(enum ml_note_kind kind, PyObject *name, uint64_t number)
{
    ml_note note = {.kind = (uint8_t)kind, .device = -1, .values = {number}};
    Py_ssize_t length;
    const char *text = PyUnicode_AsUTF8AndSize(name, &length);
    if (text != NULL) {
        ml_recorder_note(NULL, &note, text, (size_t)length);
        return;
    }
    PyErr_Clear();
    /* Lone surrogates, as in the names of files. */
    PyObject *bytes = PyUnicode_AsEncodedString(name, "utf-8", "surrogatepass");
    if (bytes == NULL) {
        PyErr_Clear();
        ml_recorder_note(NULL, &note, NULL, 0);
        return;
    }
    ml_recorder_note(NULL, &note, PyBytes_AS_STRING(bytes),
                     (size_t)PyBytes_GET_SIZE(bytes));
    Py_DECREF(bytes);
}

static int
check_name(PyObject *name)
{
    if (PyUnicode_Check(name)) {
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "name must be a str, not %.200s",
                 Py_TYPE(name)->tp_name);
    return -1;
}

const char ml_py_noting_doc[] = "noting($module, /)\n--\n\n"
                                "Whether any recording would hear of a note.";

PyObject *
ml_py_noting(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(ml_recorder_noting());
}

const char ml_py_begin_phase_doc[] =
    "begin_phase($module, name, /)\n--\n\n"
    "Notes that a phase begins; the number that ends it, or 0 where nobody records.\n\n"
    "Raises TypeError where name is no str.";

PyObject *
ml_py_begin_phase(PyObject *Py_UNUSED(module), PyObject *name)
{
    if (check_name(name) < 0) {
        return NULL;
    }
    uint64_t number = 0;
    if (ml_recorder_noting()) {
        number = atomic_fetch_add(&phase_number, 1) + 1;
        note_named(ML_NOTE_PHASE_BEGIN, name, number);
    }
    return PyLong_FromUnsignedLongLong(number);
}

const char ml_py_end_phase_doc[] =
    "end_phase($module, name, number, /)\n--\n\n"
    "Notes that the phase of that number ends; 0 is no phase.";

PyObject *
ml_py_end_phase(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "end_phase takes a name and a number");
        return NULL;
    }
    if (check_name(args[0]) < 0) {
        return NULL;
    }
    unsigned long long number = PyLong_AsUnsignedLongLong(args[1]);
    if (number == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    if (number != 0) {
        note_named(ML_NOTE_PHASE_END, args[0], number);
    }
    Py_RETURN_NONE;
}

const char ml_py_mark_doc[] = "mark($module, name, /)\n--\n\n"
                              "Notes an instant of that name.\n\n"
                              "Raises TypeError where name is no str.";

PyObject *
ml_py_mark(PyObject *Py_UNUSED(module), PyObject *name)
{
    if (check_name(name) < 0) {
        return NULL;
    }
    if (ml_recorder_noting()) {
        note_named(ML_NOTE_MARK, name, 0);
    }
    Py_RETURN_NONE;
}

const char ml_py_note_holder_doc[] =
    "note_holder($module, source, device, address, holder, /)\n--\n\n"
    "Notes who holds the block at an address of a device.\n\n"
    "Raises TypeError, OverflowError.";

PyObject *
ml_py_note_holder(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *source, *holder;
    Py_ssize_t length;
    unsigned long long address;
    int device;
    if (!PyArg_ParseTuple(args, "siKs#:note_holder", &source, &device, &address,
                          &holder, &length)) {
        return NULL;
    }
    const ml_source *of = ml_recorder_source(source);
    if (of != NULL) {
        ml_note note = {.kind = ML_NOTE_HOLDER, .device = device, .values = {address}};
        ml_recorder_note(of, &note, holder, (size_t)length);
    }
    Py_RETURN_NONE;
}

const char ml_py_note_before_oom_doc[] =
    "note_before_oom($module, kind, name, value, other=0, /)\n--\n\n"
    "Notes what no event tells, as memory runs out.\n\n"
    "kind: 'optimizer', with its class, the bytes of the state that it will keep and "
    "of\n"
    "the parameters that it trains; 'batch', with an argument of the program and its\n"
    "number. Raises TypeError, ValueError, OverflowError.";

PyObject *
ml_py_note_before_oom(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *kind, *name;
    Py_ssize_t length;
    unsigned long long value, other = 0;
    if (!PyArg_ParseTuple(args, "ss#K|K:note_before_oom", &kind, &name, &length, &value,
                          &other)) {
        return NULL;
    }
    bool optimizer = strcmp(kind, ml_note_text(ML_NOTE_OPTIMIZER)) == 0;
    if (!optimizer && strcmp(kind, ml_note_text(ML_NOTE_BATCH)) != 0) {
        PyErr_Format(PyExc_ValueError, "no such kind: %.100s", kind);
        return NULL;
    }
    ml_note note = {.kind = optimizer ? ML_NOTE_OPTIMIZER : ML_NOTE_BATCH,
                    .device = -1,
                    .values = {value, other}};
    if (ml_recorder_noting()) {
        ml_recorder_note(NULL, &note, name, (size_t)length);
    }
    Py_RETURN_NONE;
}

const char ml_py_note_step_doc[] =
    "note_step($module, /)\n--\n\n"
    "Notes that a training step ended, and samples the memory where that is due.";

PyObject *
ml_py_note_step(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    ml_note note = {.kind = ML_NOTE_STEP, .device = -1};
    ml_recorder_note(NULL, &note, NULL, 0);
    ml_py_sample_step();
    Py_RETURN_NONE;
}
