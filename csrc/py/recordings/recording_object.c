/* Wraps an ml_recording in a Python object.  See recording_object.h. */
#include "recordings/recording_object.h"

#include "core/base/base.h"
#include "core/lab/verdict/run_verdict.h"

PyObject *
ml_recording_wrap(ml_state *state, ml_recording *recording)
{
    PyTypeObject *type = (PyTypeObject *)state->recording_type;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    ml_recording_object *self = (ml_recording_object *)allocate(type, 0);
    if (self == NULL) {
        ml_recording_free(recording);
        return NULL;
    }
    self->recording = recording;
    return (PyObject *)self;
}

PyObject *
ml_recording_wrap_file(ml_state *state, ml_recording *recording, PyObject *about)
{
    PyObject *wrapped = ml_recording_wrap(state, recording);
    if (wrapped == NULL) {
        Py_DECREF(about);
        return NULL;
    }
    ((ml_recording_object *)wrapped)->file = about;
    return wrapped;
}

const ml_recording *
ml_recording_behind(ml_state *state, PyObject *op)
{
    return PyObject_TypeCheck(op, (PyTypeObject *)state->recording_type)
               ? ((ml_recording_object *)op)->recording
               : NULL;
}

Py_ssize_t
ml_recording_device_of(const ml_recording *recording, PyObject *arg)
{
    if (!PyIndex_Check(arg)) {
        PyErr_Format(PyExc_TypeError, "a device is its index in the recording, not %R",
                     arg);
        return -1;
    }
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

const ml_run_verdict *
ml_recording_verdict_of(PyObject *op, size_t device, bool trials, int *error)
{
    ml_recording_object *self = (ml_recording_object *)op;
    if (self->verdicts == NULL) {
        self->verdicts =
            ml_alloc_zeroed(2 * self->recording->device_count, sizeof(*self->verdicts));
    }
    if (self->verdicts == NULL) {
        *error = ML_ENOMEM;
        return NULL;
    }
    ml_run_verdict **kept = &self->verdicts[2 * device + trials];
    if (*kept == NULL) {
        ml_run_verdict *made = NULL;
        Py_BEGIN_ALLOW_THREADS
        *error = ml_run_verdict_new(self->recording, device, trials, &made);
        Py_END_ALLOW_THREADS
        if (*kept == NULL) {
            *kept = made;
        }
        else {
            ml_run_verdict_free(made);
        }
    }
    return *kept;
}

void
ml_recording_drop_verdicts(PyObject *op)
{
    ml_recording_object *self = (ml_recording_object *)op;
    for (size_t i = 0; self->verdicts != NULL && i < 2 * self->recording->device_count;
         i++) {
        ml_run_verdict_free(self->verdicts[i]);
    }
    ml_free(self->verdicts);
    self->verdicts = NULL;
}
