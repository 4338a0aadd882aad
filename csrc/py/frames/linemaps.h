/* What torch.compile says of the files that it writes; see linemaps.c. */
#ifndef ML_LINEMAPS_H
#define ML_LINEMAPS_H

#include "state.h"

extern const char ml_linemaps_take_doc[];
PyObject *ml_linemaps_take(PyObject *module, PyObject *linemaps);

#endif
