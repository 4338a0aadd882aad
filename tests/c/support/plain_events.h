/* The events of a device as an array, for tests that look at them. */
#ifndef ML_TEST_PLAIN_EVENTS_H
#define ML_TEST_PLAIN_EVENTS_H

#include <stdint.h>

#include "recording/recording.h"
#include "plain_events.h"

/* Those of TRACE, which are plain from now on. */
static inline ml_event *
plain_events(const ml_device_trace *trace)
{
    ml_device_trace *own = (ml_device_trace *)(uintptr_t)trace;
    return ml_events_unpack(&own->events, own->event_count);
}

#endif
