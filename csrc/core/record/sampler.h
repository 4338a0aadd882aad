/* Samples of the memory of the host and of whole GPUs, as notes of the recordings.
 *
 * Decides when to take a sample, and limits the time of samples; gpu_memory.h and
 * this_process.h fill them.  The allocator's callback reaches nothing here.  The driver
 * and the source are asked under one lock: callers release the GIL. */
#ifndef ML_SAMPLER_H
#define ML_SAMPLER_H

#include <pthread.h>
#include <stdbool.h>

#include "gpu/gpu_account.h"
#include "memlab.h"

/* What is known of one device; the notes are those that its marks refer to. */
typedef struct ml_sampled_device {
    ml_note start, step, context;
    ml_gpu_account_marks marks;
    uint64_t peak; /* the highest of torch's allocated bytes so far */
    /* since a recording began: the reason is noted, and the device no longer asked */
    bool failed;
} ml_sampled_device;

/* That of a process, in the registry. */
typedef struct ml_sampler {
    pthread_mutex_t lock;
    ml_sampled_device devices[ML_DEVICE_MAX];
    uint64_t last_ns; /* when the last sample was done */
    uint64_t cost_ns; /* of the last sample */
    uint64_t steps;   /* since a recording began */
} ml_sampler;

/* A recording of SOURCE begins: samples every device, and restarts the count of steps.
 * A device that cannot be read is noted once, with the reason, and then never asked
 * again. */
void ml_sampler_begin(const ml_source *source);
/* A step ended.  Samples SOURCE after each of the first ML_SAMPLER_STEPS steps.  Later
 * samples are at least ML_SAMPLER_REST times a sample's cost apart, and a quarter of a
 * second, so that a day of notes is kept.  At a new peak of torch's allocated bytes,
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
