/* Finds the event of an instant, for Python.  See instant_event.h. */
#include "dicts/instant_event.h"

#include "core/analysis/answers/instant.h"
#include "core/base/base.h"

/* Sets *OUT to ARG, a non-negative int.  0 or -1 with an exception. */
static int
number_of(PyObject *arg, uint64_t *out)
{
    PyObject *index = PyNumber_Index(arg);
    if (index == NULL) {
        return -1;
    }
    *out = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    return *out == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

PyObject *
ml_py_event_at(const ml_recording *recording, size_t device, PyObject *time)
{
    uint64_t given;
    if (number_of(time, &given) < 0) {
        return NULL;
    }
    uint64_t length;
    int64_t event;
    Py_BEGIN_ALLOW_THREADS
    length = ml_instant_length(recording);
    event = ml_instant_at(recording, device, given);
    Py_END_ALLOW_THREADS
    if (given > length) {
        return PyErr_Format(PyExc_ValueError,
                            "the recording ends %llu.%06llu s after its first event",
                            (unsigned long long)(length / 1000000),
                            (unsigned long long)(length % 1000000));
    }
    return PyLong_FromLongLong(event);
}

PyObject *
ml_py_event_in_step(ml_state *state, const ml_recording *recording, size_t device,
                    PyObject *step)
{
    uint64_t given;
    if (number_of(step, &given) < 0) {
        return NULL;
    }
    size_t own = device;
    const ml_recording *part = ml_recording_part(recording, &own);
    int64_t event;
    ml_instant_steps steps;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ml_instant_in_step(part, own, given, &event, &steps);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return ml_py_raise(state, result, ml_strerror(result));
    }
    if (event != ML_INSTANT_NO_STEP) {
        return PyLong_FromLongLong(event);
    }
    return PyErr_Format(PyExc_ValueError,
                        "no event in step %llu: there are steps %u to %u",
                        (unsigned long long)given, steps.first, steps.last);
}
