/* The memory of a whole GPU, from the driver's management library NVML.
 *
 * Owns finding NVML and the NVML device of a CUDA device.  It never initialises CUDA or
 * makes a context.  Some 20 microseconds a reading, with the driver's locks: not from
 * the allocator's callback.  Any thread. */
#ifndef ML_GPU_MEMORY_H
#define ML_GPU_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* A figure that the driver does not give. */
#define ML_GPU_UNKNOWN UINT64_MAX

/* Bytes. */
typedef struct ml_gpu_memory {
    uint64_t used;    /* by processes and, for them, by the driver */
    uint64_t total;   /* used, free and the reserve */
    uint64_t reserve; /* that the driver keeps from everybody; UNKNOWN on old drivers */
    /* Of this process: 0 where it has no context on the device, UNKNOWN where the driver
     * does not tell, or does not list it (another namespace of process ids). */
    uint64_t own;
    uint64_t
        others; /* UNKNOWN where the driver does not tell it of all of them, or this
                        process may be one of them */
} ml_gpu_memory;

/* Of the CUDA device of that index, in any order that CUDA_VISIBLE_DEVICES sets.  0 or
 * ML_E*, with a sentence in *REASON, static; ML_ESTATE while this process's contexts
 * are away (checkpoint.h), when NVML would not answer. */
int ml_gpu_memory_read(int device, ml_gpu_memory *out, const char **reason);

#define ML_GPU_NAME 48

/* Writes the name that NVML has for a CUDA device in any process.  False where it has
 * none, or cannot be asked. */
bool ml_gpu_memory_name(int device, char name[ML_GPU_NAME]);
/* The same as ml_gpu_memory_read for the device of that name, where own is the memory of
 * the process PID, 0 where NVML does not list it.  Needs no CUDA. */
int ml_gpu_memory_read_named(const char *name, int pid, ml_gpu_memory *out,
                             const char **reason);
/* Whether this process has a primary context on the CUDA device of that index; false
 * while its contexts are away (checkpoint.h). */
bool ml_gpu_memory_has_context(int device);

#define ML_DRIVER_VERSION 80

/* Writes the version of the driver, as in "580.65.06".  False where NVML does not tell. */
bool ml_gpu_memory_driver(char text[ML_DRIVER_VERSION]);

#endif
