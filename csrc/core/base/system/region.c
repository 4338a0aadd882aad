/* Reserves address space.  See region.h.
 *
 * Uses anonymous private mappings, which survive fork() by copy on write, so that a
 * child has its own tables. */

/* MAP_ANONYMOUS and madvise are not part of C11 or POSIX. */
#define _DEFAULT_SOURCE 1

#include "base/system/region.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "memlab.h"

/* If the process's address space is limited, a region takes at most this part of it:
 * the program loses what is reserved. */
#define LIMIT_SHARE 8
/* Every region may have this. */
#define LEAST_MOST ((size_t)1 << 20)

static size_t
most_bytes(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return SIZE_MAX;
    }
    rlim_t share = limit.rlim_cur / LIMIT_SHARE;
    return share > LEAST_MOST ? (size_t)share : LEAST_MOST;
}

int
ml_region_init(ml_region *region, size_t bytes, size_t minimum)
{
    if (minimum == 0 || minimum > bytes) {
        return ML_EINVALID;
    }
    size_t most = most_bytes();
    for (; bytes >= minimum; bytes /= 2) {
        if (bytes > most) {
            continue;
        }
        void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base != MAP_FAILED) {
            region->base = base;
            region->bytes = bytes;
            return 0;
        }
    }
    return ML_ENOMEM;
}

void
ml_region_fini(ml_region *region)
{
    if (region->base != NULL) {
        munmap(region->base, region->bytes);
    }
    region->base = NULL;
    region->bytes = 0;
}

void
ml_region_discard(ml_region *region)
{
    /* Locked memory refuses to be discarded, but must read as zeros. */
    if (region->base != NULL && madvise(region->base, region->bytes, MADV_DONTNEED)) {
        memset(region->base, 0, region->bytes);
    }
}
