/* Kernels: queried and launched, but never run. */
#include "phantom.h"

#include <string.h>

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

static void
launch(void)
{
    ml_phantom_wait();
    ml_values_launched();
    ml_contents_doubt();
    ml_clock_spend(5000);
}

/* As on a GPU, a kernel without code for it is not launched. */
static ml_cuda_error
launch_function(const void *function, void *const *arguments)
{
    ml_code code;

    if (!ml_code_find(function, &code)) {
        return ml_phantom_error(ML_CUDA_ErrorNoKernelImageForDevice);
    }
    launch();
    if (ml_values_in_use()) {
        ml_reduce_launched(code.name, arguments);
    }
    return ML_CUDA_Success;
}

#define LAUNCH_FUNCTION(name) \
    ML_EXPORT(ml_cuda_error, name, \
              (const void *function, ml_cuda_dim3 grid, ml_cuda_dim3 block, \
               void **arguments)) \
    { \
        (void)grid, (void)block; \
        return launch_function(function, arguments); \
    }

LAUNCH_FUNCTION(cudaLaunchKernel)
LAUNCH_FUNCTION(__cudaLaunchKernel)
LAUNCH_FUNCTION(cudaLaunchCooperativeKernel)

ML_EXPORT(ml_cuda_error, cudaLaunchKernelExC,
          (const void *configured, const void *function, void **arguments))
{
    (void)configured;
    return launch_function(function, arguments);
}

#define LAUNCH_LOADED(name) \
    ML_EXPORT(int, name, (void)) \
    { \
        launch(); \
        return 0; \
    }

LAUNCH_LOADED(cuLaunchKernel)
LAUNCH_LOADED(cuLaunchCooperativeKernel)
LAUNCH_LOADED(cuLaunchKernelEx)

/* --- Libraries of kernels, loaded at run time ---------------------------------------- */

#define LOADED(name) \
    ML_EXPORT(ml_cuda_error, name, (void **loaded)) \
    { \
        *loaded = ml_phantom_handle(); \
        return ML_CUDA_Success; \
    }

LOADED(cudaLibraryLoadData)
LOADED(cudaLibraryLoadFromFile)
LOADED(cudaLibraryGetKernel)
ML_SUCCEED(cudaLibraryUnload)

/* Their variables have a size, and they a number of kernels, that only their code says. */
#define NOT_READ "what a library of kernels holds, other than kernels, is not read"

ML_LACKS(ml_cuda_error, cudaLibraryGetGlobal,
         ml_phantom_error(ML_CUDA_ErrorSymbolNotFound), NOT_READ)
ML_LACKS(ml_cuda_error, cudaLibraryGetManaged,
         ml_phantom_error(ML_CUDA_ErrorSymbolNotFound), NOT_READ)
ML_LACKS(ml_cuda_error, cudaLibraryGetUnifiedFunction,
         ml_phantom_error(ML_CUDA_ErrorSymbolNotFound), NOT_READ)
ML_LACKS(ml_cuda_error, cudaLibraryGetKernelCount,
         ml_phantom_error(ML_CUDA_ErrorNotSupported), NOT_READ)

/* --- Questions -------------------------------------------------------------------- */

ML_EXPORT(ml_cuda_error, cudaFuncGetAttributes,
          (ml_cuda_func_attributes * attributes, const void *function))
{
    ml_code code;

    if (!ml_code_find(function, &code)) {
        return ml_phantom_error(ML_CUDA_ErrorNoKernelImageForDevice);
    }
    memset(attributes, 0, offsetof(ml_cuda_func_attributes, clusterDimMustBeSet));
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->ptxVersion = code.ptx;
    attributes->binaryVersion = code.binary;
    attributes->maxDynamicSharedSizeBytes = 48 << 10;
    return ML_CUDA_Success;
}

ML_SUCCEED(cudaFuncSetAttribute)
ML_SUCCEED(cudaFuncSetCacheConfig)

/* The number of blocks allowed by threads, shared memory and 32 registers per
 * thread. */
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
