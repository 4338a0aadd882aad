/* Triton's calls of the driver beyond torch's.  Kernels are compiled for the GPU,
 * loaded and launched, but never run.
 *
 * Triton links its own module with libcuda.so.1, the SONAME of this library, and finds
 * it in memlab/phantom_driver. */
#include "phantom.h"

/* torch's own launcher of Triton's kernels loads them from files. */
ML_EXPORT(int, cuModuleLoad, (void **module))
{
    *module = ml_phantom_handle();
    return ML_CU_SUCCESS;
}

/* Only these facts of a kernel are reported, as by cudaFuncGetAttributes: it spills no
 * register and has no memory of its own. */
enum {
    MAX_THREADS_PER_BLOCK = 0,
    REGISTERS = 4
};

ML_EXPORT(int, cuFuncGetAttribute, (int *value, int attribute))
{
    *value = attribute == MAX_THREADS_PER_BLOCK ? 1024
             : attribute == REGISTERS           ? 32
                                                : 0;
    return ML_CU_SUCCESS;
}

/* Triton sets the size of a kernel's printf buffer.  A GPU takes memory for it when the
 * first such kernel is loaded; the phantom takes none. */
ML_EXPORT(int, cuCtxGetLimit, (size_t * value))
{
    *value = 1 << 20;
    return ML_CU_SUCCESS;
}

ML_EXPORT(int, cuPointerGetAttribute, (void *value, int attribute, uintptr_t address))
{
    enum {
        DEVICE_POINTER = 3
    };

    if (attribute != DEVICE_POINTER) {
        return ML_CU_NOT_SUPPORTED;
    }
    if (!ml_phantom_is_reachable((const void *)address)) {
        return ML_CU_INVALID_VALUE;
    }
    *(uintptr_t *)value = address;
    return ML_CU_SUCCESS;
}

/* A cluster has at most eight blocks, and fits if its blocks fit. */
ML_EXPORT(int, cuOccupancyMaxActiveClusters, (int *clusters))
{
    *clusters = ml_phantom_configure()->gpu->processors / 8;
    return ML_CU_SUCCESS;
}

ML_SUCCEED(cuCtxSetLimit)
ML_SUCCEED(cuFuncSetCacheConfig)
