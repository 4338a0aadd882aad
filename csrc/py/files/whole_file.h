/* Files that appear whole or not at all, for Python.
 *
 * Owns the translation of outfile.h's errors, and the module's function write_file. */
#ifndef ML_PY_WHOLE_FILE_H
#define ML_PY_WHOLE_FILE_H

#include "core/base/system/outfile.h"
#include "state.h"

/* Writes the file at PATH (str, bytes or os.PathLike) by WRITE, which runs without the
 * GIL and returns 0 or ML_E*.  None, or NULL with OSError for the system's error. */
PyObject *ml_py_write_whole(ml_state *state, PyObject *path,
                            int (*write)(void *context, ml_outfile *file),
                            void *context);

extern const char ml_write_file_doc[];
PyObject *ml_write_file(PyObject *module, PyObject *args);

#endif
