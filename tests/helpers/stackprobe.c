/* A test's window on stack capture: capture here, name it later.
 *
 * Compiled by tests/record/test_frames.py together with the product's own files, under several
 * names: PROBE_NAME "x" with PROBE_INIT PyInit_x. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "frames/frames.h"
#include "stacks/linetable.h"
#include "stacks/stacks.h"

static ml_stacks *stacks;

static PyObject *
probe_capture(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(args))
{
    uint8_t flags = 0;
    uint32_t id = ml_frames_capture(stacks, &flags);
    return Py_BuildValue("Ii", id, (int)flags);
}

static PyObject *
probe_capture_released(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(args))
{
    uint8_t flags = 0;
    uint32_t id;
    Py_BEGIN_ALLOW_THREADS
    id = ml_frames_capture(stacks, &flags);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("Ii", id, (int)flags);
}

/* Twice from one place: by what the thread remembers of its last walk, then without. */
static PyObject *
probe_capture_both(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(args))
{
    uint8_t flags = 0;
    uint32_t recalled = ml_frames_capture(stacks, &flags);
    ml_stacks_forget_object(stacks, 0);
    uint32_t fresh = ml_frames_capture(stacks, &flags);
    return Py_BuildValue("III", recalled, fresh, (unsigned)flags);
}

static PyObject *
probe_follow(PyObject *Py_UNUSED(self), PyObject *code)
{
    return PyBool_FromLong(ml_frames_follow((PyCodeObject *)code));
}

static PyObject *
probe_name(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *object;
    const char *name;
    if (!PyArg_ParseTuple(args, "Os", &object, &name)) {
        return NULL;
    }
    ml_object_key key = {(uintptr_t)object, (uintptr_t)Py_TYPE(object)};
    /* Of classes that a test defines: no module before their name. */
    const char *class_name = Py_TYPE(object)->tp_name;
    ml_slice type = {.bytes = class_name, .length = strlen(class_name)};
    uint32_t id = ml_stacks_object(stacks, key, &type);
    return PyLong_FromLong(ml_stacks_name_object(stacks, id, name, strlen(name)));
}

static PyObject *
probe_forget(PyObject *Py_UNUSED(self), PyObject *object)
{
    ml_stacks_forget_object(stacks, (uintptr_t)object);
    Py_RETURN_NONE;
}

/* Nanoseconds of one capture, the best of several rounds. */
static PyObject *
probe_time(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(args))
{
    double best = 1e30;
    uint8_t flags = 0;
    Py_BEGIN_ALLOW_THREADS
    for (int round = 0; round < 20; round++) {
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int i = 0; i < 20000; i++) {
            ml_frames_capture(stacks, &flags);
        }
        clock_gettime(CLOCK_MONOTONIC, &to);
        double ns = (double)(to.tv_sec - from.tv_sec) * 1e9 +
                    (double)(to.tv_nsec - from.tv_nsec);
        best = ns / 20000 < best ? ns / 20000 : best;
    }
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(best);
}

/* A thread that Python has never seen: its capture, as probe_capture gives it. */
typedef struct foreign {
    uint32_t id;
    uint8_t flags;
} foreign;

static void *
foreign_main(void *argument)
{
    foreign *result = argument;
    result->id = ml_frames_capture(stacks, &result->flags);
    return NULL;
}

static PyObject *
probe_capture_foreign(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(args))
{
    foreign result = {0, 0};
    pthread_t thread;
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = pthread_create(&thread, NULL, foreign_main, &result);
    if (error == 0) {
        pthread_join(thread, NULL);
    }
    Py_END_ALLOW_THREADS
    if (error != 0) {
        PyErr_SetString(PyExc_OSError, strerror(error));
        return NULL;
    }
    return Py_BuildValue("Ii", result.id, (int)result.flags);
}

