/* The peak of each step of a device: the instant at which most was allocated, and what was
 * allocated there, by category; and how often memory ran out in the step.
 *
 * A step's instant is that of ml_instant_in_step(); a step without an event of the device is
 * left out. */
#ifndef ML_STEP_PEAKS_H
#define ML_STEP_PEAKS_H

#include "analysis/analysis.h"

typedef struct ml_step_peak {
    uint32_t step;
    size_t event; /* the first after which most was allocated */
    uint64_t allocated;
    uint64_t reserved;      /* there */
    uint64_t most_reserved; /* at any instant of the step */
    uint32_t ooms;
    uint64_t by_category[ML_CATEGORY_COUNT];
} ml_step_peak;

typedef struct ml_step_peaks {
    ml_step_peak *list; /* owned; in the order of their events */
    size_t count;
    size_t capacity;
} ml_step_peaks;

/* Free PEAKS in any case.  0 or ML_ENOMEM. */
int ml_step_peaks_find(const ml_analysis *analysis, ml_step_peaks *peaks);
void ml_step_peaks_fini(ml_step_peaks *peaks);

#endif
