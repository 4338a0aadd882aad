/* Devices: their list, their properties, the thread's current one, errors. */
#include "phantom.h"

#include <stdio.h>
#include <string.h>

static _Thread_local int current_device;
static _Thread_local ml_cuda_error last_error;

int
ml_phantom_device(void)
{
    return current_device;
}

ml_cuda_error
ml_phantom_error(ml_cuda_error error)
{
    if (error != ML_CUDA_Success) {
        last_error = error;
    }
    return error;
}

void
ml_phantom_uuid(unsigned char uuid[16], int installed)
{
    memcpy(uuid, "memlab-phantom-", 15);
    uuid[15] = (unsigned char)('0' + installed);
}

static bool
is_device(int device)
{
    return device >= 0 && device < ml_phantom_configure()->devices;
}

/* --- Errors --------------------------------------------------------------- */

ML_EXPORT(const char *, cudaGetErrorName, (int error))
{
    switch (error) {
#define XX(name, value, text) \
    case value: \
        return "cuda" #name;
        ML_CUDA_ERRORS(XX)
#undef XX
    default:
        return "unrecognized error code";
    }
}

const char *
ml_phantom_error_text(int error)
{
    static _Thread_local char unknown[128];

    switch (error) {
#define XX(name, value, text) \
    case value: \
        return text;
        ML_CUDA_ERRORS(XX)
#undef XX
    default:
        snprintf(unknown, sizeof unknown,
                 "error %d, which memlab's phantom device did not give and has no name "
                 "for; look it up in CUDA's cudaError_t",
                 error);
        return unknown;
    }
}

ML_EXPORT(const char *, cudaGetErrorString, (int error))
{
    return ml_phantom_error_text(error);
}

ML_EXPORT(ml_cuda_error, cudaGetLastError, (void))
{
    ml_cuda_error error = last_error;

    last_error = ML_CUDA_Success;
    return error;
}

ML_EXPORT(ml_cuda_error, cudaPeekAtLastError, (void))
{
    return last_error;
}

/* --- Which device --------------------------------------------------------- */

/* The first query of a program that uses CUDA: its libraries are loaded by now. */
ML_EXPORT(ml_cuda_error, cudaGetDeviceCount, (int *count))
{
    const char *refusal = memlab_phantom_refusal();

    if (refusal != NULL) {
        ml_phantom_refuse("%s", refusal);
    }
    *count = ml_phantom_configure()->devices;
    return *count > 0 ? ML_CUDA_Success : ml_phantom_error(ML_CUDA_ErrorNoDevice);
}

ML_EXPORT(ml_cuda_error, cudaGetDevice, (int *device))
{
    *device = current_device;
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaSetDevice, (int device))
{
    if (!is_device(device)) {
        return ml_phantom_error(ML_CUDA_ErrorInvalidDevice);
    }
    current_device = device;
    ml_phantom_activate(device);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaDriverGetVersion, (int *version))
{
    *version = ml_phantom_driver_cuda();
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaRuntimeGetVersion, (int *version))
{
    *version = ml_phantom_cuda_version();
    return ML_CUDA_Success;
}

ML_SUCCEED_UNLOCKED(cudaDeviceSynchronize)
ML_SUCCEED_UNLOCKED(cudaDeviceReset)
ML_SUCCEED(cudaSetDeviceFlags)
ML_SUCCEED(cudaProfilerStart)
ML_SUCCEED(cudaProfilerStop)

/* --- What a device can do -------------------------------------------------- */

