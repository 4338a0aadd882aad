/* The driver of a trial: gives the allocator's model memory, where a placement puts it or
 * where the recording had it.
 *
 * Owns how much memory there is and where, and whether the model took and gave back
 * segments as the recording did. */
#ifndef ML_TRIAL_DRIVER_H
#define ML_TRIAL_DRIVER_H

#include "base/ranges.h"
#include "gpu/placement.h"
#include "lab/simulator/allocator.h"
#include "lab/whatif/trial.h"

typedef struct ml_trial_driver {
    const ml_trial_options *options; /* borrowed */
    const ml_device_trace *trace;    /* borrowed */
    size_t placed;                   /* in the two that follow */
    ml_placement *segments;          /* owned */
    ml_placement *spaces;            /* owned; of expandable segments */
    uint64_t used;                   /* bytes given */
    uint64_t calls;
    int error; /* 0, ML_ENOMEM, or ML_ELIMIT: more segments than any device has */
    /* Of recorded addresses: the events of segments from NEXT to below UNTIL are what the
     * model is to do in the present step. */
    size_t next;
    ml_event expected; /* the next of them */
    size_t until;
    bool failing;      /* the step failed in the recording */
    unsigned refusals; /* in the step */
    uint64_t mismatched_segments;
    ml_ranges
        taken; /* owned; memory at recorded addresses, which a file may have overlap */
} ml_trial_driver;

/* 0 or ML_ENOMEM; what fails leaves nothing to take down. */
int ml_trial_driver_init(ml_trial_driver *driver, const ml_workload *workload,
                         const ml_trial_options *options);
void ml_trial_driver_fini(ml_trial_driver *driver);

/* SEGMENT is there before the first step: 1, or 0 where it overlaps another, or an error
 * as above. */
int ml_trial_driver_seed(ml_trial_driver *driver, const ml_segment *segment);

/* What the model is given; it lives as long as DRIVER. */
ml_allocator_driver ml_trial_driver_table(ml_trial_driver *driver);

/* A step of the model begins which in the recording came before event UNTIL and, with
 * FAILING, failed there; and ends. */
void ml_trial_driver_begin(ml_trial_driver *driver, size_t until, bool failing);
void ml_trial_driver_end(ml_trial_driver *driver);

#endif
