/* Address space: where on a device a reservation is placed.
 *
 * Up to torch 2.11 the caching allocator breaks ties between equal free blocks by
 * address, so the peak it reserves depends on the order of the addresses that
 * cudaMalloc returns. This is the driver's rule, found from 3,000 random calls of
 * cudaMalloc and cudaFree on an H200, of which it gives every address that does not
 * depend on what the context itself holds:
 *
 * - Memory comes in regions of a multiple of 32 MiB.
 * - A request takes the newest region with a hole that is large enough, and in it the
 *   smallest such hole, the lowest of equals.
 * - Else a new region is made in the highest gap between regions that is larger than
 *   it, at the gap's upper end; else directly below the lowest region.
 * - A region that has become empty is given up.
 *
 * Owns: the arenas and what of them is reserved. Knows nothing of sizes of devices.
 */
#define _GNU_SOURCE
#include "phantom.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Room for many times the largest device: expandable segments reserve more address
 * space than the device has memory, for each stream and pool. */
#define ARENA_BYTES ((size_t)4 << 40)
#define REGION_BYTES (32 * ML_MIB)

typedef struct {
    uintptr_t start;
    size_t bytes;
    unsigned long long serial; /* the higher, the newer */
    ml_spans reserved;         /* owned */
} region;

/* Guarded by the lock, but for the base, which never changes once it is set. */
typedef struct {
    uintptr_t base;  /* 0 until the device is first used */
    region *regions; /* owned, in ascending order */
    size_t count;
    size_t capacity;
    unsigned long long serials;
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
    return true;
}

/* The smallest hole of a region that holds `bytes`, the lowest of equals, or 0. */
static uintptr_t
region_hole(const region *searched, size_t bytes, size_t alignment)
{
    uintptr_t best = 0, end = searched->start;
    size_t best_bytes = SIZE_MAX;

    for (size_t i = 0; i <= searched->reserved.count; i++) {
        bool last = i == searched->reserved.count;
        uintptr_t limit = last ? searched->start + searched->bytes
                               : searched->reserved.items[i].start;
        uintptr_t start = round_up(end, alignment);

        if (start < limit && limit - start >= bytes && limit - start < best_bytes) {
            best = start;
            best_bytes = limit - start;
        }
        if (!last) {
            end = limit + searched->reserved.items[i].bytes;
        }
    }
    return best;
}

/* The newest region with a hole that holds `bytes`, and the hole; or NULL. */
static region *
arena_hole(const arena *searched, size_t bytes, size_t alignment, uintptr_t *hole)
{
    region *newest = NULL;

    for (size_t i = 0; i < searched->count; i++) {
        region *each = &searched->regions[i];

        if (newest == NULL || each->serial > newest->serial) {
            uintptr_t found = region_hole(each, bytes, alignment);

            if (found != 0) {
                newest = each;
                *hole = found;
            }
        }
    }
    return newest;
}

/* Makes a region of `bytes` and returns it; NULL when there is no room. */
static region *
arena_region(arena *grown, size_t bytes, size_t alignment)
{
    if (grown->count == grown->capacity) {
        size_t capacity = grown->capacity ? 2 * grown->capacity : 64;
        region *regions = realloc(grown->regions, capacity * sizeof *regions);

        if (regions == NULL) {
            return NULL;
        }
        grown->regions = regions;
        grown->capacity = capacity;
    }
    /* Region i - 1 lies below the gap, region i or the arena's end above it. */
    uintptr_t start = 0, end = grown->base + ARENA_BYTES;
    size_t i;
    for (i = grown->count; i > 0; i--) {
        const region *below = &grown->regions[i - 1];

        if (end - (below->start + below->bytes) > bytes) {
            start = end - bytes;
            break;
        }
        end = below->start;
    }
    if (start == 0 && end - grown->base > bytes) {
        start = end - bytes;
    }
    start = start / alignment * alignment;
    if (start < grown->base ||
        (i > 0 && start < grown->regions[i - 1].start + grown->regions[i - 1].bytes)) {
        return NULL;
    }
    memmove(&grown->regions[i + 1], &grown->regions[i],
            (grown->count - i) * sizeof *grown->regions);
    grown->count++;
    grown->regions[i] = (region){start, bytes, ++grown->serials, {0}};
    return &grown->regions[i];
}

/* The region that `address` lies in, or NULL. */
static region *
arena_find(const arena *searched, uintptr_t address)
{
    size_t low = 0, high = searched->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        region *each = &searched->regions[middle];

        if (address < each->start) {
            high = middle;
        }
        else if (address - each->start >= each->bytes) {
            low = middle + 1;
        }
        else {
            return each;
        }
    }
    return NULL;
}

/* Gives up a region that holds nothing. */
static void
arena_drop(arena *shrunk, region *dropped)
{
    size_t index = (size_t)(dropped - shrunk->regions);

    free(dropped->reserved.items);
    shrunk->count--;
    memmove(dropped, dropped + 1, (shrunk->count - index) * sizeof *dropped);
}

uintptr_t
ml_space_reserve(size_t bytes, size_t alignment, int device)
{
    arena *chosen = &arenas[device];
    uintptr_t start = 0;

    if (bytes == 0 || bytes > ARENA_BYTES) {
        return 0;
    }
    if (alignment < ML_PHANTOM_GRANULE) {
        alignment = ML_PHANTOM_GRANULE;
    }
    pthread_mutex_lock(&lock);
    if (arena_init(chosen)) {
        region *taken = arena_hole(chosen, bytes, alignment, &start);

        if (taken == NULL) {
            size_t unit = alignment > REGION_BYTES ? alignment : REGION_BYTES;

            taken = arena_region(chosen, round_up(bytes, REGION_BYTES), unit);
            start = taken ? taken->start : 0;
        }
        if (taken != NULL && !ml_spans_insert(&taken->reserved, start, bytes)) {
            start = 0;
            if (taken->reserved.count == 0) {
                arena_drop(chosen, taken);
            }
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
        region *holder = arena_find(&arenas[device], start);
        if (holder != NULL) {
            bytes = ml_spans_remove(&holder->reserved, start);
            if (holder->reserved.count == 0) {
                arena_drop(&arenas[device], holder);
            }
        }
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
        const region *holder = arena_find(&arenas[device], address);
        const ml_span *span = holder ? ml_spans_find(&holder->reserved, address) : NULL;
        if (span != NULL) {
            *reservation = *span;
            found = true;
        }
        pthread_mutex_unlock(&lock);
    }
    return found;
}
