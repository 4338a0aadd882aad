/* The answer to "what is allocated that nobody is known to hold" as a Python dict; the
 * answer itself is core/analysis/answers/unheld.h's. */
#ifndef ML_PY_UNHELD_DICT_H
#define ML_PY_UNHELD_DICT_H

#include "state.h"

#include "core/analysis/answers/unheld.h"

/* A new dict, described in memlab/_answers/ as Unheld; NULL with an exception. */
PyObject *ml_py_unheld(const ml_unheld *unheld, bool recorded);

/* The module's function unheld. */
extern const char ml_py_unheld_now_doc[];
PyObject *ml_py_unheld_now(PyObject *module, PyObject *args);

#endif
