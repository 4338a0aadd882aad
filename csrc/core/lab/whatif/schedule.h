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

/* A step that the recording does not have at this event. */
typedef struct ml_moved_step {
    ml_step step;
    uint32_t rank;  /* what comes first at one event */
    uint32_t place; /* order among steps of one event and rank */
} ml_moved_step;

/* The recording has all other steps. */
typedef struct ml_schedule {
    const ml_workload *workload; /* borrowed; not edited since init */
    ml_moved_step *moved;        /* owned; in order */
    size_t count;
    size_t capacity;
} ml_schedule;

/* A way through a schedule.  All zeros but the schedule: at its start. */
typedef struct ml_schedule_walk {
    const ml_schedule *schedule; /* borrowed */
    size_t event;                /* the next of the recording */
    size_t next;                 /* of the moved steps */
} ml_schedule_walk;

/* 0; ML_EINVALID for a demand that ends before it begins, or an event beyond the
 * recording; or ML_ENOMEM.  On failure there is nothing to free. */
int ml_schedule_init(ml_schedule *schedule, const ml_workload *workload);
void ml_schedule_fini(ml_schedule *schedule);

/* The next step in *OUT; false: there is none left. */
bool ml_schedule_next(ml_schedule_walk *walk, ml_step *out);

#endif
