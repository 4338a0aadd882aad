/* What a trial of a recorded run came to, as Python dicts. */
#ifndef ML_PY_TRIAL_DICT_H
#define ML_PY_TRIAL_DICT_H

#include "../core/recording.h"
#include "state.h"

/* What would have come of DEVICE under CONF, a str or None, with MEMORY bytes, an int or
 * None, as a dict.  Raises ValueError for what torch would not take, memlab.Error for a
 * device whose allocator has no segments, MemoryError. */
PyObject *ml_py_replay(ml_state *state, const ml_recording *recording, int device,
                       PyObject *conf, PyObject *memory);

#endif
