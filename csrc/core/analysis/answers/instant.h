/* Finds the event of a device for an instant: by time, or as the peak within a step.
 *
 * A function of a recording. peak.h finds the live blocks there; cause.h defines
 * steps. */
#ifndef ML_INSTANT_H
#define ML_INSTANT_H

#include "recording/recording.h"

/* The unix time (us) of the earliest event of any device: shown times count from it.  0
 * without events. */
uint64_t ml_instant_base(const ml_recording *recording);
/* The time from there to the latest event of any device, in us. */
uint64_t ml_instant_length(const ml_recording *recording);

/* The event of DEVICE, which exists, before the first event later than TIME (us after
 * the base): clocks may be set back.  The last event if none is later, -1 if the first
 * is. */
int64_t ml_instant_at(const ml_recording *recording, size_t device, uint64_t time);

/* The steps in which the devices of a recording have events. */
typedef struct ml_instant_steps {
    uint32_t first, last; /* numbers */
} ml_instant_steps;

#define ML_INSTANT_NO_STEP INT64_MIN

/* *EVENT is the event of DEVICE in STEP after which most was allocated, the first of
 * equal ones.  If only other devices have events in that step, it is the last event of
 * an earlier step, -1 without one.  ML_INSTANT_NO_STEP: no device has an event in it.
 * *STEPS is of the events of all devices; without events, 0 to 0.  RECORDING is not
 * merged, or a part of a merged one.  0, ML_EINVALID for a DEVICE that it does not
 * have, or ML_ENOMEM. */
int ml_instant_in_step(const ml_recording *recording, size_t device, uint64_t step,
                       int64_t *event, ml_instant_steps *steps);

#endif
