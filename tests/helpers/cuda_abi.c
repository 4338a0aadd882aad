/* The phantom's declarations of CUDA's ABI against CUDA's own headers: compiling this
 * file is the test.  With -DCUDNN also those of cuDNN. */
#include <stddef.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "cuda_abi.h"

#if CUDART_VERSION >= 13000
typedef ml_cuda13_device_prop device_prop;
#else
typedef ml_cuda12_device_prop device_prop;
#endif

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
#define SAME_FIELD(ours, theirs, field) \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, field), \
                   #theirs "." #field); \
    _Static_assert(sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->field), \
                   "size of " #theirs "." #field)
#define SAME_PROP(field) SAME_FIELD(device_prop, struct cudaDeviceProp, field)

_Static_assert(sizeof(device_prop) == sizeof(struct cudaDeviceProp), "cudaDeviceProp");
SAME_PROP(name);
SAME_PROP(uuid);
SAME_PROP(totalGlobalMem);
SAME_PROP(sharedMemPerBlock);
SAME_PROP(regsPerBlock);
SAME_PROP(warpSize);
SAME_PROP(maxThreadsPerBlock);
SAME_PROP(maxThreadsDim);
SAME_PROP(maxGridSize);
SAME_PROP(totalConstMem);
SAME_PROP(major);
SAME_PROP(minor);
SAME_PROP(textureAlignment);
SAME_PROP(multiProcessorCount);
SAME_PROP(canMapHostMemory);
SAME_PROP(surfaceAlignment);
SAME_PROP(concurrentKernels);
SAME_PROP(pciBusID);
SAME_PROP(asyncEngineCount);
SAME_PROP(unifiedAddressing);
SAME_PROP(memoryBusWidth);
SAME_PROP(l2CacheSize);
SAME_PROP(maxThreadsPerMultiProcessor);
SAME_PROP(sharedMemPerMultiprocessor);
SAME_PROP(regsPerMultiprocessor);
SAME_PROP(managedMemory);
SAME_PROP(cooperativeLaunch);
SAME_PROP(sharedMemPerBlockOptin);
SAME_PROP(maxBlocksPerMultiProcessor);
SAME_PROP(reservedSharedMemPerBlock);
SAME_PROP(hostRegisterSupported);
SAME_PROP(memoryPoolsSupported);
SAME_PROP(clusterLaunch);

#define XX(name, value, text) SAME(ML_CUDA_##name, cuda##name);
ML_CUDA_ERRORS(XX)
#undef XX

SAME(ML_CUDA_ATTR_MAX_THREADS_PER_BLOCK, cudaDevAttrMaxThreadsPerBlock);
SAME(ML_CUDA_ATTR_MAX_BLOCK_DIM_X, cudaDevAttrMaxBlockDimX);
SAME(ML_CUDA_ATTR_MAX_GRID_DIM_Z, cudaDevAttrMaxGridDimZ);
SAME(ML_CUDA_ATTR_MAX_SHARED_MEMORY_PER_BLOCK, cudaDevAttrMaxSharedMemoryPerBlock);
SAME(ML_CUDA_ATTR_WARP_SIZE, cudaDevAttrWarpSize);
SAME(ML_CUDA_ATTR_MULTI_PROCESSOR_COUNT, cudaDevAttrMultiProcessorCount);
SAME(ML_CUDA_ATTR_L2_CACHE_SIZE, cudaDevAttrL2CacheSize);
SAME(ML_CUDA_ATTR_MAX_THREADS_PER_MULTI_PROCESSOR,
     cudaDevAttrMaxThreadsPerMultiProcessor);
SAME(ML_CUDA_ATTR_COMPUTE_CAPABILITY_MAJOR, cudaDevAttrComputeCapabilityMajor);
SAME(ML_CUDA_ATTR_COMPUTE_CAPABILITY_MINOR, cudaDevAttrComputeCapabilityMinor);
SAME(ML_CUDA_ATTR_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
     cudaDevAttrMaxSharedMemoryPerBlockOptin);
SAME(ML_CUDA_ATTR_MAX_BLOCKS_PER_MULTIPROCESSOR, cudaDevAttrMaxBlocksPerMultiprocessor);
SAME(ML_CUDA_ATTR_RESERVED_SHARED_MEMORY_PER_BLOCK,
     cudaDevAttrReservedSharedMemoryPerBlock);
SAME(ML_CUDA_ATTR_MEMORY_POOLS_SUPPORTED, cudaDevAttrMemoryPoolsSupported);
SAME(ML_CUDA_ATTR_CLUSTER_LAUNCH, cudaDevAttrClusterLaunch);
SAME(ML_CUDA_ATTR_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
     CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);

SAME_FIELD(ml_cuda_pointer_attributes, struct cudaPointerAttributes, type);
SAME_FIELD(ml_cuda_pointer_attributes, struct cudaPointerAttributes, device);
SAME_FIELD(ml_cuda_pointer_attributes, struct cudaPointerAttributes, devicePointer);
SAME_FIELD(ml_cuda_pointer_attributes, struct cudaPointerAttributes, hostPointer);
SAME(ML_CUDA_MEMORY_UNREGISTERED, cudaMemoryTypeUnregistered);
SAME(ML_CUDA_MEMORY_HOST, cudaMemoryTypeHost);
SAME(ML_CUDA_MEMORY_DEVICE, cudaMemoryTypeDevice);

SAME_FIELD(ml_cuda_func_attributes, struct cudaFuncAttributes, maxThreadsPerBlock);
SAME_FIELD(ml_cuda_func_attributes, struct cudaFuncAttributes, numRegs);
SAME_FIELD(ml_cuda_func_attributes, struct cudaFuncAttributes, ptxVersion);
SAME_FIELD(ml_cuda_func_attributes, struct cudaFuncAttributes, binaryVersion);
SAME_FIELD(ml_cuda_func_attributes, struct cudaFuncAttributes,
           maxDynamicSharedSizeBytes);

SAME(ML_CUDA_POOL_RELEASE_THRESHOLD, cudaMemPoolAttrReleaseThreshold);
SAME(ML_CUDA_POOL_RESERVED_CURRENT, cudaMemPoolAttrReservedMemCurrent);
SAME(ML_CUDA_POOL_RESERVED_HIGH, cudaMemPoolAttrReservedMemHigh);
SAME(ML_CUDA_POOL_USED_CURRENT, cudaMemPoolAttrUsedMemCurrent);
SAME(ML_CUDA_POOL_USED_HIGH, cudaMemPoolAttrUsedMemHigh);

SAME_FIELD(ml_cu_mem_allocation_prop, CUmemAllocationProp, type);
SAME_FIELD(ml_cu_mem_allocation_prop, CUmemAllocationProp, location);
_Static_assert(sizeof(ml_cu_mem_allocation_prop) == sizeof(CUmemAllocationProp),
               "CUmemAllocationProp");

SAME(ML_CU_SUCCESS, CUDA_SUCCESS);
SAME(ML_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(ML_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(ML_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(ML_CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(ML_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(ML_CUDA_ENTRY_POINT_SUCCESS, cudaDriverEntryPointSuccess);
SAME(ML_CUDA_ENTRY_POINT_NOT_FOUND, cudaDriverEntryPointSymbolNotFound);
SAME(ML_CUDA_CAPTURE_NONE, cudaStreamCaptureStatusNone);
SAME(ML_CUDA_CAPTURE_ACTIVE, cudaStreamCaptureStatusActive);
