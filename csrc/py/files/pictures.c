/* Pictures of a recording.  See pictures.h. */
#include "files/pictures.h"

#include <string.h>

#include "core/base/base.h"
#include "core/show/draw/flame.h"
#include "core/show/draw/segments_page.h"
#include "core/show/draw/timeline_page.h"
#include "core/show/draw/timeline_svg.h"

/* The device index ARG; ML_ALL_DEVICES for None.  0, or -1 with an exception. */
static int
device_of(const ml_recording *recording, PyObject *arg, size_t *device)
{
    if (arg == Py_None) {
        *device = ML_ALL_DEVICES;
        return 0;
    }
    Py_ssize_t index = PyNumber_AsSsize_t(arg, PyExc_IndexError);
    if (index == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (index < 0 || (size_t)index >= recording->device_count) {
        PyErr_Format(PyExc_IndexError, "the recording has %zu devices, no %zd",
                     recording->device_count, index);
        return -1;
    }
    *device = (size_t)index;
    return 0;
}

/* The bytes of BUFFER, which is freed; NULL if RESULT is an error. */
static PyObject *
give(ml_state *state, int result, ml_buffer *buffer)
{
    PyObject *bytes = NULL;
    if (result < 0) {
        ml_py_raise(state, result, ml_strerror(result));
    }
    else {
        bytes = PyBytes_FromStringAndSize(buffer->bytes, (Py_ssize_t)buffer->length);
    }
    ml_buffer_fini(buffer);
    return bytes;
}

static int
what_of(const char *name, enum ml_flame_what *what)
{
    if (strcmp(name, "segments") == 0) {
        *what = ML_FLAME_SEGMENTS;
        return 0;
    }
    if (strcmp(name, "memory") == 0) {
        *what = ML_FLAME_MEMORY;
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "what must be \"segments\" or \"memory\", not '%s'",
                 name);
    return -1;
}

PyObject *
ml_py_flame(ml_state *state, const ml_recording *recording, bool folded, PyObject *args,
            PyObject *kwargs)
{
    static char *keywords[] = {"what", "device", NULL};
    const char *name;
    PyObject *arg = Py_None;
    size_t device;
    enum ml_flame_what what;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs,
                                     folded ? "s|O:flame_folded" : "s|O:flame_svg",
                                     keywords, &name, &arg) ||
        what_of(name, &what) < 0 || device_of(recording, arg, &device) < 0) {
        return NULL;
    }
    ml_buffer buffer = {0};
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = folded ? ml_flame_folded(recording, device, what, &buffer)
                    : ml_flame_svg(recording, device, what, &buffer);
    Py_END_ALLOW_THREADS
    return give(state, result, &buffer);
}

PyObject *
ml_py_flame_difference(ml_state *state, const ml_recording *before,
                       const ml_recording *after, bool folded)
{
    ml_buffer buffer = {0};
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = folded ? ml_flame_folded_difference(before, after, &buffer)
                    : ml_flame_difference(before, after, &buffer);
    Py_END_ALLOW_THREADS
    return give(state, result, &buffer);
}

PyObject *
ml_py_segments_page(ml_state *state, const ml_recording *recording, PyObject *args,
                    PyObject *kwargs)
{
    static char *keywords[] = {"device", NULL};
    PyObject *arg = Py_None;
    size_t device;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:segments_page", keywords,
                                     &arg) ||
        device_of(recording, arg, &device) < 0) {
        return NULL;
    }
    ml_buffer buffer = {0};
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_segments_page_write(recording, device, &buffer);
    Py_END_ALLOW_THREADS
    return give(state, result, &buffer);
}

PyObject *
ml_py_timeline_page(ml_state *state, const ml_recording *recording, PyObject *args,
                    PyObject *kwargs)
{
    static char *keywords[] = {"device", "title", NULL};
    PyObject *arg = Py_None;
    PyObject *title = NULL;
    size_t device;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OU:timeline_page", keywords, &arg,
                                     &title) ||
        device_of(recording, arg, &device) < 0) {
        return NULL;
    }
    PyObject *text = title != NULL
                         ? PyUnicode_AsEncodedString(title, "utf-8", "surrogatepass")
                         : PyBytes_FromString("Memory by category");
    if (text == NULL) {
        return NULL;
    }
    ml_buffer buffer = {0};
    const char *bytes = PyBytes_AS_STRING(text);
    size_t length = (size_t)PyBytes_GET_SIZE(text);
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_timeline_page_write(recording, device, bytes, length, &buffer);
    Py_END_ALLOW_THREADS
    Py_DECREF(text);
    return give(state, result, &buffer);
}

PyObject *
ml_py_text(ml_state *state, const ml_recording *recording,
           int (*write)(const ml_recording *recording, ml_buffer *out))
{
    ml_buffer buffer = {0};
    PyObject *text = NULL;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = write(recording, &buffer);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        ml_py_raise(state, result, ml_strerror(result));
    }
    else {
        text = PyUnicode_DecodeUTF8(buffer.bytes, (Py_ssize_t)buffer.length, "strict");
    }
    ml_buffer_fini(&buffer);
    return text;
}

PyObject *
ml_py_timeline_svg(ml_state *state, const ml_recording *recording, size_t device)
{
    ml_buffer buffer = {0};
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_timeline_svg(recording, device, &buffer);
    Py_END_ALLOW_THREADS
    return give(state, result, &buffer);
}

PyObject *
ml_py_stacks(ml_state *state, const ml_recording *recording, PyObject *arg,
             int (*write)(const ml_recording *recording, size_t device, ml_buffer *out))
{
    size_t device;
    if (device_of(recording, arg, &device) < 0) {
        return NULL;
    }
    ml_buffer buffer = {0};
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = write(recording, device, &buffer);
    Py_END_ALLOW_THREADS
    return give(state, result, &buffer);
}
