/* A schedule: what a workload asks of an allocator, in order.
 *
 * Owns the order.  At one event of the recording come, first to last: cache given back,
 * frees moved there, births moved there, and what the recording itself had there. */
#ifndef ML_SCHEDULE_H
#define ML_SCHEDULE_H

#include "lab/whatif/workload.h"

enum ml_step_kind {
    ML_STEP_ALLOC,
    ML_STEP_FREE,    /* requested and completed */
    ML_STEP_REQUEST, /* a free that waits */
    ML_STEP_COMPLETE,
    ML_STEP_MARK /* of the workload */
};

typedef struct ml_step {
    uint32_t event; /* of the recording */
    uint32_t item;  /* demand, or mark */
    uint32_t kind;  /* enum ml_step_kind */
} ml_step;

typedef struct ml_schedule {
    const ml_workload *workload; /* borrowed; that it is of, as it was then */
    ml_step *steps;              /* owned */
    size_t count;
    uint64_t demands; /* that are asked for after the start */
} ml_schedule;

/* 0; ML_EINVALID for a demand that ends before it begins, or an event that there is not; or
 * ML_ENOMEM.  What fails leaves nothing to take down. */
int ml_schedule_init(ml_schedule *schedule, const ml_workload *workload);
void ml_schedule_fini(ml_schedule *schedule);

#endif
