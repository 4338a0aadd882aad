/* Memory: allocations on each device and on the host, copies and fills.
 *
 * Owns the ranges of pinned host memory.  space.c places allocations; usage.c counts
 * each device's memory. */
#define _GNU_SOURCE
#include "phantom.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static ml_spans pinned;  /* Guarded by the lock. */
static ml_spans managed; /* Likewise. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct {
    size_t bytes;
    int device;
} library;

void *
ml_library_new(size_t bytes)
{
    library *made = malloc(sizeof *made);

    if (made != NULL) {
        *made = (library){bytes, ml_phantom_device()};
        if (!ml_phantom_charge(bytes, made->device)) {
            free(made);
            made = NULL;
        }
    }
    return made;
}

void
ml_library_free(void *handle)
{
    library *made = handle;

    if (made != NULL) {
        ml_phantom_discharge(made->bytes, made->device);
        free(made);
    }
}

bool
ml_phantom_back(uintptr_t start, size_t bytes)
{
    return !ml_phantom_configure()->backed ||
           mprotect((void *)start, bytes, PROT_READ | PROT_WRITE) == 0;
}

void
ml_phantom_unback(uintptr_t start, size_t bytes)
{
    ml_contents_forget(start, bytes);
    if (ml_phantom_configure()->backed) {
        madvise((void *)start, bytes, MADV_DONTNEED);
        mprotect((void *)start, bytes, PROT_NONE);
    }
}

/* --- Device memory --------------------------------------------------------- */

ml_cuda_error
ml_phantom_malloc(void **pointer, size_t bytes, int device)
{
    ml_phantom_wait();
    if (bytes > SIZE_MAX - ML_PHANTOM_GRANULE) {
        return ML_CUDA_ErrorMemoryAllocation;
    }
    bytes = (bytes + ML_PHANTOM_GRANULE - 1) / ML_PHANTOM_GRANULE * ML_PHANTOM_GRANULE;
    *pointer = NULL;
    if (bytes == 0) {
        return ML_CUDA_Success;
    }
    if (!ml_phantom_charge(bytes, device)) {
        return ML_CUDA_ErrorMemoryAllocation;
    }
    uintptr_t start = ml_space_reserve(bytes, ML_PHANTOM_GRANULE, device);
    if (start != 0 && !ml_phantom_back(start, bytes)) {
        ml_space_release(start);
        start = 0;
    }
    if (start == 0) {
        ml_phantom_discharge(bytes, device);
        return ML_CUDA_ErrorMemoryAllocation;
    }
    *pointer = (void *)start;
    return ML_CUDA_Success;
}

ml_cuda_error
ml_phantom_free(void *pointer)
{
    if (pointer == NULL) {
        return ML_CUDA_Success;
    }
    uintptr_t start = (uintptr_t)pointer;
    ml_span span;

    ml_phantom_wait();
    int device = ml_space_find(start, &span);
    if (device < 0 || span.start != start) {
        return ML_CUDA_ErrorInvalidValue;
    }
    pthread_mutex_lock(&lock);
    ml_spans_remove(&managed, start);
    pthread_mutex_unlock(&lock);
    ml_phantom_unback(start, span.bytes);
    ml_space_release(start);
    ml_phantom_discharge(span.bytes, device);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaMalloc, (void **pointer, size_t bytes))
{
    return ml_phantom_error(ml_phantom_malloc(pointer, bytes, ml_phantom_device()));
}

bool
ml_phantom_has_managed(void)
{
    pthread_mutex_lock(&lock);
    bool found = managed.count > 0;
    pthread_mutex_unlock(&lock);
    return found;
}

ML_EXPORT(ml_cuda_error, cudaMallocManaged, (void **pointer, size_t bytes))
{
    ml_cuda_error error = ml_phantom_malloc(pointer, bytes, ml_phantom_device());

    if (error == ML_CUDA_Success && *pointer != NULL) {
        pthread_mutex_lock(&lock);
        bool kept = ml_spans_insert(&managed, (uintptr_t)*pointer, bytes);
        pthread_mutex_unlock(&lock);
        if (!kept) {
            ml_phantom_free(*pointer);
            error = ML_CUDA_ErrorMemoryAllocation;
        }
    }
    return ml_phantom_error(error);
}

