/* A recording compared with another: methods of memlab._core.Recording.
 *
 * Owns their arguments; dicts/difference_dict.h makes the answers. */
#ifndef ML_PY_DIFFERENCES_H
#define ML_PY_DIFFERENCES_H

#include "state.h"

extern const char ml_recording_difference_doc[];
PyObject *ml_recording_difference(PyObject *op, PyObject *args, PyObject *kwargs);
extern const char ml_recording_difference_page_doc[];
PyObject *ml_recording_difference_page(PyObject *op, PyObject *args, PyObject *kwargs);

#endif
