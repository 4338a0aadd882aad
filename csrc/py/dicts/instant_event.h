/* Which event an instant is, for Python: the words for those that a recording has not.
 *
 * The rules are instant.h's. */
#ifndef ML_PY_INSTANT_EVENT_H
#define ML_PY_INSTANT_EVENT_H

#include "core/recording/recording.h"
#include "state.h"

/* Each gives the index of an event of DEVICE, which exists, as an int, or NULL with
 * ValueError for an instant that RECORDING does not have, or what the argument's conversion
 * raises. */
PyObject *ml_py_event_at(const ml_recording *recording, size_t device, PyObject *time);
PyObject *ml_py_event_in_step(ml_state *state, const ml_recording *recording,
                              size_t device, PyObject *step);

#endif
