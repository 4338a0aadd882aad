/* The stream-ordered allocator: cudaMallocAsync and each device's default memory pool,
 * which torch uses under `backend:cudaMallocAsync`.
 *
 * A pool keeps no freed memory, so reserved equals used.  Sizes are counted in CUDA's
 * unit of 512 bytes. */
#include "phantom.h"

#include <pthread.h>

#define POOL_GRANULE ((size_t)512)

/* Guarded by the lock. */
typedef struct {
    unsigned long long threshold;
    unsigned long long used;
    unsigned long long used_high;
    ml_spans allocations; /* owned; their sizes as counted */
} pool;

static pool pools[ML_PHANTOM_MAX_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ml_cuda_error
pool_malloc(void **pointer, size_t bytes, int device)
{
    pool *from = &pools[device];
    uintptr_t start;

    ml_phantom_wait();
    *pointer = NULL;
    if (bytes == 0) {
        return ML_CUDA_Success;
    }
    if (bytes > SIZE_MAX - ML_PHANTOM_GRANULE) {
        return ML_CUDA_ErrorMemoryAllocation;
    }
    size_t counted = (bytes + POOL_GRANULE - 1) / POOL_GRANULE * POOL_GRANULE;
    size_t room =
        (bytes + ML_PHANTOM_GRANULE - 1) / ML_PHANTOM_GRANULE * ML_PHANTOM_GRANULE;
    if (!ml_phantom_charge(counted, device)) {
        return ML_CUDA_ErrorMemoryAllocation;
    }
    start = ml_space_reserve(room, ML_PHANTOM_GRANULE, device);
    pthread_mutex_lock(&lock);
    bool done = start != 0 && ml_phantom_back(start, room) &&
                ml_spans_insert(&from->allocations, start, counted);
    if (done) {
        from->used += counted;
        if (from->used > from->used_high) {
            from->used_high = from->used;
        }
    }
    pthread_mutex_unlock(&lock);
    if (!done) {
        if (start != 0) {
            ml_space_release(start);
        }
        ml_phantom_discharge(counted, device);
        return ML_CUDA_ErrorMemoryAllocation;
    }
    *pointer = (void *)start;
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaMallocAsync, (void **pointer, size_t bytes))
{
    return ml_phantom_error(pool_malloc(pointer, bytes, ml_phantom_device()));
}

ML_EXPORT(ml_cuda_error, cudaFreeAsync, (void *pointer))
{
    uintptr_t start = (uintptr_t)pointer;
    ml_span span;
    int device = ml_space_find(start, &span);

    ml_phantom_wait();
    if (pointer == NULL) {
        return ML_CUDA_Success;
    }
    if (device < 0) {
        return ml_phantom_error(ML_CUDA_ErrorInvalidValue);
    }
    pthread_mutex_lock(&lock);
    size_t counted = ml_spans_remove(&pools[device].allocations, start);
    pools[device].used -= counted;
    pthread_mutex_unlock(&lock);
    if (counted == 0) {
        /* CUDA allows to free cudaMalloc's memory here. */
        return ml_phantom_error(ml_phantom_free(pointer));
    }
    ml_phantom_unback(start, span.bytes);
    ml_space_release(start);
    ml_phantom_discharge(counted, device);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaDeviceGetDefaultMemPool, (pool * *handle, int device))
{
    if (device < 0 || device >= ml_phantom_configure()->devices) {
        return ml_phantom_error(ML_CUDA_ErrorInvalidDevice);
    }
    *handle = &pools[device];
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaMemPoolGetAttribute,
          (pool * asked, int attribute, unsigned long long *value))
{
    pthread_mutex_lock(&lock);
    switch (attribute) {
    case ML_CUDA_POOL_RELEASE_THRESHOLD:
        *value = asked->threshold;
        break;
    case ML_CUDA_POOL_RESERVED_CURRENT:
    case ML_CUDA_POOL_USED_CURRENT:
        *value = asked->used;
        break;
    case ML_CUDA_POOL_RESERVED_HIGH:
    case ML_CUDA_POOL_USED_HIGH:
        *value = asked->used_high;
        break;
    default: /* the switches for reuse: ints, on */
        *(int *)(void *)value = 1;
        break;
    }
    pthread_mutex_unlock(&lock);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaMemPoolSetAttribute,
          (pool * changed, int attribute, const unsigned long long *value))
{
    pthread_mutex_lock(&lock);
    if (attribute == ML_CUDA_POOL_RELEASE_THRESHOLD) {
        changed->threshold = *value;
    }
    else if (attribute == ML_CUDA_POOL_USED_HIGH ||
             attribute == ML_CUDA_POOL_RESERVED_HIGH) {
        changed->used_high = changed->used;
    }
    pthread_mutex_unlock(&lock);
    return ML_CUDA_Success;
}

ML_SUCCEED(cudaMemPoolSetAccess)
ML_SUCCEED_UNLOCKED(cudaMemPoolTrimTo)
