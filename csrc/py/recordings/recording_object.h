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

#endif
