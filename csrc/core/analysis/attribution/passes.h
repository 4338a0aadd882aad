/* The backward passes of a device: when each began, and what an allocation lived through.
 *
 * A backward pass is a run of events made while nodes of one thread's forward ran.  It ends
 * at that thread's next allocation without a node.  For a block only the passes of its own
 * thread count, since several threads may train; those of threads without a number of
 * autograd's count for every block. */
#ifndef ML_PASSES_H
#define ML_PASSES_H

#include <stdatomic.h>

#include "analysis/attribution/cause.h"
#include "analysis/lifetimes/lifetimes.h"

/* The value of a loss, from which a pass begins, takes so many bytes at most. */
#define ML_LOSS_VALUE_BYTES 8

typedef struct ml_passes {
    const ml_causes *causes;       /* borrowed */
    const ml_device_trace *trace;  /* borrowed */
    const ml_lifetimes *lifetimes; /* borrowed */
    size_t device;
    uint64_t *starts; /* owned; by thread, then time */
    size_t count;
    size_t capacity;
    _Atomic size_t ranked; /* what was found last, whoever asked */
    /* Owned; by the first row of each block.  The next event of its thread that allocates in
     * a forward; of any thread, if its own has no forwards. */
    uint32_t *next_forward;
    /* Owned; likewise, that allocates outside any optimizer's step. */
    uint32_t *next_other;
    uint8_t *threads; /* owned; HAS_*, by number */
} ml_passes;

/* CAUSES and LIFETIMES, those of DEVICE, are borrowed and outlive the passes.  0 or
 * ML_ENOMEM; free them in any case. */
int ml_passes_init(ml_passes *passes, const ml_causes *causes,
                   const ml_recording *recording, size_t device,
                   const ml_lifetimes *lifetimes);
void ml_passes_fini(ml_passes *passes);

/* Events from just after an allocation up to and with its free, on its thread. */
typedef struct ml_passes_during {
    unsigned passes; /* that began: 0, 1, or more */
    bool forwards;   /* of all threads, if its own has none */
    bool others;
} ml_passes_during;

/* The next two: LIFE is of this recording, its birth above 0. */
ml_passes_during ml_passes_look(const ml_passes *passes, const ml_lifetime *life);
/* How many passes of LIFE's thread began from its allocation up to before event TO: 0, 1,
 * or 2 for more. */
unsigned ml_passes_between(const ml_passes *passes, const ml_lifetime *life,
                           uint64_t to);
/* Whether more than one pass of any thread began after LIFE's allocation. */
bool ml_passes_are_outlived(const ml_passes *passes, const ml_lifetime *life);
/* Whether a pass of a thread without a known number began before event AT. */
bool ml_passes_before(const ml_passes *passes, uint64_t at);

#endif
