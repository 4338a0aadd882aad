/* The batch that fits an amount of memory.
 *
 * Owns which demands are taken to scale with the batch: what the forward pass makes and
 * saves, inputs, and temporaries of the backward pass; but nothing of the size of a
 * parameter, or of half of one, which is a gradient's or a weight's in 16 bits.  That is
 * an assumption, which nothing in a recording proves. */
#ifndef ML_ADVICE_BATCH_H
#define ML_ADVICE_BATCH_H

#include "lab/advice/advice_case.h"

/* Factors are counted in this many parts of 1, up to the most. */
#define ML_BATCH_PARTS 64
#define ML_BATCH_MOST 1024

typedef struct ml_batch_fit {
    uint64_t memory_bytes; /* that the allocator has; UINT64_MAX: none was named and the
                              recording knows none, so that there is no answer */
    uint64_t scaling;      /* bytes of what scales, at the allocated peak as it is */
    uint32_t parts;        /* the largest factor found that fits; 0: none does */
    ml_totals peak;        /* with it */
} ml_batch_fit;

/* MEMORY_BYTES of UINT64_MAX: what the recorded run had.  0 or ML_E*. */
int ml_advice_fit_batch(const ml_advice_case *it, uint64_t memory_bytes,
                        ml_batch_fit *out);

#endif
