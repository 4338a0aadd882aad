/* The requests that failed, and what a backward pass that one ended left behind. */
#ifndef ML_FAILED_PASS_H
#define ML_FAILED_PASS_H

#include "analysis/attribution/category.h"

typedef struct ml_failed_pass {
    uint64_t events; /* up to and with the failed request */
    bool backward;   /* in a backward pass */
} ml_failed_pass;

typedef struct ml_failed_passes {
    ml_failed_pass *of; /* owned; the last first */
    size_t count;
    size_t capacity;
    uint64_t
        *sizes; /* owned; of parameters, sorted; only if one was in a backward pass */
    size_t size_count;
} ml_failed_passes;

/* The events of TRACE up to and with its last failed request; 0: none failed. */
uint64_t ml_failed_events(const ml_device_trace *trace);

/* LIFETIMES are those of DEVICE of RECORDING.  0 or ML_ENOMEM; free them in any case. */
int ml_failed_passes_init(ml_failed_passes *passes, const ml_causes *causes,
                          const ml_recording *recording, size_t device,
                          const ml_lifetimes *lifetimes);
void ml_failed_passes_fini(ml_failed_passes *passes);

/* Of the failed requests while LIFE was allocated the first; NULL: none. */
const ml_failed_pass *ml_failed_passes_during(const ml_failed_passes *passes,
                                              const ml_lifetime *life);

/* Whether SIZE is that of a parameter, and so of its gradient. */
bool ml_failed_passes_have_parameter(const ml_failed_passes *passes, uint64_t size);

#endif
