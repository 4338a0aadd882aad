/* The allocations of one device, numbered as on a page: the rows of its lifetimes, each
 * with its kind and the number of earlier allocations at its address. */
#ifndef ML_ALLOCATION_ROWS_H
#define ML_ALLOCATION_ROWS_H

#include "analysis/allocations/allocation_kinds.h"
#include "analysis/analysis.h"
#include "analysis/answers/growth.h"

/* Events of a device that a page can number. */
#define ML_PAGE_EVENTS_MAX (INT32_MAX - 1)

typedef struct ml_allocation_rows {
    const ml_analysis *analysis;   /* borrowed */
    const ml_device_trace *trace;  /* borrowed */
    const ml_lifetimes *lifetimes; /* borrowed; of the rows */
    const ml_growth *growth;       /* borrowed */
    uint32_t *kinds;               /* owned; of each row */
    uint32_t *ordinals; /* owned; by row: earlier allocations at its address */
    uint32_t *before;   /* owned; by row: 1 + the last earlier row there; 0: none */
} ml_allocation_rows;

/* RECORDING is borrowed and outlives the rows; KINDS gets the new kinds (NULL: the rows
 * have none).  0, ML_EINVALID for a DEVICE that it lacks, ML_ELIMIT for more events
 * than a page can number, or ML_ENOMEM; after an error there is nothing to free. */
int ml_allocation_rows_init(ml_allocation_rows *rows, ml_allocation_kinds *kinds,
                            const ml_recording *recording, size_t device);
void ml_allocation_rows_fini(ml_allocation_rows *rows);

/* The kind of row INDEX.  0 or ML_ENOMEM. */
int ml_allocation_row_kind(const ml_allocation_rows *rows, size_t index,
                           ml_allocation_kinds *kinds, uint32_t *kind);

#endif
