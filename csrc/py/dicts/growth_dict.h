/* The answer to "which lines leave memory behind step by step" as a Python dict; the answer
 * itself is core/analysis/answers/growth.h's. */
#ifndef ML_PY_GROWTH_DICT_H
#define ML_PY_GROWTH_DICT_H

#include "core/analysis/answers/growth.h"
#include "state.h"

/* DICT gets what is known of GROWING beside its bytes; NULL: of nothing.  0, or -1 with an
 * exception. */
int ml_py_set_growing(PyObject *dict, const ml_recording *recording,
                      const ml_growing *growing);
/* DICT gets the line, the model's own line, the module and how these are known.  Likewise. */
int ml_py_set_cause(PyObject *dict, const ml_recording *recording,
                    const ml_cause *cause);

/* A new dict, described in memlab/_answers/ as Growth; NULL with an exception.  It runs
 * without the GIL in between. */
PyObject *ml_py_growth(ml_state *state, const ml_recording *recording, int device);

#endif