/* Into tables that hold so many frames. */
static PyObject *
probe_capture_full(PyObject *Py_UNUSED(self), PyObject *nodes)
{
    ml_stacks_limits limits = {.nodes = PyLong_AsSize_t(nodes),
                               .codes = 99,
                               .strings = 999,
                               .objects = 9,
                               .text_bytes = 99999};
    ml_stacks *tiny;
    uint8_t flags = 0;
    if (ml_stacks_new(&tiny, &limits) < 0) {
        return PyErr_NoMemory();
    }
    uint32_t id = ml_frames_capture(tiny, &flags);
    ml_stacks_free(tiny);
    return Py_BuildValue("Ii", id, (int)flags);
}

#ifdef PROBE_HIDES_FRAMES
/* Stands in for PyEval_GetFrame in frames_public.c: public functions that disagree. */
PyFrameObject *
probe_no_frame(void)
{
    return NULL;
}
#endif

static PyObject *
text_object(const ml_recording *recording, uint32_t id)
{
    const ml_string *string = &recording->strings[id];
    return PyUnicode_DecodeUTF8(string->bytes, (Py_ssize_t)string->length,
                                "surrogatepass");
}

/* [(name, filename, line)], innermost first; with MODULES [(name, module)]. */
static PyObject *
resolve_to(PyObject *arg, int modules)
{
    unsigned long id = PyLong_AsUnsignedLong(arg);
    size_t count = ml_stacks_count(stacks);
    ml_recording *recording = NULL;
    uint32_t *map = NULL;
    PyObject *list = NULL;

    if (PyErr_Occurred() || id >= count) {
        return PyErr_Format(PyExc_ValueError, "no stack %R", arg);
    }
    map = calloc(count, sizeof(*map));
    if (map == NULL || ml_recording_new(&recording) < 0) {
        goto done;
    }
    map[id] = 1;
    int error = ml_stacks_resolve(stacks, recording, map, count, NULL);
    if (error == 0) {
        error = ml_recording_validate(recording);
    }
    if (error < 0) {
        PyErr_Format(PyExc_RuntimeError, "error %d", error);
        goto done;
    }
    list = PyList_New(0);
    for (uint32_t at = map[id]; at != 0 && list != NULL;
         at = recording->stacks[at].parent) {
        const ml_frame *frame = &recording->frames[recording->stacks[at].frame];
        uint32_t module = recording->stacks[at].module;
        PyObject *entry =
            modules ? Py_BuildValue("NN", text_object(recording, frame->name),
                                    text_object(recording, module))
                    : Py_BuildValue("NNL", text_object(recording, frame->name),
                                    text_object(recording, frame->filename),
                                    (long long)frame->line);
        if (entry == NULL || PyList_Append(list, entry) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(entry);
    }
done:
    free(map);
    ml_recording_free(recording);
    if (list == NULL && !PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    return list;
}

static PyObject *
probe_resolve(PyObject *Py_UNUSED(self), PyObject *arg)
{
    return resolve_to(arg, 0);
}

static PyObject *
probe_modules(PyObject *Py_UNUSED(self), PyObject *arg)
{
    return resolve_to(arg, 1);
}

/* The names are the program counters: indexes into a list. */
static int
name_from_list(void *context, const uint64_t *pcs, size_t count, ml_native_text *out)
{
    for (size_t i = 0; i < count; i++) {
        PyObject *name = PyList_GetItem(context, (Py_ssize_t)pcs[i]);
        out[i].name = name != NULL ? PyUnicode_AsUTF8(name) : NULL;
        if (out[i].name == NULL) {
            return ML_EINVALID;
        }
    }
    return 0;
}

/* splice(python, native) -> names: the mixed stack of two lists, innermost first. */
static PyObject *
probe_splice(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *python, *native;
    PyObject *list = NULL;
    ml_stacks *own = NULL;
    ml_recording *recording = NULL;
    uint32_t *map = NULL;
    uint32_t id = 0;

    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &python, &PyList_Type, &native)) {
        return NULL;
    }
    if (ml_stacks_new(&own, NULL) < 0 || ml_recording_new(&recording) < 0) {
        goto done;
    }
    for (Py_ssize_t i = PyList_Size(python); i-- > 0;) {
        Py_ssize_t length;
        const char *name = PyUnicode_AsUTF8AndSize(PyList_GetItem(python, i), &length);
        if (name == NULL) {
            goto done;
        }
        ml_frame_key key = {.code = 1 + (uint64_t)i};
        ml_code_text text = {.name = {.bytes = name, .length = (size_t)length}};
        id = ml_stacks_add(own, id, &key, &text);
    }
    for (Py_ssize_t i = PyList_Size(native); i-- > 0;) {
        id = ml_stacks_native(own, id, (uint64_t)i);
    }
    map = calloc((size_t)id + 1, sizeof(*map));
    if (map == NULL) {
        goto done;
    }
    map[id] = 1;
    ml_symbolizer symbolizer = {.context = native, .symbolize = name_from_list};
    if (ml_stacks_resolve(own, recording, map, (size_t)id + 1, &symbolizer) < 0) {
        goto done;
    }
    list = PyList_New(0);
    for (uint32_t at = map[id]; at != 0 && list != NULL;
         at = recording->stacks[at].parent) {
        const ml_frame *frame = &recording->frames[recording->stacks[at].frame];
        PyObject *name = text_object(recording, frame->name);
        if (name == NULL || PyList_Append(list, name) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(name);
    }
done:
    free(map);
    ml_recording_free(recording);
    ml_stacks_free(own);
    if (list == NULL && !PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    return list;
}

/* line(linetable, firstlineno, minor, offset) */
static PyObject *
probe_line(PyObject *Py_UNUSED(self), PyObject *args)
{
    Py_buffer table;
    long long first, offset;
    int minor;
    if (!PyArg_ParseTuple(args, "y*LiL", &table, &first, &minor, &offset)) {
        return NULL;
    }
    int64_t line =
        ml_linetable_line(table.buf, (size_t)table.len, first, minor, offset);
    PyBuffer_Release(&table);
    return PyLong_FromLongLong(line);
}

/* PyCode_Addr2Line(code, offset) */
static PyObject *
probe_python_line(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *code;
    int offset;
    if (!PyArg_ParseTuple(args, "O!i", &PyCode_Type, &code, &offset)) {
        return NULL;
    }
    return PyLong_FromLong(PyCode_Addr2Line((PyCodeObject *)code, offset));
}

static PyObject *
probe_supported(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(args))
{
    const char *reason = NULL;
    int supported = ml_frames_supported(&reason);
    return Py_BuildValue("iz", supported, reason);
}

static PyObject *
probe_count(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(args))
{
    return PyLong_FromUnsignedLong(ml_stacks_count(stacks));
}

static PyMethodDef methods[] = {
    {"capture", probe_capture, METH_NOARGS, "capture() -> (id, flags)"},
    {"capture_released", probe_capture_released, METH_NOARGS, "without the GIL"},
    {"capture_foreign", probe_capture_foreign, METH_NOARGS, "on a C thread"},
    {"capture_full", probe_capture_full, METH_O, "-> (id, flags)"},
    {"capture_both", probe_capture_both, METH_NOARGS, "-> (id, id, flags)"},
    {"follow", probe_follow, METH_O, "follow(code) -> bool"},
    {"name", probe_name, METH_VARARGS, "name(object, name) -> error"},
    {"forget", probe_forget, METH_O, "forget(object)"},
    {"resolve", probe_resolve, METH_O, "resolve(id) -> [(name, filename, line)]"},
    {"modules", probe_modules, METH_O, "modules(id) -> [(name, module)]"},
    {"splice", probe_splice, METH_VARARGS, "splice(python, native) -> names"},
    {"line", probe_line, METH_VARARGS, "line(table, firstlineno, minor, offset)"},
    {"python_line", probe_python_line, METH_VARARGS, "python_line(code, offset)"},
    {"supported", probe_supported, METH_NOARGS, "supported() -> (bool, reason)"},
    {"count", probe_count, METH_NOARGS, "count() -> stack ids in use"},
    {"time", probe_time, METH_NOARGS, "time() -> ns per capture"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = PROBE_NAME,
                                    .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC
PROBE_INIT(void)
{
    if (stacks == NULL && ml_stacks_new(&stacks, NULL) < 0) {
        return PyErr_NoMemory();
    }
    ml_frames_self_check();
    return PyModule_Create(&module);
}
