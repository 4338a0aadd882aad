/* Reserved address space of each device, by the rule in core/gpu/placement.h.
 *
 * Like the driver, it maps regions into the process, so they lie in the gaps of the
 * program's own memory, as on a GPU.
 *
 * Owns the regions, which are mappings without access. */
#define _GNU_SOURCE
#include "phantom.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/gpu/placement.h"

static ml_placement *placements[ML_PHANTOM_MAX_DEVICES]; /* Guarded by the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Maps as much more as the alignment takes, then gives the rest back.  The size decides
 * which gaps are wide enough.  Backed memory gets its pages when it is allocated, so
 * nothing is readable here. */
static uint64_t
map_region(void *self, uint64_t bytes, uint64_t alignment)
{
    size_t room = bytes + alignment - (size_t)sysconf(_SC_PAGESIZE);
    void *memory =
        mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)self;
    if (memory == MAP_FAILED) {
        perror("memlab phantom: cannot reserve address space for device memory (is "
               "ulimit -v set?)");
        return 0;
    }
    uintptr_t begin = (uintptr_t)memory;
    uintptr_t start = (begin + alignment - 1) / alignment * alignment;
    if (start > begin) {
        munmap(memory, start - begin);
    }
    if (start + bytes < begin + room) {
        munmap((void *)(start + bytes), begin + room - start - bytes);
    }
    madvise((void *)start, bytes, MADV_DONTDUMP);
    return start;
}

static void
unmap_region(void *self, uint64_t start, uint64_t bytes)
{
    (void)self;
    munmap((void *)start, bytes);
}

/* The placement of a device; NULL: no memory. */
static ml_placement *
placement_of(int device)
{
    static const ml_placement_space space = {.map = map_region, .unmap = unmap_region};

    if (placements[device] == NULL) {
        ml_placement_new_mapped(&space, &placements[device]);
    }
    return placements[device];
}

uintptr_t
ml_space_reserve(size_t bytes, size_t alignment, int device)
{
    uintptr_t start = 0;

    pthread_mutex_lock(&lock);
    ml_placement *chosen = placement_of(device);
    if (chosen != NULL) {
        start = ml_placement_take(chosen, bytes, alignment);
    }
    pthread_mutex_unlock(&lock);
    return start;
}

size_t
ml_space_release(uintptr_t start)
{
    size_t bytes = 0;

    pthread_mutex_lock(&lock);
    for (int device = 0; device < ML_PHANTOM_MAX_DEVICES && bytes == 0; device++) {
        if (placements[device] != NULL) {
            bytes = ml_placement_give(placements[device], start);
        }
    }
    pthread_mutex_unlock(&lock);
    return bytes;
}

int
ml_space_find(uintptr_t address, ml_span *reservation)
{
    uint64_t start = 0, bytes = 0;
    int found = -1;

    pthread_mutex_lock(&lock);
    for (int device = 0; device < ML_PHANTOM_MAX_DEVICES && found < 0; device++) {
        if (placements[device] != NULL &&
            ml_placement_find(placements[device], address, &start, &bytes)) {
            found = device;
        }
    }
    pthread_mutex_unlock(&lock);
    if (found >= 0 && reservation != NULL) {
        *reservation = (ml_span){start, bytes};
    }
    return found;
}
