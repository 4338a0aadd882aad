/* Recordings of several ranks as Python objects: merging them, who they are, and why one
 * peak is higher than another.
 *
 * Owns the keys of docs/REPORT.md; all figures are merge.h's and difference.h's. */
#ifndef ML_PY_MERGE_DICT_H
#define ML_PY_MERGE_DICT_H

#include "../core/recording.h"
#include "state.h"

/* The module's function merge. */
extern const char ml_py_merge_doc[];
PyObject *ml_py_merge(PyObject *module, PyObject *items);

/* New references, or NULL with MemoryError.  Devices must exist. */
PyObject *ml_py_ranks(const ml_recording *recording);
PyObject *ml_py_difference(ml_state *state, const ml_recording *of_before,
                           size_t before, const ml_recording *of_after, size_t after);

#endif
