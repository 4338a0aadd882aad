/* The object behind a Recording: an ml_recording, which never changes once wrapped, and
 * the verdicts computed so far.  state.h has the functions, recording_type.c the
 * methods. */
#ifndef ML_PY_RECORDING_OBJECT_H
#define ML_PY_RECORDING_OBJECT_H

#include "core/recording/recording.h"
#include "state.h"

typedef struct ml_recording_object {
    PyObject_HEAD
    ml_recording *recording; /* owned */
    PyObject *file;          /* dict about its file; NULL: not from a .mlab file */
    /* Owned; by device, the verdict without trials, then with; NULL: not computed.
     * Guarded by the GIL. */
    struct ml_run_verdict **verdicts;
} ml_recording_object;

/* Of OP, which is a Recording. */
static inline const ml_recording *
ml_recording_of(PyObject *op)
{
    return ((ml_recording_object *)op)->recording;
}

/* The verdict on DEVICE, which must exist, with or without TRIALS of changes; it lives
 * as long as OP, a Recording.  NULL with *ERROR, from ml_run_verdict_new(). */
const struct ml_run_verdict *ml_recording_verdict_of(PyObject *op, size_t device,
                                                     bool trials, int *error);
/* Frees all verdicts of OP. */
void ml_recording_drop_verdicts(PyObject *op);

/* The device index ARG; -1 with IndexError if the recording lacks it. */
Py_ssize_t ml_recording_device_of(const ml_recording *recording, PyObject *arg);

#endif
