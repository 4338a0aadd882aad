/* The driver of a trial: gives the model memory at placed or recorded addresses.
 *
 * Owns the amount and place of memory, and whether the model took and gave back
 * segments as recorded. */
#ifndef ML_TRIAL_DRIVER_H
#define ML_TRIAL_DRIVER_H

#include "base/ranges.h"
#include "gpu/placement.h"
#include "lab/simulator/allocator.h"
#include "lab/whatif/trial.h"

/* Most segments or pages at once, about 256 GiB of small ones.  The search for room
 * grows with their number, so a forged recording must not have millions. */
#define ML_TRIAL_SEGMENTS_MAX ((size_t)1 << 17)

typedef struct ml_trial_driver {
    const ml_trial_options *options; /* borrowed */
    const ml_device_trace *trace;    /* borrowed */
    size_t placed;                   /* number in the next two */
    ml_placement *segments;          /* owned */
    ml_placement *spaces;            /* owned; of expandable segments */
    uint64_t used;                   /* bytes given */
    uint64_t calls;
    bool asked;  /* for the place of a segment, by the options' placement */
    bool denied; /* memory or address space, once */
    int error;   /* 0, ML_ENOMEM, or ML_ELIMIT: more segments than any device has */
    /* At recorded addresses: segment events from NEXT to below UNTIL belong to the
     * current step. */
    size_t next;
    ml_event expected; /* the event at NEXT */
    size_t until;
    bool failing;      /* the step failed in the recording */
    unsigned refusals; /* refusals in the step */
    uint64_t mismatched_segments;
    ml_ranges
        /* owned; memory at recorded addresses; a forged file may have overlaps */
        taken;
} ml_trial_driver;

/* 0, or ML_ENOMEM with nothing to free. */
int ml_trial_driver_init(ml_trial_driver *driver, const ml_workload *workload,
                         const ml_trial_options *options);
void ml_trial_driver_fini(ml_trial_driver *driver);

/* Adds SEGMENT before the first step.  1; 0 if it overlaps another; or an error as
 * above. */
int ml_trial_driver_seed(ml_trial_driver *driver, const ml_segment *segment);

/* The model's table of functions; valid as long as DRIVER. */
ml_allocator_driver ml_trial_driver_table(ml_trial_driver *driver);

/* Begin and end a step of the model.  In the recording it came before event UNTIL; with
 * FAILING it failed there. */
void ml_trial_driver_begin(ml_trial_driver *driver, size_t until, bool failing);
void ml_trial_driver_end(ml_trial_driver *driver);

#endif
