/* Address space: where on a device a reservation is placed.
 *
 * Up to torch 2.11 the caching allocator breaks ties between equal free blocks by
 * address, so the peak it reserves depends on the order of the addresses that
 * cudaMalloc returns. The driver's, as probed on an H200: memory comes in regions
 * of a multiple of 32 MiB, a new one directly below the lowest, and a request
 * takes the lowest hole that is large enough before a new region is made.
 *
 * Owns: the arenas and what of them is reserved. Knows nothing of sizes of devices.
 */
#define _GNU_SOURCE
#include "phantom.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

/* Room for many times the largest device: expandable segments reserve more address
 * space than the device has memory, for each stream and pool. */
#define ARENA_BYTES ((size_t)4 << 40)
#define REGION_BYTES (32 * ML_MIB)

typedef struct {
    uintptr_t base;    /* 0 until the device is first used */
    uintptr_t low;     /* the lowest region's start */
    ml_spans reserved; /* Guarded by the lock. */
} arena;

static arena arenas[ML_PHANTOM_MAX_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uintptr_t
round_up(uintptr_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Takes address space from the kernel. Backed memory gets its pages when it is
 * allocated, so nothing is readable here. */
static bool
arena_init(arena *made)
{
    if (made->base != 0) {
        return true;
    }
    void *memory = mmap(NULL, ARENA_BYTES + REGION_BYTES, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("memlab phantom: cannot reserve 4 TiB of address space for a device "
               "(is ulimit -v set?)");
        return false;
    }
    madvise(memory, ARENA_BYTES + REGION_BYTES, MADV_DONTDUMP);
    made->base = round_up((uintptr_t)memory, REGION_BYTES);
    made->low = made->base + ARENA_BYTES;
    return true;
}

/* The lowest hole that holds `bytes`, or 0. */
static uintptr_t
arena_hole(const arena *searched, size_t bytes, size_t alignment)
{
    uintptr_t end = searched->low;

    for (size_t i = 0; i <= searched->reserved.count; i++) {
        const ml_span *next =
            i < searched->reserved.count ? &searched->reserved.items[i] : NULL;
        uintptr_t limit = next ? next->start : searched->base + ARENA_BYTES;
        uintptr_t start = round_up(end, alignment);

        if (start < limit && limit - start >= bytes) {
            return start;
        }
        end = next ? next->start + next->bytes : limit;
    }
    return 0;
}

uintptr_t
ml_space_reserve(size_t bytes, size_t alignment, int device)
{
    arena *chosen = &arenas[device];
    uintptr_t start = 0;

    if (alignment < ML_PHANTOM_GRANULE) {
        alignment = ML_PHANTOM_GRANULE;
    }
    pthread_mutex_lock(&lock);
    if (arena_init(chosen)) {
        start = arena_hole(chosen, bytes, alignment);
        if (start == 0 && bytes < chosen->low - chosen->base) {
            size_t unit = alignment > REGION_BYTES ? alignment : REGION_BYTES;
            start = (chosen->low - bytes) / unit * unit;
            if (start >= chosen->base) {
                chosen->low = start;
            }
            else {
                start = 0;
            }
        }
        if (start != 0 && !ml_spans_insert(&chosen->reserved, start, bytes)) {
            start = 0;
        }
    }
    pthread_mutex_unlock(&lock);
    return start;
}

/* Arenas do not move once made, so this needs no lock for a live address. */
int
ml_space_device(uintptr_t address)
{
    for (int device = 0; device < ML_PHANTOM_MAX_DEVICES; device++) {
        uintptr_t base = arenas[device].base;

        if (base != 0 && address >= base && address < base + ARENA_BYTES) {
            return device;
        }
    }
    return -1;
}

size_t
ml_space_release(uintptr_t start)
{
    int device = ml_space_device(start);
    size_t bytes = 0;

    if (device >= 0) {
        pthread_mutex_lock(&lock);
        bytes = ml_spans_remove(&arenas[device].reserved, start);
        pthread_mutex_unlock(&lock);
    }
    return bytes;
}

bool
ml_space_find(uintptr_t address, ml_span *reservation)
{
    int device = ml_space_device(address);
    bool found = false;

    if (device >= 0) {
        pthread_mutex_lock(&lock);
        const ml_span *span = ml_spans_find(&arenas[device].reserved, address);
        if (span != NULL) {
            *reservation = *span;
            found = true;
        }
        pthread_mutex_unlock(&lock);
    }
    return found;
}
