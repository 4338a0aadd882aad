/* Notes steps, phases and marks from Python.  See annotations.h. */
#include "training/annotations.h"

#include <string.h>

#include "core/record/recorder.h"
#include "dicts/gpu_dict.h"

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
ml_py_begin_phase(PyObject *module, PyObject *name)
{
    if (check_name(name) < 0) {
        return NULL;
    }
    uint64_t number = 0;
    if (ml_recorder_noting()) {
        number = ++((ml_state *)PyModule_GetState(module))->phases;
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
    "note_holder($module, source, device, address, holder, line=0, /)\n--\n\n"
    "Notes who holds the block at an address of a device.\n\n"
    "line: of a variable that nothing reads any more, the one that sets it again.\n"
    "Raises TypeError, OverflowError.";

PyObject *
ml_py_note_holder(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *source, *holder;
    Py_ssize_t length;
    unsigned long long address, line = 0;
    int device;
    if (!PyArg_ParseTuple(args, "siKs#|K:note_holder", &source, &device, &address,
                          &holder, &length, &line)) {
        return NULL;
    }
    const ml_source *of = ml_recorder_source(source);
    if (of != NULL) {
        ml_note note = {
            .kind = ML_NOTE_HOLDER, .device = device, .values = {address, line}};
        ml_recorder_note(of, &note, holder, (size_t)length);
    }
    Py_RETURN_NONE;
}

const char ml_py_note_no_room_doc[] =
    "note_no_room($module, device, said, free, total, /)\n--\n\n"
    "Notes that memory outside torch's allocator ran out, in the words said.\n\n"
    "device: of a GPU; -1: it is not known. Raises TypeError, OverflowError.";

PyObject *
ml_py_note_no_room(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *said;
    Py_ssize_t length;
    unsigned long long free, total;
    int device;
    if (!PyArg_ParseTuple(args, "is#KK:note_no_room", &device, &said, &length, &free,
                          &total)) {
        return NULL;
    }
    const ml_source *of = ml_recorder_source("cuda");
    if (of != NULL) {
        ml_note note = {
            .kind = ML_NOTE_NO_ROOM, .device = device, .values = {free, total}};
        ml_recorder_note(of, &note, said, (size_t)length);
    }
    Py_RETURN_NONE;
}

const char ml_py_note_before_oom_doc[] =
    "note_before_oom($module, kind, name, *values)\n--\n\n"
    "Notes what no event tells, as memory runs out.\n\n"
    "kind: 'optimizer', 'batch', 'loop', 'program' or 'head'; name and up to four "
    "values are "
    "as\n"
    "docs/FORMAT.md has them. Raises TypeError, ValueError, OverflowError.";

PyObject *
ml_py_note_before_oom(PyObject *Py_UNUSED(module), PyObject *args)
{
    static const uint8_t kinds[] = {ML_NOTE_OPTIMIZER, ML_NOTE_BATCH, ML_NOTE_LOOP,
                                    ML_NOTE_PROGRAM, ML_NOTE_HEAD};
    const char *kind, *name;
    Py_ssize_t length;
    unsigned long long values[4] = {0};
    if (!PyArg_ParseTuple(args, "ss#|KKKK:note_before_oom", &kind, &name, &length,
                          &values[0], &values[1], &values[2], &values[3])) {
        return NULL;
    }
    size_t i = 0;
    while (i < sizeof(kinds) && strcmp(kind, ml_note_text(kinds[i])) != 0) {
        i++;
    }
    if (i == sizeof(kinds)) {
        PyErr_Format(PyExc_ValueError, "no such kind: %.100s", kind);
        return NULL;
    }
    ml_note note = {.kind = kinds[i],
                    .device = -1,
                    .values = {values[0], values[1], values[2], values[3]}};
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
    ml_py_end_step();
    Py_RETURN_NONE;
}
