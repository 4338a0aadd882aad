/* What Triton asks of the driver beyond what torch does: its kernels are compiled as for
 * the GPU, loaded and launched, and never run.
 *
 * Triton links its own module with libcuda.so.1, which is this library's SONAME;
 * memlab/phantom_driver is where it finds it.
 */
#include "phantom.h"

/* torch's own launcher of Triton's kernels loads them from files. */
ML_EXPORT(int, cuModuleLoad, (void **module))
{
    *module = ml_phantom_handle();
    return ML_CU_SUCCESS;
}

/* Of a kernel nothing but these is told, as by cudaFuncGetAttributes: it spills no
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

/* The one that Triton sets is the size of what printf of a kernel may hold, for which a
 * GPU's memory is taken when the first such kernel is loaded; none is taken here. */
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

/* A cluster is of at most eight blocks, and one fits where its blocks do. */
ML_EXPORT(int, cuOccupancyMaxActiveClusters, (int *clusters))
{
    *clusters = ml_phantom_configure()->gpu->processors / 8;
    return ML_CU_SUCCESS;
}

ML_SUCCEED(cuCtxSetLimit)
ML_SUCCEED(cuFuncSetCacheConfig)
