/* The driver API: entry points by name, contexts, and the virtual memory management of
 * expandable segments.
 *
 * The SONAME of this library is libcuda.so.1, so it is found instead of the driver.
 * Every name that a program may look up is an exported function. */
#define _GNU_SOURCE
#include "phantom.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* --- Entry points by name ---------------------------------------------------------- */

static void *
entry_point(const char *name)
{
    static void *self;

    if (self == NULL) {
        self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    }
    if (self == NULL || strncmp(name, "cu", 2) != 0) {
        return NULL;
    }
    return dlsym(self, name);
}

static ml_cuda_error
find_entry_point(const char *name, void **function, int *status)
{
    *function = entry_point(name);
    if (status != NULL) {
        *status =
            *function ? ML_CUDA_ENTRY_POINT_SUCCESS : ML_CUDA_ENTRY_POINT_NOT_FOUND;
    }
    return *function || status ? ML_CUDA_Success
                               : ml_phantom_error(ML_CUDA_ErrorSymbolNotFound);
}

/* CUDA 12. */
ML_EXPORT(ml_cuda_error, cudaGetDriverEntryPoint,
          (const char *name, void **function, unsigned long long flags, int *status))
{
    (void)flags;
    return find_entry_point(name, function, status);
}

ML_EXPORT(ml_cuda_error, cudaGetDriverEntryPointByVersion,
          (const char *name, void **function, unsigned int version,
           unsigned long long flags, int *status))
{
    (void)version;
    (void)flags;
    return find_entry_point(name, function, status);
}

ML_EXPORT(int, cuGetProcAddress_v2,
          (const char *name, void **function, int version, unsigned long long flags,
           int *status))
{
    (void)version;
    (void)flags;
    *function = entry_point(name);
    if (status != NULL) {
        *status =
            *function ? ML_CUDA_ENTRY_POINT_SUCCESS : ML_CUDA_ENTRY_POINT_NOT_FOUND;
    }
    return *function ? ML_CU_SUCCESS : ML_CU_NOT_FOUND;
}

