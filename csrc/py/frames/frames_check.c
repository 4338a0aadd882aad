/* Checks that the walk sees the frames that Python shows, and so chooses the way of
 * capture.  See frames.h. */
#include "frames/frame_layout.h"

#include "frames/frames.h"

#include <stdatomic.h>

#include "core/stacks/linetable.h"
#include "frames/codes.h"
#include "frames/frames_parts.h"

#ifndef WALK_UNKNOWN

static bool
text_equal(PyObject *string, ml_slice text)
{
    PyObject *ours =
        PyUnicode_DecodeUTF8(text.bytes, (Py_ssize_t)text.length, "surrogatepass");
    int different = ours == NULL ? -1 : PyUnicode_Compare(ours, string);

    Py_XDECREF(ours);
    PyErr_Clear();
    return different == 0;
}

/* ARGUMENT: the first one of every call of the followed function. */
static bool
frame_agrees(const ml_seen_frame *seen, const ml_frame_key *walked,
             const ml_frame_key *expected, const PyObject *argument)
{
    const PyCodeObject *code = (const PyCodeObject *)(uintptr_t)walked->code;
    ml_codes_buffers buffers;

    if (walked->code != expected->code || (code == atomic_load(&ml_frames.followed) &&
                                           seen->object != (uintptr_t)argument)) {
        return false;
    }
    ml_code_text text = ml_codes_text(code, &buffers, true);
    int64_t line =
        ml_linetable_line((const uint8_t *)text.linetable.bytes, text.linetable.length,
                          text.firstlineno, text.python_minor, (int32_t)walked->offset);
    return (line > 0 ? line : 0) == expected->offset &&
           text_equal(code->co_name, text.name) &&
           text_equal(code->co_filename, text.filename);
}

/* Frame by frame the same code, and in its copied text the same names and line. */
static bool
walk_agrees(const ml_walked *walked, const ml_frame_key *expected, size_t count,
            const PyObject *argument)
{
    size_t shown = 0;

    for (size_t i = walked->count; i-- > 0;) {
        ml_frame_key key;
        if (!ml_frames_key(&walked->frames[i], &key)) {
            continue;
        }
        if (shown == count ||
            !frame_agrees(&walked->frames[i], &key,
                          &expected[ml_frames_public_place(shown)], argument)) {
            return false;
        }
        shown++;
        if (i == ML_FRAMES_OUTER) {
            shown += walked->left_out;
        }
    }
    return shown == count;
}

/* Called by the Python code below, with its globals as SELF: compares the walk with
 * Python's frames. */
static PyObject *
probe(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    const PyObject *argument = PyDict_GetItemString(self, "probe");
    ml_frame_key expected[ML_FRAMES_MAX];
    ml_walked held, released;

    size_t count = ml_frames_public_walk(expected);
    ml_frames_walk(PyGILState_GetThisThreadState(), &held);
    Py_BEGIN_ALLOW_THREADS
    ml_frames_walk(PyGILState_GetThisThreadState(), &released);
    Py_END_ALLOW_THREADS

    return PyBool_FromLong(count >= 2 &&
                           walk_agrees(&held, expected, count, argument) &&
                           walk_agrees(&released, expected, count, argument));
}

static const char check_source[] = "def call(probe):\n"
                                   "    return (\n"
                                   "        probe())\n"
                                   "def generate(probe):\n"
                                   "    yield call(probe)\n"
                                   "    yield probe()\n"
                                   "class Type:\n"
                                   "    def __len__(self):\n"
                                   "        return self.probe() is True\n"
                                   "def check(probe):\n"
                                   "    item = Type()\n"
                                   "    item.probe = probe\n"
                                   "    return (call(probe) is True and\n"
                                   "            all(generate(probe)) and\n"
                                   "            len(item) == 1 and\n"
                                   "            (lambda: probe())())\n";

static bool
run_check(void)
{
    static PyMethodDef probe_method = {"probe", probe, METH_NOARGS, NULL};
    PyObject *globals = PyDict_New();
    PyObject *function =
        globals != NULL ? PyCFunction_New(&probe_method, globals) : NULL;
    PyObject *ran = NULL;
    PyObject *result = NULL;

    if (function != NULL && PyDict_SetItemString(globals, "probe", function) == 0 &&
        PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0) {
        ran = PyRun_String(check_source, Py_file_input, globals, globals);
    }
    PyObject *check = ran != NULL ? PyDict_GetItemString(globals, "check") : NULL;
    PyObject *call = ran != NULL ? PyDict_GetItemString(globals, "call") : NULL;
    if (check != NULL && call != NULL) {
        atomic_store(&ml_frames.followed, (PyCodeObject *)PyFunction_GET_CODE(call));
        result = PyObject_CallFunctionObjArgs(check, function, NULL);
        atomic_store(&ml_frames.followed, NULL);
    }
    bool agrees = result == Py_True;
    Py_XDECREF(result);
    Py_XDECREF(ran);
    Py_XDECREF(function);
    Py_XDECREF(globals);
    PyErr_Clear();
    return agrees;
}

#endif

int
ml_frames_self_check(void)
{
#ifdef WALK_UNKNOWN
    ml_frames_capture_by(ML_CAPTURE_PUBLIC, WALK_UNKNOWN);
    return 0;
#else
    /* Once for the process.  In a subinterpreter, the state found here is the main
     * interpreter's, and a second check would compare two stacks. */
    const char *reason;
    if (ml_frames_supported(&reason)) {
        return 1;
    }
    if (!run_check()) {
        ml_frames_capture_by(
            ML_CAPTURE_PUBLIC,
            "the frames found differ from what Python's own functions show");
        return 0;
    }
#ifdef ML_CODES_WATCHED
    ml_codes_watch();
#endif
    ml_frames_capture_by(ML_CAPTURE_WALK, NULL);
    return 1;
#endif
}
