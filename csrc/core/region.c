/* Reserved address space; see region.h.
 *
 * Built on anonymous private mappings, which survive fork() by copy on write, so that a
 * child's tables are its own. */

/* MAP_ANONYMOUS and madvise are not part of C11 or POSIX. */
#define _DEFAULT_SOURCE 1

#include "region.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "memlab.h"

int
ml_region_init(ml_region *region, size_t bytes, size_t minimum)
{
    if (minimum == 0 || minimum > bytes) {
        return ML_EINVALID;
    }
    for (; bytes >= minimum; bytes /= 2) {
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
    /* Locked memory refuses to be discarded, and the promise of zeros has to hold. */
    if (region->base != NULL && madvise(region->base, region->bytes, MADV_DONTNEED)) {
        memset(region->base, 0, region->bytes);
    }
}