#define FILL_PROPERTIES(prop, device) \
    do { \
        const ml_phantom_config *filled = ml_phantom_configure(); \
        const ml_phantom_gpu *gpu = filled->gpu; \
        const ml_phantom_capability *capability = filled->capability; \
        memset((prop), 0, sizeof *(prop)); \
        snprintf((prop)->name, sizeof(prop)->name, "%s", gpu->full_name); \
        ml_phantom_uuid((unsigned char *)(prop)->uuid, filled->ordinals[device]); \
        (prop)->totalGlobalMem = filled->total_bytes; \
        (prop)->sharedMemPerBlock = 48 << 10; \
        (prop)->regsPerBlock = 65536; \
        (prop)->warpSize = 32; \
        (prop)->memPitch = 2147483647; \
        (prop)->maxThreadsPerBlock = 1024; \
        (prop)->maxThreadsDim[0] = (prop)->maxThreadsDim[1] = 1024; \
        (prop)->maxThreadsDim[2] = 64; \
        (prop)->maxGridSize[0] = 2147483647; \
        (prop)->maxGridSize[1] = (prop)->maxGridSize[2] = 65535; \
        (prop)->totalConstMem = 65536; \
        (prop)->major = gpu->major; \
        (prop)->minor = gpu->minor; \
        (prop)->textureAlignment = 512; \
        (prop)->texturePitchAlignment = 32; \
        (prop)->multiProcessorCount = gpu->processors; \
        (prop)->canMapHostMemory = 1; \
        (prop)->surfaceAlignment = 512; \
        (prop)->concurrentKernels = 1; \
        (prop)->pciBusID = filled->ordinals[device] + 1; \
        (prop)->asyncEngineCount = 3; \
        (prop)->unifiedAddressing = 1; \
        (prop)->memoryBusWidth = gpu->bus_bits; \
        (prop)->l2CacheSize = (int)gpu->l2_bytes; \
        (prop)->maxThreadsPerMultiProcessor = capability->threads_per_processor; \
        (prop)->streamPrioritiesSupported = 1; \
        (prop)->globalL1CacheSupported = (prop)->localL1CacheSupported = 1; \
        (prop)->sharedMemPerMultiprocessor = capability->shared_per_processor; \
        (prop)->regsPerMultiprocessor = 65536; \
        (prop)->managedMemory = 1; \
        (prop)->concurrentManagedAccess = 1; \
        (prop)->computePreemptionSupported = 1; \
        (prop)->cooperativeLaunch = 1; \
        (prop)->sharedMemPerBlockOptin = capability->shared_per_block; \
        (prop)->maxBlocksPerMultiProcessor = capability->blocks_per_processor; \
        (prop)->reservedSharedMemPerBlock = capability->shared_reserved; \
        (prop)->hostRegisterSupported = 1; \
        (prop)->memoryPoolsSupported = 1; \
        (prop)->clusterLaunch = gpu->major >= 9; \
    } while (0)

/* CUDA 13's name; CUDA 12 uses the name that ends in _v2. */
ML_EXPORT(ml_cuda_error, cudaGetDeviceProperties,
          (ml_cuda13_device_prop * prop, int device))
{
    if (!is_device(device)) {
        return ml_phantom_error(ML_CUDA_ErrorInvalidDevice);
    }
    FILL_PROPERTIES(prop, device);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaGetDeviceProperties_v2,
          (ml_cuda12_device_prop * prop, int device))
{
    if (!is_device(device)) {
        return ml_phantom_error(ML_CUDA_ErrorInvalidDevice);
    }
    FILL_PROPERTIES(prop, device);
    prop->clockRate = ml_phantom_configure()->gpu->clock_khz;
    prop->memoryClockRate = ml_phantom_configure()->gpu->memory_clock_khz;
    prop->singleToDoublePrecisionPerfRatio = 2;
    prop->deviceOverlap = 1;
    return ML_CUDA_Success;
}

/* Attributes that are properties too: name, member. */
#define ATTRIBUTES_OF_PROPERTIES(XX) \
    XX(MAX_THREADS_PER_BLOCK, maxThreadsPerBlock) \
    XX(MAX_SHARED_MEMORY_PER_BLOCK, sharedMemPerBlock) \
    XX(TOTAL_CONSTANT_MEMORY, totalConstMem) \
    XX(WARP_SIZE, warpSize) \
    XX(MAX_PITCH, memPitch) \
    XX(MAX_REGISTERS_PER_BLOCK, regsPerBlock) \
    XX(TEXTURE_ALIGNMENT, textureAlignment) \
    XX(MULTI_PROCESSOR_COUNT, multiProcessorCount) \
    XX(PCI_BUS_ID, pciBusID) \
    XX(GLOBAL_MEMORY_BUS_WIDTH, memoryBusWidth) \
    XX(L2_CACHE_SIZE, l2CacheSize) \
    XX(MAX_THREADS_PER_MULTI_PROCESSOR, maxThreadsPerMultiProcessor) \
    XX(ASYNC_ENGINE_COUNT, asyncEngineCount) \
    XX(COMPUTE_CAPABILITY_MAJOR, major) \
    XX(COMPUTE_CAPABILITY_MINOR, minor) \
    XX(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, sharedMemPerMultiprocessor) \
    XX(MAX_REGISTERS_PER_MULTIPROCESSOR, regsPerMultiprocessor) \
    XX(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, sharedMemPerBlockOptin) \
    XX(MAX_BLOCKS_PER_MULTIPROCESSOR, maxBlocksPerMultiProcessor) \
    XX(RESERVED_SHARED_MEMORY_PER_BLOCK, reservedSharedMemPerBlock) \
    XX(CLUSTER_LAUNCH, clusterLaunch)

