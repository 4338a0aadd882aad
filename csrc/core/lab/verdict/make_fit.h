/* How a run fits that ran out of memory, or nearly: the batch that fits, and whether
 * fragmentation was to blame.  remedies.h has the remedies.
 *
 * Each figure comes from trials of the run and its remainder, which assume little memory
 * for what was not recorded, or much. */
#ifndef ML_MAKE_FIT_H
#define ML_MAKE_FIT_H

#include "lab/verdict/remedies.h"

/* To this part of the recorded batch a batch is told. */
#define ML_FIT_PARTS 1024

typedef struct ml_make_fit {
    uint64_t memory_bytes; /* of the allocator; UINT64_MAX: unknown */
    bool failed;           /* a request failed */
    uint32_t untold;       /* bit for each enum ml_untold: why no batch is named */
    /* Bytes of one pass that were not recorded.  With STATE_ASSUMED, the state is that
     * of Adam. */
    uint64_t forward;
    uint64_t gradients;
    uint64_t state;
    uint32_t modules;
    bool state_assumed;
    uint64_t needs_least; /* reserved bytes that the whole run needs */
    uint64_t needs_most;
    /* The largest batch that fits, with each enum ml_assumed and with the small, in parts of
     * the recorded one, ml_make_fit_whole().  The true limit lies between.  Without a failed
     * request: the recorded. */
    uint32_t batch_safe;
    uint32_t batch_most;
    /* From the program's arguments, or of its DataLoader; 0: neither. */
    uint32_t batch_number;
    char batch_name[64]; /* the argument; "": none */
    ml_string program;  /* and its arguments, for a shell; borrowed; empty: not known */
    uint64_t gpu_bytes; /* of the whole GPU; 0: not known */
    bool batch_named;   /* these agree: the safe one is the batch to take */
    /* Where memory need not be in one piece the request succeeds, and all that follows as
     * far as it can be told. */
    bool sizes_differ; /* from step to step: later ones may ask for more */
    bool fragmented;
    bool unfragmented_fits; /* unfragmented_fits is known */
    ml_remedies remedies;
} ml_make_fit;

/* Percent: a batch is named if the largest that may fit is no more above it. */
#define ML_FIT_AGREES 15

/* The recorded batch in the parts of batch_safe: where its number is known these are
 * samples, so that only whole ones are tried. */
static inline uint32_t
ml_make_fit_whole(const ml_make_fit *fit)
{
    return fit->batch_number != 0 ? fit->batch_number : ML_FIT_PARTS;
}

/* With the memory of IT; 0 or ML_E*. */
int ml_make_fit_find(const ml_advice_case *it, ml_make_fit *out);
/* The same for DEVICE of RECORDING with MEMORY_BYTES; UINT64_MAX: the run's own.
 * Errors as of ml_workload_new. */
int ml_make_fit_of(const ml_recording *recording, size_t device, uint64_t memory_bytes,
                   ml_make_fit *out);
/* The safe batch as a number; 0: unknown. */
uint64_t ml_make_fit_number(const ml_make_fit *fit);

#endif
