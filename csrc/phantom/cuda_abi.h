/* The types and constants of the CUDA ABI that the phantom device uses, so that
 * building memlab needs no CUDA headers.
 *
 * Owns layouts and values.  tests/c/test_cuda_abi.c compares them with the real
 * headers, if a wheel has those.  Names are CUDA's with the prefix ml_, so that both
 * can be included together. */
#ifndef ML_PHANTOM_CUDA_ABI_H
#define ML_PHANTOM_CUDA_ABI_H

#include <stddef.h>

/* Runtime errors: those that the phantom returns, and those that code compiled into
 * programs returns by itself, such as CUB's.  The first column is the suffix of CUDA's
 * name.  The driver uses the same numbers. */
#define ML_CUDA_ERRORS(XX) \
    XX(Success, 0, "no error") \
    XX(ErrorInvalidValue, 1, "invalid argument") \
    XX(ErrorMemoryAllocation, 2, "out of memory") \
    XX(ErrorInitializationError, 3, "initialization error") \
    XX(ErrorCudartUnloading, 4, "driver shutting down") \
    XX(ErrorInvalidConfiguration, 9, "invalid configuration argument") \
    XX(ErrorInvalidSymbol, 13, "invalid device symbol") \
    XX(ErrorInsufficientDriver, 35, \
       "CUDA driver version is insufficient for CUDA runtime version") \
    XX(ErrorDevicesUnavailable, 46, \
       "CUDA-capable device(s) is/are busy or unavailable") \
    XX(ErrorMissingConfiguration, 52, "__global__ function call is not configured") \
    XX(ErrorInvalidDeviceFunction, 98, "invalid device function") \
    XX(ErrorNoDevice, 100, "no CUDA-capable device is detected") \
    XX(ErrorInvalidDevice, 101, "invalid device ordinal") \
    XX(ErrorInvalidKernelImage, 200, "device kernel image is invalid") \
    XX(ErrorDeviceUninitialized, 201, "invalid device context") \
    XX(ErrorNoKernelImageForDevice, 209, \
       "no kernel image is available for execution on the device") \
    XX(ErrorPeerAccessUnsupported, 217, \
       "peer access is not supported between these two devices") \
    XX(ErrorInvalidResourceHandle, 400, "invalid resource handle") \
    XX(ErrorIllegalState, 401, \
       "the operation cannot be performed in the present state") \
    XX(ErrorSymbolNotFound, 500, "named symbol not found") \
    XX(ErrorNotReady, 600, "device not ready") \
    XX(ErrorIllegalAddress, 700, "an illegal memory access was encountered") \
    XX(ErrorLaunchOutOfResources, 701, "too many resources requested for launch") \
    XX(ErrorLaunchTimeout, 702, "the launch timed out and was terminated") \
    XX(ErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled") \
    XX(ErrorPeerAccessNotEnabled, 705, "peer access has not been enabled") \
    XX(ErrorAssert, 710, "device-side assert triggered") \
    XX(ErrorHostMemoryAlreadyRegistered, 712, \
       "part or all of the requested memory range is already mapped") \
    XX(ErrorHostMemoryNotRegistered, 713, \
       "pointer does not correspond to a registered memory region") \
    XX(ErrorLaunchFailure, 719, "unspecified launch failure") \
    XX(ErrorNotPermitted, 800, "operation not permitted") \
    XX(ErrorNotSupported, 801, "operation not supported") \
    XX(ErrorStreamCaptureUnsupported, 900, \
       "operation not permitted when stream is capturing") \
    XX(ErrorStreamCaptureInvalidated, 901, \
       "operation failed due to a previous error during capture") \
    XX(ErrorStreamCaptureMerge, 902, \
       "operation would result in a merge of separate capture sequences") \
    XX(ErrorStreamCaptureUnmatched, 903, "capture was not initiated in this stream") \
    XX(ErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work") \
    XX(ErrorStreamCaptureIsolation, 905, \
       "dependency created on uncaptured work in another stream") \
    XX(ErrorStreamCaptureImplicit, 906, \
       "operation would make the legacy stream depend on a capturing blocking stream") \
    XX(ErrorCapturedEvent, 907, \
       "operation not permitted on an event last recorded in a capturing stream") \
    XX(ErrorStreamCaptureWrongThread, 908, \
       "attempt to terminate a thread-local capture sequence from another thread") \
    XX(ErrorUnknown, 999, "unknown error")

typedef enum {
#define XX(name, value, text) ML_CUDA_##name = (value),
    ML_CUDA_ERRORS(XX)
#undef XX
} ml_cuda_error;

typedef struct {
    unsigned int x, y, z;
} ml_cuda_dim3;

/* Device properties.  CUDA 12 and 13 have these fields in this order.  CUDA 12 has some
 * that 13 dropped; the argument keeps or drops those. */
