/* The largest batch that fits in an amount of memory.
 *
 * Owns which demands scale with the batch: activations, inputs and temporaries of the
 * backward pass.  Demands of the size of a parameter, or of half of one, do not scale:
 * they are gradients, or weights in 16 bits.  This is an assumption; no recording
 * proves it. */
#ifndef ML_ADVICE_BATCH_H
#define ML_ADVICE_BATCH_H

#include "lab/advice/advice_case.h"

/* A factor counts this many parts of 1, up to the most. */
#define ML_BATCH_PARTS 64
#define ML_BATCH_MOST 1024

typedef struct ml_batch_fit {
    /* of the allocator; UINT64_MAX: neither given nor recorded, so there is no
     * answer */
    uint64_t memory_bytes;
    uint64_t scaling; /* bytes that scale, at the unchanged allocated peak */
    uint32_t parts;   /* the largest factor found that fits; 0: none */
    ml_totals peak;   /* the trial with this factor */
} ml_batch_fit;

/* MEMORY_BYTES UINT64_MAX: the memory of the recorded run.  0 or ML_E*. */
int ml_advice_fit_batch(const ml_advice_case *it, uint64_t memory_bytes,
                        ml_batch_fit *out);

#endif
