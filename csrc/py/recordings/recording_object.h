/* What a Recording wraps, as an object.
 *
 * Owns an ml_recording, which never changes once wrapped; state.h has the functions.  The
 * methods are recording_type.c's. */
#ifndef ML_PY_RECORDING_OBJECT_H
#define ML_PY_RECORDING_OBJECT_H

#include "core/recording/recording.h"
#include "state.h"

typedef struct ml_recording_object {
    PyObject_HEAD
    ml_recording *recording; /* owned */
    PyObject *file;          /* dict of what its file tells; NULL: not such a file */
} ml_recording_object;

/* Of OP, which is a Recording. */
static inline const ml_recording *
ml_recording_of(PyObject *op)
{
    return ((ml_recording_object *)op)->recording;
}

/* The device index ARG; -1 with IndexError for one that the recording does not have. */
Py_ssize_t ml_recording_device_of(const ml_recording *recording, PyObject *arg);

#endif
