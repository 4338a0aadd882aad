/* The last request that failed, and what a backward pass that it ended left behind. */
#ifndef ML_FAILED_PASS_H
#define ML_FAILED_PASS_H

#include "analysis/attribution/category.h"

typedef struct ml_failed_pass {
    uint64_t events; /* up to and with the failed request; 0: none failed */
    bool backward;   /* in a backward pass */
    uint64_t *sizes; /* owned; of parameters, sorted; only where BACKWARD */
    size_t count;
} ml_failed_pass;

/* The events of TRACE up to and with its last failed request; 0: none failed. */
uint64_t ml_failed_events(const ml_device_trace *trace);

/* LIFETIMES are those of DEVICE of RECORDING.  0 or ML_ENOMEM, with nothing to free. */
int ml_failed_pass_init(ml_failed_pass *pass, const ml_causes *causes,
                        const ml_recording *recording, size_t device,
                        const ml_lifetimes *lifetimes);
void ml_failed_pass_fini(ml_failed_pass *pass);

/* Whether SIZE is that of a parameter, and so of its gradient. */
bool ml_failed_pass_has_parameter(const ml_failed_pass *pass, uint64_t size);

#endif
