/* The memory of a whole GPU, from the driver's management library NVML.
 *
 * Owns finding NVML and the NVML device of a CUDA device.  It never initialises CUDA or
 * makes a context.  Some 20 microseconds a reading, with the driver's locks: not from
 * the allocator's callback.  Any thread. */
#ifndef ML_GPU_MEMORY_H
#define ML_GPU_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* A figure that the driver does not report. */
#define ML_GPU_UNKNOWN UINT64_MAX

/* Bytes. */
typedef struct ml_gpu_memory {
    uint64_t used;  /* by processes and, for them, by the driver */
    uint64_t total; /* used, free and the reserve */
    /* the driver's reserve, which nobody else can use; UNKNOWN on old drivers */
    uint64_t reserve;
    /* Of this process.  0: no context on the device; UNKNOWN: the driver does not tell,
     * or does not list it (another namespace of process ids). */
    uint64_t own;
    uint64_t
        /* UNKNOWN if the driver does not tell it for all of them, or this process may
         * be one of them */
        others;
} ml_gpu_memory;

/* Of the CUDA device of that index, with the order of CUDA_VISIBLE_DEVICES.  0 or
 * ML_E*, with a static sentence in *REASON; ML_ESTATE while this process's contexts are
 * away (checkpoint.h), when NVML would not answer. */
int ml_gpu_memory_read(int device, ml_gpu_memory *out, const char **reason);

#define ML_GPU_NAME 48

/* Writes NVML's name for a CUDA device, which is valid in any process.  False: none, or
 * NVML cannot be asked. */
bool ml_gpu_memory_name(int device, char name[ML_GPU_NAME]);
/* The same as ml_gpu_memory_read for the device of that name.  own is the memory of the
 * process PID, 0 if NVML does not list it.  Needs no CUDA. */
int ml_gpu_memory_read_named(const char *name, int pid, ml_gpu_memory *out,
                             const char **reason);
/* Whether this process has a primary context on the CUDA device of that index; false
 * while its contexts are away (checkpoint.h). */
bool ml_gpu_memory_has_context(int device);

#define ML_DRIVER_VERSION 80

/* Writes the version of the driver, such as "580.65.06".  False: NVML does not tell. */
bool ml_gpu_memory_driver(char text[ML_DRIVER_VERSION]);

#endif
