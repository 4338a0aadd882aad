/* Recordings of several ranks as Python objects: merging them, and who they are.
 *
 * Owns the keys of docs/REPORT.md; all figures are merge.h's. */
#ifndef ML_PY_MERGE_DICT_H
#define ML_PY_MERGE_DICT_H

#include "core/recording/recording.h"
#include "state.h"

/* The module's function merge. */
extern const char ml_py_merge_doc[];
PyObject *ml_py_merge(PyObject *module, PyObject *items);

/* A new reference, or NULL with MemoryError. */
PyObject *ml_py_ranks(const ml_recording *recording);

#endif
