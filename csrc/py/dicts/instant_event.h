/* The event of an instant, for Python, and the errors for instants that a recording
 * lacks.
 *
 * instant.h has the rules. */
#ifndef ML_PY_INSTANT_EVENT_H
#define ML_PY_INSTANT_EVENT_H

#include "core/recording/recording.h"
#include "state.h"

/* Each returns the index of an event of DEVICE, which must exist, as an int.  NULL with
 * ValueError for an instant that RECORDING lacks, or the error of the argument's
 * conversion. */
PyObject *ml_py_event_at(const ml_recording *recording, size_t device, PyObject *time);
PyObject *ml_py_event_in_step(ml_state *state, const ml_recording *recording,
                              size_t device, PyObject *step);

#endif
