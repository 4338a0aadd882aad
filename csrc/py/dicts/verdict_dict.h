/* The verdict on a run as a Python dict.
 *
 * Owns its keys, those of memlab/_answers/; all figures are run_verdict.h's. */
#ifndef ML_PY_VERDICT_DICT_H
#define ML_PY_VERDICT_DICT_H

#include "core/recording/recording.h"
#include "state.h"

/* New reference: the verdict on DEVICE, which must exist in RECORDING, with TRIALS of changes
 * or without.  Raises MemoryError. */
PyObject *ml_py_verdict(ml_state *state, const ml_recording *recording, int device,
                        bool trials);

#endif
