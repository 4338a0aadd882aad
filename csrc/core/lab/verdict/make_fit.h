/* What makes a run fit that ran out of memory, or nearly: the batch, and whether it was
 * fragmentation.  The remedies are remedies.h's.
 *
 * Each figure comes of a trial of the run with its remainder, once with little and once with
 * much assumed of what the recording did not live to see. */
#ifndef ML_MAKE_FIT_H
#define ML_MAKE_FIT_H

#include "lab/verdict/remedies.h"

/* Batches are counted in this many parts of the recorded one. */
#define ML_FIT_PARTS 1024

typedef struct ml_make_fit {
    uint64_t memory_bytes; /* that the allocator had; UINT64_MAX: not known */
    bool failed;           /* a request did */
    uint32_t untold;       /* bit for each enum ml_untold: why nothing is named */
    /* Unseen bytes, of one pass; with STATE_ASSUMED an Adam's state is. */
    uint64_t forward;
    uint64_t gradients;
    uint64_t state;
    uint32_t modules;
    bool state_assumed;
    uint64_t needs_least; /* reserved bytes that the whole run takes */
    uint64_t needs_most;
    /* The largest batch that fits, in parts, with much and with little assumed: between
     * them lies the largest.  Of the recorded one where none failed. */
    uint32_t batch_safe;
    uint32_t batch_most;
    /* As the program's arguments had it; 0: they did not. */
    uint64_t batch_number;
    char batch_name[64];
    ml_string program;  /* and its arguments, for a shell; borrowed; empty: not known */
    uint64_t gpu_bytes; /* of the whole GPU; 0: not known */
    bool batch_named;   /* these agree: the safe one is the batch to take */
    /* Where memory need not be in one piece the request succeeds, and all that follows as
     * far as it can be told. */
    bool fragmented;
    bool unfragmented_fits; /* and it can be told */
    ml_remedies remedies;
} ml_make_fit;

/* The parts may differ by one in so many where a batch is named. */
#define ML_FIT_AGREES 7

/* Of the memory that IT has; 0 or ML_E*. */
int ml_make_fit_find(const ml_advice_case *it, ml_make_fit *out);
/* Likewise of DEVICE of RECORDING, on MEMORY_BYTES; UINT64_MAX: what the run had.  As
 * ml_workload_new. */
int ml_make_fit_of(const ml_recording *recording, size_t device, uint64_t memory_bytes,
                   ml_make_fit *out);
/* The safe batch as a number; 0 where none is known. */
uint64_t ml_make_fit_number(const ml_make_fit *fit);

#endif
