/* Results of a recorded run's trials as Python dicts. */
#ifndef ML_PY_TRIAL_DICT_H
#define ML_PY_TRIAL_DICT_H

#include "core/recording/recording.h"
#include "state.h"

/* A dict: the run on DEVICE under CONF (str or None) with MEMORY bytes (int or None).
 * Raises ValueError for settings that torch would refuse, memlab.Error for a device
 * whose allocator has no segments, MemoryError. */
PyObject *ml_py_replay(ml_state *state, const ml_recording *recording, int device,
                       PyObject *conf, PyObject *memory);

/* Shared by answers from trials.  A list of the doubts in DOUBTS, bits by enum
 * ml_doubt; new reference or NULL. */
PyObject *ml_py_doubts(uint32_t doubts);
/* Sets *OUT to MEMORY, an int above 0, in bytes; UINT64_MAX for None.  0, or -1 with an
 * exception. */
int ml_py_memory(PyObject *memory, uint64_t *out);
/* Sets the exception for ERROR of a trial; PROBLEM is a sentence on settings, or "".
 * Returns NULL. */
PyObject *ml_py_raise_trial(ml_state *state, int error, const char *problem);

/* The settings with which DEVICE would have reserved least, with MEMORY as above, as a dict.
 * Raises as above. */
PyObject *ml_py_tune(ml_state *state, const ml_recording *recording, int device,
                     PyObject *memory);

#endif
