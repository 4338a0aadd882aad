/* Samples of the memory of the host and of whole GPUs, as notes of what is recorded.
 *
 * Owns when a sample is taken and how much of the time samples may take; what they hold
 * is gpu_memory.h's and this_process.h's.  Nothing here is reached from the allocator's
 * callback.  One lock of its own, under which the driver and the source are asked: callers
 * release the GIL. */
#ifndef ML_SAMPLER_H
#define ML_SAMPLER_H

#include "gpu/gpu_account.h"
#include "memlab.h"

/* A recording of SOURCE begins: every device is sampled, and steps count anew.  A device
 * that cannot be read is noted once, with the reason, and left alone from then on. */
void ml_sampler_begin(const ml_source *source);
/* A step ended: samples SOURCE after each of the first ML_SAMPLER_STEPS steps, then when
 * ML_SAMPLER_REST times what a sample costs have passed since the last, and a quarter of a
 * second, so that a day of notes is kept; where torch's allocated bytes have a new peak,
 * ML_SAMPLER_PEAK_REST times the cost is enough. */
#define ML_SAMPLER_STEPS 4
#define ML_SAMPLER_REST 1000
#define ML_SAMPLER_REST_NS UINT64_C(250000000)
#define ML_SAMPLER_PEAK_REST 100
void ml_sampler_step(const ml_source *source);
/* A recording of SOURCE is read. */
void ml_sampler_read(const ml_source *source);

/* In a forked child, before any other thread. */
void ml_sampler_forked(void);

/* The account of DEVICE of SOURCE now, with marks since the process first sampled it.  0
 * or ML_E*, with a sentence in *REASON. */
int ml_sampler_account(const ml_source *source, int device, ml_gpu_account *out,
                       const char **reason);
/* The memory of the host now, as in ML_NOTE_HOST. */
void ml_sampler_host(const ml_source *source, uint64_t values[ML_NOTE_VALUES]);

#endif