ML_EXPORT(ml_cuda_error, cudaFree, (void *pointer))
{
    return ml_phantom_error(ml_phantom_free(pointer));
}

ML_EXPORT(ml_cuda_error, cudaMemGetInfo, (size_t * available, size_t *total))
{
    ml_phantom_wait();
    *total = ml_phantom_configure()->total_bytes;
    size_t taken =
        ml_phantom_used(ml_phantom_device()) +
        ml_shared_used(ml_phantom_configure()->ordinals[ml_phantom_device()]);
    *available = taken < *total ? *total - taken : 0;
    return ML_CUDA_Success;
}

/* --- Pinned host memory ------------------------------------------------------ */

static bool
pin(void *pointer, size_t bytes)
{
    pthread_mutex_lock(&lock);
    bool done = ml_spans_insert(&pinned, (uintptr_t)pointer, bytes);
    pthread_mutex_unlock(&lock);
    return done;
}

static size_t
unpin(void *pointer)
{
    pthread_mutex_lock(&lock);
    size_t bytes = ml_spans_remove(&pinned, (uintptr_t)pointer);
    pthread_mutex_unlock(&lock);
    return bytes;
}

static bool
is_pinned(const void *pointer)
{
    pthread_mutex_lock(&lock);
    bool found = ml_spans_find(&pinned, (uintptr_t)pointer) != NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

static ml_cuda_error
host_alloc(void **pointer, size_t bytes)
{
    size_t room = (bytes + 4095) / 4096 * 4096;
    ml_phantom_wait();
    void *memory = bytes > SIZE_MAX - 4096 ? NULL : aligned_alloc(4096, room);

    *pointer = NULL;
    if (memory == NULL || !pin(memory, room)) {
        free(memory);
        return ml_phantom_error(ML_CUDA_ErrorMemoryAllocation);
    }
    *pointer = memory;
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaHostAlloc, (void **pointer, size_t bytes))
{
    return host_alloc(pointer, bytes);
}

ML_EXPORT(ml_cuda_error, cudaMallocHost, (void **pointer, size_t bytes))
{
    return host_alloc(pointer, bytes);
}

ML_EXPORT(ml_cuda_error, cudaFreeHost, (void *pointer))
{
    if (pointer != NULL && unpin(pointer) == 0) {
        return ml_phantom_error(ML_CUDA_ErrorInvalidValue);
    }
    free(pointer);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaHostRegister, (void *pointer, size_t bytes))
{
    if (is_pinned(pointer)) {
        return ml_phantom_error(ML_CUDA_ErrorHostMemoryAlreadyRegistered);
    }
    return pin(pointer, bytes) ? ML_CUDA_Success
                               : ml_phantom_error(ML_CUDA_ErrorMemoryAllocation);
}

ML_EXPORT(ml_cuda_error, cudaHostUnregister, (void *pointer))
{
    return unpin(pointer) ? ML_CUDA_Success
                          : ml_phantom_error(ML_CUDA_ErrorHostMemoryNotRegistered);
}

ML_EXPORT(ml_cuda_error, cudaHostGetDevicePointer, (void **device, void *host))
{
    *device = host;
    return ML_CUDA_Success;
}

bool
ml_phantom_is_reachable(const void *pointer)
{
    return ml_space_find((uintptr_t)pointer, NULL) >= 0 || is_pinned(pointer);
}

ML_EXPORT(ml_cuda_error, cudaPointerGetAttributes,
          (ml_cuda_pointer_attributes * attributes, void *pointer))
{
    int device = ml_space_find((uintptr_t)pointer, NULL);

    attributes->devicePointer = pointer;
    attributes->hostPointer = NULL;
    if (device >= 0) {
        attributes->type = ML_CUDA_MEMORY_DEVICE;
        attributes->device = device;
    }
    else if (is_pinned(pointer)) {
        attributes->type = ML_CUDA_MEMORY_HOST;
        attributes->device = ml_phantom_device();
        attributes->hostPointer = pointer;
    }
    else {
        attributes->type = ML_CUDA_MEMORY_UNREGISTERED;
        attributes->device = -1;
        attributes->devicePointer = NULL;
    }
    return ML_CUDA_Success;
}

/* --- Copies and fills --------------------------------------------------------- */

/* Without pages, writes to a device are dropped, and reads return zeros, except what
 * is known (contents.c) and NCCL's results (values.c). */
static void
copy_without_pages(void *to, bool to_device, const void *from, bool from_device,
                   size_t bytes)
{
    if (to_device && from_device) {
        ml_values_move((uintptr_t)to, (uintptr_t)from, bytes, false);
        ml_contents_move((uintptr_t)to, (uintptr_t)from, bytes, true);
    }
    else if (to_device) {
        ml_contents_write((uintptr_t)to, from, bytes);
        ml_values_write((uintptr_t)to, from, bytes);
    }
    else {
        memset(to, 0, bytes);
        ml_contents_read((uintptr_t)from, to, bytes);
        ml_values_read((uintptr_t)from, to, bytes);
    }
}

ml_cuda_error
ml_phantom_copy(void *to, const void *from, size_t bytes)
{
    bool to_device = ml_space_find((uintptr_t)to, NULL) >= 0;
    bool from_device = ml_space_find((uintptr_t)from, NULL) >= 0;

    ml_phantom_wait();
    if (bytes == 0) {
        return ML_CUDA_Success;
    }
    if ((to_device || from_device) && !ml_phantom_configure()->backed) {
        copy_without_pages(to, to_device, from, from_device, bytes);
    }
    else {
        memmove(to, from, bytes);
    }
    return ML_CUDA_Success;
}

void
ml_phantom_fill(void *to, int byte, size_t bytes)
{
    ml_phantom_wait();
    if (ml_space_find((uintptr_t)to, NULL) < 0 || ml_phantom_configure()->backed) {
        memset(to, byte, bytes);
    }
    else {
        ml_values_forget((uintptr_t)to, bytes);
        ml_contents_fill((uintptr_t)to, byte, bytes);
    }
}

ML_EXPORT(ml_cuda_error, cudaMemcpy, (void *to, const void *from, size_t bytes))
{
    return ml_phantom_copy(to, from, bytes);
}

ML_EXPORT(ml_cuda_error, cudaMemcpyAsync, (void *to, const void *from, size_t bytes))
{
    return ml_phantom_copy(to, from, bytes);
}

ML_EXPORT(ml_cuda_error, cudaMemcpyPeer,
          (void *to, int to_device, const void *from, int from_device, size_t bytes))
{
    (void)to_device;
    (void)from_device;
    return ml_phantom_copy(to, from, bytes);
}

ML_EXPORT(ml_cuda_error, cudaMemcpyPeerAsync,
          (void *to, int to_device, const void *from, int from_device, size_t bytes))
{
    (void)to_device;
    (void)from_device;
    return ml_phantom_copy(to, from, bytes);
}

ML_EXPORT(ml_cuda_error, cudaMemcpy2DAsync,
          (char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width,
           size_t height))
{
    for (size_t row = 0; row < height; row++) {
        ml_phantom_copy(to + row * to_pitch, from + row * from_pitch, width);
    }
    return ML_CUDA_Success;
}

#define NOT_SHARED(name) \
    ML_LACKS(ml_cuda_error, name, ml_phantom_error(ML_CUDA_ErrorNotSupported), \
             ML_NOT_SHARED)

NOT_SHARED(cudaIpcGetMemHandle)
NOT_SHARED(cudaIpcOpenMemHandle)
NOT_SHARED(cudaIpcCloseMemHandle)
NOT_SHARED(cudaIpcGetEventHandle)
NOT_SHARED(cudaIpcOpenEventHandle)

ML_SUCCEED(cudaMemcpyToSymbol)
ML_SUCCEED(cudaMemcpyToSymbolAsync)

ML_EXPORT(ml_cuda_error, cudaMemset, (void *to, int byte, size_t bytes))
{
    ml_phantom_fill(to, byte, bytes);
    return ML_CUDA_Success;
}

ML_EXPORT(ml_cuda_error, cudaMemsetAsync, (void *to, int byte, size_t bytes))
{
    ml_phantom_fill(to, byte, bytes);
    return ML_CUDA_Success;
}
