/* Kernels: registered, asked about, launched, and never run.
 */
#include "phantom.h"

#include <string.h>

/* --- Registration by nvcc's start-up code --------------------------------------- */

ML_EXPORT(void **, __cudaRegisterFatBinary, (void))
{
    static void *binary;

    return &binary;
}

ML_EXPORT(char, __cudaInitModule, (void))
{
    return 1;
}

ML_SUCCEED(__cudaRegisterFatBinaryEnd)
ML_SUCCEED(__cudaUnregisterFatBinary)
ML_SUCCEED(__cudaRegisterFunction)
ML_SUCCEED(__cudaRegisterVar)

/* --- Launches -------------------------------------------------------------------- */

static _Thread_local struct {
    ml_cuda_dim3 grid, block;
    size_t shared_bytes;
    void *stream;
} configuration;

ML_EXPORT(unsigned int, __cudaPushCallConfiguration,
          (ml_cuda_dim3 grid, ml_cuda_dim3 block, size_t shared_bytes, void *stream))
{
    configuration.grid = grid;
    configuration.block = block;
    configuration.shared_bytes = shared_bytes;
    configuration.stream = stream;
    return 0;
}

ML_EXPORT(ml_cuda_error, __cudaPopCallConfiguration,
          (ml_cuda_dim3 * grid, ml_cuda_dim3 *block, size_t *shared_bytes,
           void **stream))
{
    *grid = configuration.grid;
    *block = configuration.block;
    *shared_bytes = configuration.shared_bytes;
    *stream = configuration.stream;
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, __cudaGetKernel, (const void **kernel, const void *function))
{
    *kernel = function;
    return ML_CUDA_Success;
}

#define LAUNCH(name) \
    ML_EXPORT(int, name, (void)) \
    { \
        ml_phantom_wait(); \
        ml_values_launched(); \
        ml_clock_spend(5000); \
        return 0; \
    }

LAUNCH(cudaLaunchKernel)
LAUNCH(__cudaLaunchKernel)
LAUNCH(cudaLaunchCooperativeKernel)
LAUNCH(cudaLaunchKernelExC)
LAUNCH(cuLaunchKernel)
LAUNCH(cuLaunchCooperativeKernel)
LAUNCH(cuLaunchKernelEx)

/* --- Questions -------------------------------------------------------------------- */

/* CUB picks its tuning, and so the size of its temporary memory, by the version of
 * the code that would run: that compiled for this very capability. */
ML_EXPORT(ml_cuda_error, cudaFuncGetAttributes, (ml_cuda_func_attributes * attributes))
{
    const ml_phantom_gpu *gpu = ml_phantom_configure()->gpu;

    memset(attributes, 0, offsetof(ml_cuda_func_attributes, clusterDimMustBeSet));
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->ptxVersion = gpu->major * 10 + gpu->minor;
    attributes->binaryVersion = gpu->major * 10 + gpu->minor;
    attributes->maxDynamicSharedSizeBytes = 48 << 10;
    return ML_CUDA_Success;
}

ML_SUCCEED(cudaFuncSetAttribute)
ML_SUCCEED(cudaFuncSetCacheConfig)

/* As many blocks as the threads, the shared memory and 32 registers a thread
 * allow. */
static int
occupancy(int threads, size_t shared_bytes)
{
    const ml_phantom_capability *capability = ml_phantom_configure()->capability;
    int blocks = capability->blocks_per_processor;

    if (threads > 0 && capability->threads_per_processor / threads < blocks) {
        blocks = capability->threads_per_processor / threads;
    }
    shared_bytes += capability->shared_reserved;
    if (shared_bytes > 0 &&
        capability->shared_per_processor / shared_bytes < (size_t)blocks) {
        blocks = (int)(capability->shared_per_processor / shared_bytes);
    }
    return blocks;
}

ML_EXPORT(ml_cuda_error, cudaOccupancyMaxActiveBlocksPerMultiprocessor,
          (int *blocks, const void *function, int threads, size_t shared_bytes))
{
    (void)function;
    *blocks = occupancy(threads, shared_bytes);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
          (int *blocks, const void *function, int threads, size_t shared_bytes))
{
    (void)function;
    *blocks = occupancy(threads, shared_bytes);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaGetSymbolAddress, (void **address))
{
    *address = ml_phantom_handle();
    return ML_CUDA_Success;
}
