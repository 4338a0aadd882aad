/* Address space: what of each device's is reserved, by the rule of core/placement.h.
 *
 * Owns: the arenas, which come from the kernel as pages that cannot be touched. Knows
 * nothing of sizes of devices.
 */
#define _GNU_SOURCE
#include "phantom.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

#include "placement.h"

/* Room for many times the largest device: expandable segments reserve more address
 * space than the device has memory, for each stream and pool. */
#define ARENA_BYTES ((size_t)4 << 40)

/* Guarded by the lock, but for the base, which never changes once it is set. */
typedef struct {
    uintptr_t base;          /* 0 until the device is first used */
    ml_placement *placement; /* owned, never freed */
} arena;

static arena arenas[ML_PHANTOM_MAX_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Takes address space from the kernel. Backed memory gets its pages when it is
 * allocated, so nothing is readable here. */
static bool
arena_init(arena *made)
{
    if (made->base != 0) {
        return true;
    }
    void *memory = mmap(NULL, ARENA_BYTES + ML_PLACEMENT_REGION, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("memlab phantom: cannot reserve 4 TiB of address space for a device "
               "(is ulimit -v set?)");
        return false;
    }
    madvise(memory, ARENA_BYTES + ML_PLACEMENT_REGION, MADV_DONTDUMP);
    uintptr_t base = ((uintptr_t)memory + ML_PLACEMENT_REGION - 1) /
                     ML_PLACEMENT_REGION * ML_PLACEMENT_REGION;
    if (ml_placement_new(base, ARENA_BYTES, ML_PLACEMENT_DRIVER, 0, &made->placement) !=
        0) {
        munmap(memory, ARENA_BYTES + ML_PLACEMENT_REGION);
        return false;
    }
    made->base = base;
    return true;
}

uintptr_t
ml_space_reserve(size_t bytes, size_t alignment, int device)
{
    arena *chosen = &arenas[device];
    uintptr_t start = 0;

    pthread_mutex_lock(&lock);
    if (arena_init(chosen)) {
        start = ml_placement_take(chosen->placement, bytes, alignment);
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
        bytes = ml_placement_give(arenas[device].placement, start);
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
        uint64_t start, bytes;

        pthread_mutex_lock(&lock);
        found = ml_placement_find(arenas[device].placement, address, &start, &bytes);
        pthread_mutex_unlock(&lock);
        if (found) {
            *reservation = (ml_span){start, bytes};
        }
    }
    return found;
}
