/* .mlab files, for Python. */
#ifndef ML_PY_MLAB_FILE_H
#define ML_PY_MLAB_FILE_H

#include "core/file/mlab/mlab_reader.h"
#include "state.h"

/* The recording in the .mlab file at PATH, bytes in the file system's encoding.
 * *ABOUT: new dict about the file's making.  NULL with OSError or
 * memlab.SnapshotError. */
ml_recording *ml_py_read_mlab(ml_state *state, PyObject *path, PyObject **about);

/* New dict from INFO.  LOCKED: a process has the file locked to write it.  NULL on
 * failure. */
PyObject *ml_py_about_mlab(const ml_mlab_info *info, bool locked);
/* Whether a process has the open file locked to write it. */
bool ml_py_mlab_locked(int descriptor);

#endif
