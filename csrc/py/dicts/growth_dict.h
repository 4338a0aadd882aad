/* The answer to "which lines leave memory behind step by step" as a Python dict;
 * core/analysis/answers/growth.h has the answer. */
#ifndef ML_PY_GROWTH_DICT_H
#define ML_PY_GROWTH_DICT_H

#include "core/analysis/answers/growth.h"
#include "state.h"

/* Adds the facts about GROWING to DICT, without its bytes; NULL: none.  0, or -1 with
 * an exception. */
int ml_py_set_growing(PyObject *dict, const ml_recording *recording,
                      const ml_growing *growing);
/* New dict of the model's own line, None where the line of CAUSE is that; NULL with an
 * exception. */
PyObject *ml_py_inner(const ml_recording *recording, const ml_cause *cause);
/* DICT gets the line, the model's own line, the module and how these are known.  Likewise. */
int ml_py_set_cause(PyObject *dict, const ml_recording *recording,
                    const ml_cause *cause);

/* New dict, documented in memlab/_answers/ as Growth; NULL with an exception.  Releases
 * the GIL while it computes. */
PyObject *ml_py_growth(ml_state *state, const ml_recording *recording, int device);

#endif