#define ML_CUDA_DEVICE_PROP(ONLY_12) \
    char name[256]; \
    char uuid[16]; \
    char luid[8]; \
    unsigned int luidDeviceNodeMask; \
    size_t totalGlobalMem; \
    size_t sharedMemPerBlock; \
    int regsPerBlock; \
    int warpSize; \
    size_t memPitch; \
    int maxThreadsPerBlock; \
    int maxThreadsDim[3]; \
    int maxGridSize[3]; \
    ONLY_12(int clockRate;) \
    size_t totalConstMem; \
    int major; \
    int minor; \
    size_t textureAlignment; \
    size_t texturePitchAlignment; \
    ONLY_12(int deviceOverlap;) \
    int multiProcessorCount; \
    ONLY_12(int kernelExecTimeoutEnabled;) \
    int integrated; \
    int canMapHostMemory; \
    ONLY_12(int computeMode;) \
    int maxTexture1D; \
    int maxTexture1DMipmap; \
    ONLY_12(int maxTexture1DLinear;) \
    int maxTexture2D[2]; \
    int maxTexture2DMipmap[2]; \
    int maxTexture2DLinear[3]; \
    int maxTexture2DGather[2]; \
    int maxTexture3D[3]; \
    int maxTexture3DAlt[3]; \
    int maxTextureCubemap; \
    int maxTexture1DLayered[2]; \
    int maxTexture2DLayered[3]; \
    int maxTextureCubemapLayered[2]; \
    int maxSurface1D; \
    int maxSurface2D[2]; \
    int maxSurface3D[3]; \
    int maxSurface1DLayered[2]; \
    int maxSurface2DLayered[3]; \
    int maxSurfaceCubemap; \
    int maxSurfaceCubemapLayered[2]; \
    size_t surfaceAlignment; \
    int concurrentKernels; \
    int ECCEnabled; \
    int pciBusID; \
    int pciDeviceID; \
    int pciDomainID; \
    int tccDriver; \
    int asyncEngineCount; \
    int unifiedAddressing; \
    ONLY_12(int memoryClockRate;) \
    int memoryBusWidth; \
    int l2CacheSize; \
    int persistingL2CacheMaxSize; \
    int maxThreadsPerMultiProcessor; \
    int streamPrioritiesSupported; \
    int globalL1CacheSupported; \
    int localL1CacheSupported; \
    size_t sharedMemPerMultiprocessor; \
    int regsPerMultiprocessor; \
    int managedMemory; \
    int isMultiGpuBoard; \
    int multiGpuBoardGroupID; \
    int hostNativeAtomicSupported; \
    ONLY_12(int singleToDoublePrecisionPerfRatio;) \
    int pageableMemoryAccess; \
    int concurrentManagedAccess; \
    int computePreemptionSupported; \
    int canUseHostPointerForRegisteredMem; \
    int cooperativeLaunch; \
    ONLY_12(int cooperativeMultiDeviceLaunch;) \
    size_t sharedMemPerBlockOptin; \
    int pageableMemoryAccessUsesHostPageTables; \
    int directManagedMemAccessFromHost; \
    int maxBlocksPerMultiProcessor; \
    int accessPolicyMaxWindowSize; \
    size_t reservedSharedMemPerBlock; \
    int hostRegisterSupported; \
    int sparseCudaArraySupported; \
    int hostRegisterReadOnlySupported; \
    int timelineSemaphoreInteropSupported; \
    int memoryPoolsSupported; \
    int gpuDirectRDMASupported; \
    unsigned int gpuDirectRDMAFlushWritesOptions; \
    int gpuDirectRDMAWritesOrdering; \
    unsigned int memoryPoolSupportedHandleTypes; \
    int deferredMappingCudaArraySupported; \
    int ipcEventSupported; \
    int clusterLaunch; \
    int unifiedFunctionPointers;

#define ML_CUDA_KEEP(field) field
#define ML_CUDA_DROP(field)

typedef struct {
    ML_CUDA_DEVICE_PROP(ML_CUDA_KEEP)
    int reserved[63];
} ml_cuda12_device_prop;

typedef struct {
    ML_CUDA_DEVICE_PROP(ML_CUDA_DROP)
    int deviceNumaConfig;
    int deviceNumaId;
    int mpsEnabled;
    int hostNumaId;
    unsigned int gpuPciDeviceID;
    unsigned int gpuPciSubsystemID;
    int hostNumaMultinodeIpcSupported;
    int reserved[56];
} ml_cuda13_device_prop;

