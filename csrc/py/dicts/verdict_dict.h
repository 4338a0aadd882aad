/* The verdict on a run as a Python dict.
 *
 * Owns its keys, which memlab/_answers/ documents; run_verdict.h owns the figures. */
#ifndef ML_PY_VERDICT_DICT_H
#define ML_PY_VERDICT_DICT_H

#include "core/lab/verdict/run_verdict.h"
#include "state.h"

/* New reference: VERDICT on DEVICE of RECORDING; NULL with an exception set. */
PyObject *ml_py_verdict(const ml_recording *recording, int device,
                        const ml_run_verdict *verdict);

#endif
