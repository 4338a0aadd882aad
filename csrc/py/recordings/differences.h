/* A recording beside another: methods of memlab._core.Recording.
 *
 * Owns reading their arguments; what they say is said by dicts/difference_dict.h. */
#ifndef ML_PY_DIFFERENCES_H
#define ML_PY_DIFFERENCES_H

#include "state.h"

extern const char ml_recording_difference_doc[];
PyObject *ml_recording_difference(PyObject *op, PyObject *args, PyObject *kwargs);
extern const char ml_recording_difference_page_doc[];
PyObject *ml_recording_difference_page(PyObject *op, PyObject *args, PyObject *kwargs);

#endif
