/* Files that are written while a recording is made, as Python sees them. */
#ifndef ML_PY_MLAB_FILE_H
#define ML_PY_MLAB_FILE_H

#include "core/file/mlab/mlab_reader.h"
#include "state.h"

/* The recording in the .mlab file at PATH, a bytes object of the file system's encoding,
 * and in *ABOUT a new dict of what the file tells of its making.  NULL with an exception:
 * OSError, or memlab.SnapshotError. */
ml_recording *ml_py_read_mlab(ml_state *state, PyObject *path, PyObject **about);

/* What INFO tells, as a dict, of a file that a process has LOCKED to write it: new
 * reference, or NULL. */
PyObject *ml_py_about_mlab(const ml_mlab_info *info, bool locked);
/* Whether a process holds the open file to write it. */
bool ml_py_mlab_locked(int descriptor);

#endif
