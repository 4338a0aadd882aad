/* The answer to "what to change" as a Python dict.
 *
 * Owns its keys, which memlab/_answers/ documents; advice.h owns the figures. */
#ifndef ML_PY_ADVICE_DICT_H
#define ML_PY_ADVICE_DICT_H

#include "core/lab/advice/advice.h"
#include "core/recording/recording.h"
#include "state.h"

/* New reference: advice on DEVICE, which must exist in RECORDING, for MEMORY bytes (int
 * or None).  Raises ValueError for an invalid size, memlab.Error for a device whose
 * allocator has no segments, MemoryError. */
PyObject *ml_py_advice(ml_state *state, const ml_recording *recording, int device,
                       PyObject *memory);

/* New reference: item INDEX of ADVICES, as in that list; NULL with an exception. */
PyObject *ml_py_advice_item(const ml_recording *recording, const ml_advices *advices,
                            size_t index);

#endif
