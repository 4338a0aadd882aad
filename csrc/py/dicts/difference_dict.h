/* What of one device's memory is more than of another's, as a Python dict and as a page.
 *
 * Owns the keys of docs/REPORT.md; all figures are difference.h's. */
#ifndef ML_PY_DIFFERENCE_DICT_H
#define ML_PY_DIFFERENCE_DICT_H

#include "core/compare/diff/difference.h"
#include "state.h"

/* A new reference, or NULL with MemoryError, or IndexError for a position that a recording
 * does not have.  Devices must exist. */
PyObject *ml_py_difference(ml_state *state, const ml_difference_ask *ask);
/* Likewise, bytes; TITLE and SAID are str.  ValueError for one that is too long. */
PyObject *ml_py_difference_page(ml_state *state, const ml_difference_ask *ask,
                                PyObject *title, PyObject *said);

#endif