ml_cuda_error
ml_phantom_attribute(int *value, int attribute, int device)
{
    ml_cuda13_device_prop prop;

    if (!is_device(device)) {
        return ML_CUDA_ErrorInvalidDevice;
    }
    FILL_PROPERTIES(&prop, device);
    switch (attribute) {
#define XX(name, member) \
    case ML_CUDA_ATTR_##name: \
        *value = (int)prop.member; \
        break;
        ATTRIBUTES_OF_PROPERTIES(XX)
#undef XX
    case ML_CUDA_ATTR_MAX_BLOCK_DIM_X:
    case ML_CUDA_ATTR_MAX_BLOCK_DIM_Y:
    case ML_CUDA_ATTR_MAX_BLOCK_DIM_Z:
        *value = prop.maxThreadsDim[attribute - ML_CUDA_ATTR_MAX_BLOCK_DIM_X];
        break;
    case ML_CUDA_ATTR_MAX_GRID_DIM_X:
    case ML_CUDA_ATTR_MAX_GRID_DIM_Y:
    case ML_CUDA_ATTR_MAX_GRID_DIM_Z:
        *value = prop.maxGridSize[attribute - ML_CUDA_ATTR_MAX_GRID_DIM_X];
        break;
    case ML_CUDA_ATTR_CLOCK_RATE:
        *value = ml_phantom_configure()->gpu->clock_khz;
        break;
    case ML_CUDA_ATTR_MEMORY_CLOCK_RATE:
        *value = ml_phantom_configure()->gpu->memory_clock_khz;
        break;
    case ML_CUDA_ATTR_CAN_MAP_HOST_MEMORY:
    case ML_CUDA_ATTR_CONCURRENT_KERNELS:
    case ML_CUDA_ATTR_UNIFIED_ADDRESSING:
    case ML_CUDA_ATTR_STREAM_PRIORITIES_SUPPORTED:
    case ML_CUDA_ATTR_MANAGED_MEMORY:
    case ML_CUDA_ATTR_COOPERATIVE_LAUNCH:
    case ML_CUDA_ATTR_HOST_REGISTER_SUPPORTED:
    case ML_CUDA_ATTR_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case ML_CUDA_ATTR_MEMORY_POOLS_SUPPORTED:
        *value = 1;
        break;
    default:
        /* Multicast, confidential computing and the rest: not available. */
        *value = 0;
        break;
    }
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaDeviceGetAttribute,
          (int *value, int attribute, int device))
{
    return ml_phantom_error(ml_phantom_attribute(value, attribute, device));
}

ML_EXPORT(ml_cuda_error, cudaDeviceGetStreamPriorityRange, (int *least, int *greatest))
{
    if (least != NULL) {
        *least = 0;
    }
    if (greatest != NULL) {
        *greatest = -5;
    }
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaDeviceGetPCIBusId, (char *id, int size, int device))
{
    if (!is_device(device)) {
        return ml_phantom_error(ML_CUDA_ErrorInvalidDevice);
    }
    unsigned int bus = (unsigned int)ml_phantom_configure()->ordinals[device] + 1;
    snprintf(id, (size_t)size, "0000:%02X:00.0", bus);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaDeviceCanAccessPeer, (int *can, int device, int peer))
{
    if (!is_device(device) || !is_device(peer)) {
        return ml_phantom_error(ML_CUDA_ErrorInvalidDevice);
    }
    *can = device != peer;
    return ML_CUDA_Success;
}

ML_SUCCEED(cudaDeviceEnablePeerAccess)
ML_SUCCEED(cudaDeviceDisablePeerAccess)
