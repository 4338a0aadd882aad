/* How much of a mapping is memory.  The test that includes this defines _DEFAULT_SOURCE
 * first: mincore is not part of C11 or POSIX. */
#ifndef ML_TEST_RESIDENT_H
#define ML_TEST_RESIDENT_H

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/system/region.h"

/* Bytes; SIZE_MAX where the system does not tell. */
static inline size_t
resident_bytes(const ml_region *region)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char flag;
    size_t resident = 0;

    for (size_t at = 0; at < region->bytes; at += page) {
        if (mincore((unsigned char *)region->base + at, page, &flag) != 0) {
            return SIZE_MAX;
        }
        resident += (flag & 1u) != 0 ? page : 0;
    }
    return resident;
}

#endif