ML_EXPORT(int, cuGetProcAddress,
          (const char *name, void **function, int version, unsigned long long flags))
{
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

/* --- Devices and contexts ------------------------------------------------------------ */

/* A context's handle is 1 + its device's number. */
static void *
context_of(int device)
{
    return (void *)(uintptr_t)(device + 1);
}

ML_SUCCEED(cuInit)

ML_EXPORT(int, cuDriverGetVersion, (int *version))
{
    *version = ml_phantom_driver_cuda();
    return ML_CU_SUCCESS;
}

ML_EXPORT(int, cuDeviceGetCount, (int *count))
{
    *count = ml_phantom_configure()->devices;
    return ML_CU_SUCCESS;
}

ML_EXPORT(int, cuDeviceGet, (int *device, int ordinal))
{
    *device = ordinal;
    return ordinal >= 0 && ordinal < ml_phantom_configure()->devices
               ? ML_CU_SUCCESS
               : ML_CU_INVALID_DEVICE;
}

ML_EXPORT(int, cuDeviceGetAttribute, (int *value, int attribute, int device))
{
    return ml_phantom_attribute(value, attribute, device) ? ML_CU_INVALID_DEVICE
                                                          : ML_CU_SUCCESS;
}

ML_EXPORT(int, cuDeviceGetName, (char *name, int size))
{
    const char *full = ml_phantom_configure()->gpu->full_name;

    if (size > 0) {
        strncpy(name, full, (size_t)size - 1);
        name[size - 1] = '\0';
    }
    return ML_CU_SUCCESS;
}

ML_EXPORT(int, cuDeviceTotalMem_v2, (size_t * bytes))
{
    *bytes = ml_phantom_configure()->total_bytes;
    return ML_CU_SUCCESS;
}

ML_EXPORT(int, cuDeviceGetUuid, (unsigned char *uuid, int device))
{
    if (device < 0 || device >= ml_phantom_configure()->devices) {
        return ML_CU_INVALID_DEVICE;
    }
    ml_phantom_uuid(uuid, ml_phantom_configure()->ordinals[device]);
    return ML_CU_SUCCESS;
}

ML_EXPORT(int, cuDeviceGetUuid_v2, (unsigned char *uuid, int device))
{
    return cuDeviceGetUuid(uuid, device);
}

ML_EXPORT(int, cuDevicePrimaryCtxGetState,
          (int device, unsigned int *flags, int *active))
{
    if (flags != NULL) {
        *flags = 0;
    }
    if (active != NULL) {
        *active = ml_phantom_is_active(device);
    }
    return ML_CU_SUCCESS;
}

ML_EXPORT(int, cuDevicePrimaryCtxRetain, (void **context, int device))
{
    *context = context_of(device);
    return ML_CU_SUCCESS;
}

ML_EXPORT(int, cuCtxGetCurrent, (void **context))
{
    *context = context_of(ml_phantom_device());
    return ML_CU_SUCCESS;
}

ML_EXPORT(int, cuCtxGetDevice, (int *device))
{
    *device = ml_phantom_device();
    return ML_CU_SUCCESS;
}

ML_EXPORT(int, cuCtxPopCurrent, (void **context))
{
    return cuCtxGetCurrent(context);
}

ML_SUCCEED(cuCtxPushCurrent)
ML_SUCCEED(cuDevicePrimaryCtxRelease_v2)
ML_SUCCEED(cuCtxSetCurrent)
ML_SUCCEED_UNLOCKED(cuCtxSynchronize)

ML_EXPORT(int, cuGetErrorString, (int result, const char **text))
{
    *text = ml_phantom_error_text(result);
    return ML_CU_SUCCESS;
}

/* --- Virtual memory management --------------------------------------------------------- */

/* Physical memory from cuMemCreate.  The device is charged while the handle exists;
 * torch unmaps before it releases. */
typedef struct {
    size_t bytes;
    int device;
} physical;

ML_EXPORT(int, cuMemAddressReserve,
          (uintptr_t * address, size_t bytes, size_t alignment))
{
    *address = ml_space_reserve(bytes, alignment, ml_phantom_device());
    return *address ? ML_CU_SUCCESS : ML_CU_OUT_OF_MEMORY;
}

ML_EXPORT(int, cuMemAddressFree, (uintptr_t address))
{
    return ml_space_release(address) ? ML_CU_SUCCESS : ML_CU_INVALID_VALUE;
}

ML_EXPORT(int, cuMemCreate,
          (physical * *handle, size_t bytes, const ml_cu_mem_allocation_prop *prop))
{
    int device = prop->location.id;

    ml_phantom_wait();
    if (device < 0 || device >= ml_phantom_configure()->devices) {
        return ML_CU_INVALID_DEVICE;
    }
    physical *made = malloc(sizeof *made);
    if (made == NULL || !ml_phantom_charge(bytes, device)) {
        free(made);
        return ML_CU_OUT_OF_MEMORY;
    }
    *made = (physical){bytes, device};
    *handle = made;
    return ML_CU_SUCCESS;
}

ML_EXPORT(int, cuMemRelease, (physical * handle))
{
    ml_phantom_wait();
    ml_phantom_discharge(handle->bytes, handle->device);
    free(handle);
    return ML_CU_SUCCESS;
}

ML_SUCCEED_UNLOCKED(cuMemMap)

ML_EXPORT(int, cuMemSetAccess, (uintptr_t address, size_t bytes))
{
    return ml_phantom_back(address, bytes) ? ML_CU_SUCCESS : ML_CU_OUT_OF_MEMORY;
}

ML_EXPORT(int, cuMemUnmap, (uintptr_t address, size_t bytes))
{
    ml_phantom_unback(address, bytes);
    return ML_CU_SUCCESS;
}

ML_EXPORT(int, cuMemGetAllocationGranularity, (size_t * bytes))
{
    *bytes = ML_PHANTOM_GRANULE;
    return ML_CU_SUCCESS;
}

ML_LACKS(int, cuMemExportToShareableHandle, ML_CU_NOT_SUPPORTED, ML_NOT_SHARED)
ML_LACKS(int, cuMemImportFromShareableHandle, ML_CU_NOT_SUPPORTED, ML_NOT_SHARED)

ML_EXPORT(int, cuMemGetAddressRange,
          (uintptr_t * start, size_t *bytes, uintptr_t within))
{
    ml_span span;

    if (ml_space_find(within, &span) < 0) {
        return ML_CU_INVALID_VALUE;
    }
    if (start != NULL) {
        *start = span.start;
    }
    if (bytes != NULL) {
        *bytes = span.bytes;
    }
    return ML_CU_SUCCESS;
}

/* --- Kernels loaded at run time -------------------------------------------------------- */

ML_EXPORT(int, cuModuleLoadData, (void **module))
{
    *module = ml_phantom_handle();
    return ML_CU_SUCCESS;
}

ML_EXPORT(int, cuModuleLoadDataEx, (void **module))
{
    *module = ml_phantom_handle();
    return ML_CU_SUCCESS;
}

ML_EXPORT(int, cuModuleGetFunction, (void **function))
{
    *function = ml_phantom_handle();
    return ML_CU_SUCCESS;
}

ML_EXPORT(int, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks))
{
    *blocks = 2;
    return ML_CU_SUCCESS;
}

ML_SUCCEED(cuModuleUnload)
ML_SUCCEED(cuFuncSetAttribute)
ML_SUCCEED(cuTensorMapEncodeTiled)
