/* The text of code lines, requested from Python and returned to it. */
#ifndef ML_PY_CODE_LINES_H
#define ML_PY_CODE_LINES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core/recording/recording.h"

/* Calls READ with a list of (file, function, line, user) of RECORDING's Python frames.
 * Adds the code lines that READ returns: (index in that list, text, qualname, first
 * line, last line, unix us of the file's last change) each.  0, or -1 with an
 * exception. */
int ml_py_ask_code(ml_recording *recording, PyObject *read);

/* New list of (file, function, line, text, qualname, first line, last line, changed);
 * NULL with an exception. */
PyObject *ml_py_code_lines(const ml_recording *recording);

#endif
