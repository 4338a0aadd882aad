/* The process's memory of each device: a context, once the process uses the device, and
 * bytes.
 *
 * Owns which devices are in use, and the memory of each. */
#include "phantom.h"

#include <pthread.h>

/* The driver's memory for a context with torch's kernels.  Measured on an H200 with
 * torch 2.11.0+cu130 and driver 580.159.04, by NVML's figure for the process
 * (bench/results/fit_h200_*): 610 MiB.  Handles of libraries add to it; training has two
 * of each, one for the thread that runs backward:
 *
 *     630 MiB  convolutions alone (2 programs)
 *     676 MiB  inference with products (1), 678 in another run
 *     742 MiB  training with products (30)
 *     758 MiB  training with both (16); 760 (4), 762 (4)
 *
 * So a cuBLAS handle takes 66 MiB, a cuDNN handle 9 MiB.  Other GPUs were not measured and
 * are assumed to need the same. */
#define CONTEXT_BYTES (610 * ML_MIB)

static _Atomic bool active[ML_PHANTOM_MAX_DEVICES];
static size_t used[ML_PHANTOM_MAX_DEVICES]; /* Guarded by the lock, in bytes. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool
ml_phantom_is_active(int device)
{
    return device >= 0 && device < ML_PHANTOM_MAX_DEVICES && active[device];
}

void
ml_phantom_activate(int device)
{
    if (!active[device]) {
        active[device] = true;
        ml_phantom_post(device);
        ml_phantom_tell();
    }
}

bool
ml_phantom_charge(size_t bytes, int device)
{
    size_t total = ml_phantom_configure()->total_bytes;
    size_t taken = ml_shared_used(ml_phantom_configure()->ordinals[device]);
    bool fits = false;

    ml_phantom_activate(device);
    total -= taken < total ? taken : total;
    pthread_mutex_lock(&lock);
    if (total > CONTEXT_BYTES && used[device] <= total - CONTEXT_BYTES &&
        bytes <= total - CONTEXT_BYTES - used[device]) {
        used[device] += bytes;
        fits = true;
    }
    pthread_mutex_unlock(&lock);
    ml_phantom_post(device);
    return fits;
}

void
ml_phantom_discharge(size_t bytes, int device)
{
    pthread_mutex_lock(&lock);
    used[device] -= bytes;
    pthread_mutex_unlock(&lock);
    ml_phantom_post(device);
}

void
ml_phantom_post(int device)
{
    size_t bytes = ml_gate_now() == ML_GATE_CHECKPOINTED ? 0 : ml_phantom_used(device);

    ml_shared_post(ml_phantom_configure()->ordinals[device], bytes);
}

size_t
ml_phantom_used(int device)
{
    size_t total = ml_phantom_configure()->total_bytes;

    pthread_mutex_lock(&lock);
    size_t bytes = CONTEXT_BYTES + used[device];
    pthread_mutex_unlock(&lock);
    return bytes < total ? bytes : total;
}
