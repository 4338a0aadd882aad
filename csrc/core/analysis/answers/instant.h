/* Which event of a device an instant is: by time, or as the peak within a step.
 *
 * Owns how these are told from the events; a function of a recording.  What was live there
 * is peak.h's, what a step is cause.h's. */
#ifndef ML_INSTANT_H
#define ML_INSTANT_H

#include "recording/recording.h"

/* The unix time (us) of the earliest event of any device, from which people count; 0
 * without events. */
uint64_t ml_instant_base(const ml_recording *recording);
/* How long after that the latest event of any device was, in us. */
uint64_t ml_instant_length(const ml_recording *recording);

/* The event of DEVICE, which exists, before the first that is later than TIME (us after the
 * base), as clocks may be set back; the last where none is, -1 where the first is. */
int64_t ml_instant_at(const ml_recording *recording, size_t device, uint64_t time);

/* The steps in which the devices of a recording have events. */
typedef struct ml_instant_steps {
    uint32_t first, last; /* numbers */
} ml_instant_steps;

#define ML_INSTANT_NO_STEP INT64_MIN

/* Into *EVENT the first of the events of STEP of DEVICE after which most was allocated.
 * Where only other devices have events in that step, nothing happened to this one: then the
 * last event of an earlier step, -1 without one.  ML_INSTANT_NO_STEP: no device has any in
 * it.  *STEPS is of the events of all devices; where there are none, 0 to 0.  RECORDING is
 * not merged, or a part of one that is.  0, ML_EINVALID for a DEVICE that it does not have,
 * or ML_ENOMEM. */
int ml_instant_in_step(const ml_recording *recording, size_t device, uint64_t step,
                       int64_t *event, ml_instant_steps *steps);

#endif
