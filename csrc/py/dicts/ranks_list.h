/* The ranks of a recording as Python objects.
 *
 * Owns the keys in docs/REPORT.md; merge.h owns the figures. */
#ifndef ML_PY_RANKS_LIST_H
#define ML_PY_RANKS_LIST_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core/recording/recording.h"

/* A new list of dicts, by rank; or NULL with MemoryError. */
PyObject *ml_py_ranks(const ml_recording *recording);

#endif
