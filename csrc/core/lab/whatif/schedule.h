/* A schedule: what a workload asks of an allocator, in order.
 *
 * Owns the order.  At one event: cache given back, moved frees, moved births, then the
 * recording's own step. */
#ifndef ML_SCHEDULE_H
#define ML_SCHEDULE_H

#include "lab/whatif/workload.h"

enum ml_step_kind {
    ML_STEP_ALLOC,
    ML_STEP_FREE,    /* requested and completed */
    ML_STEP_REQUEST, /* a free that completes later */
    ML_STEP_COMPLETE,
    ML_STEP_MARK /* of the workload */
};

typedef struct ml_step {
    uint32_t event; /* event of the recording */
    uint32_t item;  /* index of a demand or mark */
    uint32_t kind;  /* enum ml_step_kind */
} ml_step;

typedef struct ml_schedule {
    const ml_workload *workload; /* borrowed; the workload at the time of init */
    ml_step *steps;              /* owned */
    size_t count;
    uint64_t demands; /* demands requested after the start */
} ml_schedule;

/* 0; ML_EINVALID for a demand that ends before it begins, or an event beyond the
 * recording; or ML_ENOMEM.  On failure there is nothing to free. */
int ml_schedule_init(ml_schedule *schedule, const ml_workload *workload);
void ml_schedule_fini(ml_schedule *schedule);

#endif
