/* The difference of two devices' memory, as a Python dict and as a page.
 *
 * Owns the keys in docs/REPORT.md; difference.h owns the figures. */
#ifndef ML_PY_DIFFERENCE_DICT_H
#define ML_PY_DIFFERENCE_DICT_H

#include "core/compare/diff/difference.h"
#include "state.h"

/* New reference; NULL with MemoryError, or IndexError for a position beyond the
 * recording.  Devices must exist. */
PyObject *ml_py_difference(ml_state *state, const ml_difference_ask *ask);
/* The same as bytes of HTML; TITLE and SAID are str.  ValueError if one is too long. */
PyObject *ml_py_difference_page(ml_state *state, const ml_difference_ask *ask,
                                PyObject *title, PyObject *said);

#endif