/* cudaDeviceAttr and CUdevice_attribute share their numbers. */
enum {
    ML_CUDA_ATTR_MAX_THREADS_PER_BLOCK = 1,
    ML_CUDA_ATTR_MAX_BLOCK_DIM_X = 2,
    ML_CUDA_ATTR_MAX_BLOCK_DIM_Y = 3,
    ML_CUDA_ATTR_MAX_BLOCK_DIM_Z = 4,
    ML_CUDA_ATTR_MAX_GRID_DIM_X = 5,
    ML_CUDA_ATTR_MAX_GRID_DIM_Y = 6,
    ML_CUDA_ATTR_MAX_GRID_DIM_Z = 7,
    ML_CUDA_ATTR_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    ML_CUDA_ATTR_TOTAL_CONSTANT_MEMORY = 9,
    ML_CUDA_ATTR_WARP_SIZE = 10,
    ML_CUDA_ATTR_MAX_PITCH = 11,
    ML_CUDA_ATTR_MAX_REGISTERS_PER_BLOCK = 12,
    ML_CUDA_ATTR_CLOCK_RATE = 13,
    ML_CUDA_ATTR_TEXTURE_ALIGNMENT = 14,
    ML_CUDA_ATTR_MULTI_PROCESSOR_COUNT = 16,
    ML_CUDA_ATTR_CAN_MAP_HOST_MEMORY = 19,
    ML_CUDA_ATTR_CONCURRENT_KERNELS = 31,
    ML_CUDA_ATTR_PCI_BUS_ID = 33,
    ML_CUDA_ATTR_MEMORY_CLOCK_RATE = 36,
    ML_CUDA_ATTR_GLOBAL_MEMORY_BUS_WIDTH = 37,
    ML_CUDA_ATTR_L2_CACHE_SIZE = 38,
    ML_CUDA_ATTR_MAX_THREADS_PER_MULTI_PROCESSOR = 39,
    ML_CUDA_ATTR_ASYNC_ENGINE_COUNT = 40,
    ML_CUDA_ATTR_UNIFIED_ADDRESSING = 41,
    ML_CUDA_ATTR_COMPUTE_CAPABILITY_MAJOR = 75,
    ML_CUDA_ATTR_COMPUTE_CAPABILITY_MINOR = 76,
    ML_CUDA_ATTR_STREAM_PRIORITIES_SUPPORTED = 78,
    ML_CUDA_ATTR_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    ML_CUDA_ATTR_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
    ML_CUDA_ATTR_MANAGED_MEMORY = 83,
    ML_CUDA_ATTR_COOPERATIVE_LAUNCH = 95,
    ML_CUDA_ATTR_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    ML_CUDA_ATTR_HOST_REGISTER_SUPPORTED = 99,
    ML_CUDA_ATTR_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
    ML_CUDA_ATTR_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
    ML_CUDA_ATTR_RESERVED_SHARED_MEMORY_PER_BLOCK = 111,
    ML_CUDA_ATTR_MEMORY_POOLS_SUPPORTED = 115,
    ML_CUDA_ATTR_CLUSTER_LAUNCH = 120,
};

typedef struct {
    int type; /* enum cudaMemoryType */
    int device;
    void *devicePointer;
    void *hostPointer;
    long reserved[8]; /* CUDA 13 only: never written for CUDA 12 */
} ml_cuda_pointer_attributes;

enum {
    ML_CUDA_MEMORY_UNREGISTERED = 0,
    ML_CUDA_MEMORY_HOST = 1,
    ML_CUDA_MEMORY_DEVICE = 2,
};

typedef struct {
    size_t sharedSizeBytes;
    size_t constSizeBytes;
    size_t localSizeBytes;
    int maxThreadsPerBlock;
    int numRegs;
    int ptxVersion;
    int binaryVersion;
    int cacheModeCA;
    int maxDynamicSharedSizeBytes;
    int preferredShmemCarveout;
    int clusterDimMustBeSet;
    int requiredClusterWidth;
    int requiredClusterHeight;
    int requiredClusterDepth;
    int clusterSchedulingPolicyPreference;
    int nonPortableClusterSizeAllowed;
    int reserved[16];
} ml_cuda_func_attributes;

/* cudaMemPoolAttr */
enum {
    ML_CUDA_POOL_RELEASE_THRESHOLD = 4,
    ML_CUDA_POOL_RESERVED_CURRENT = 5,
    ML_CUDA_POOL_RESERVED_HIGH = 6,
    ML_CUDA_POOL_USED_CURRENT = 7,
    ML_CUDA_POOL_USED_HIGH = 8,
};

/* CUmemLocation and CUmemAllocationProp of the driver API. */
typedef struct {
    int type;
    int id;
} ml_cu_mem_location;

typedef struct {
    int type;
    int requestedHandleTypes;
    ml_cu_mem_location location;
    void *win32HandleMetaData;
    unsigned char allocFlags[8];
} ml_cu_mem_allocation_prop;

typedef enum {
    ML_CU_SUCCESS = 0,
    ML_CU_INVALID_VALUE = 1,
    ML_CU_OUT_OF_MEMORY = 2,
    ML_CU_INVALID_DEVICE = 101,
    ML_CU_NOT_FOUND = 500,
    ML_CU_ILLEGAL_STATE = 401,
    ML_CU_NOT_READY = 600,
    ML_CU_NOT_SUPPORTED = 801,
} ml_cu_result;

enum {
    ML_CUDA_ENTRY_POINT_SUCCESS = 0,
    ML_CUDA_ENTRY_POINT_NOT_FOUND = 1,
};

enum {
    ML_CUDA_CAPTURE_NONE = 0,
    ML_CUDA_CAPTURE_ACTIVE = 1,
};

#endif
