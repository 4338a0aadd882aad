/* The answer to "why was it out of memory" as a Python dict.
 *
 * Owns the keys in docs/REPORT.md; oom.h owns the figures. */
#ifndef ML_PY_OOM_DICT_H
#define ML_PY_OOM_DICT_H

#include "core/recording/recording.h"
#include "state.h"

/* New reference: a dict about the last OOM of DEVICE, which must exist in RECORDING, or
 * None; NULL with MemoryError. */
PyObject *ml_py_oom(ml_state *state, const ml_recording *recording, int device);

#endif
