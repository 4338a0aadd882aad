/* Files that are written while a recording is made, as Python sees them. */
#ifndef ML_PY_MLAB_FILE_H
#define ML_PY_MLAB_FILE_H

#include "state.h"

struct ml_recording;

/* The recording in the .mlab file at PATH, a bytes object of the file system's encoding,
 * and in *ABOUT a new dict of what the file tells of its making.  NULL with an exception:
 * OSError, or memlab.SnapshotError. */
struct ml_recording *ml_py_read_mlab(ml_state *state, PyObject *path, PyObject **about);

#endif
