/* The answer to "what to change" as a Python dict.
 *
 * Owns its keys, those of memlab/_answers/; all figures are advice.h's. */
#ifndef ML_PY_ADVICE_DICT_H
#define ML_PY_ADVICE_DICT_H

#include "core/recording/recording.h"
#include "state.h"

/* New reference: advice on DEVICE, which must exist in RECORDING, for MEMORY bytes, an int
 * or None.  Raises ValueError for what is no size, memlab.Error for a device whose
 * allocator has no segments, MemoryError. */
PyObject *ml_py_advice(ml_state *state, const ml_recording *recording, int device,
                       PyObject *memory);

#endif
