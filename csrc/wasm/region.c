/* The regions of core/base/system/region.h where there is no address space without memory. */
#include "core/base/system/region.h"

#include <stdint.h>
#include <string.h>

#include "core/base/base.h"

#define ALIGNMENT ((size_t)64)

int
ml_region_init(ml_region *region, size_t bytes, size_t minimum)
{
    if (minimum == 0 || minimum > bytes) {
        return ML_EINVALID;
    }
    /* A smaller one could turn out too small, which nobody would be told. */
    if (bytes > SIZE_MAX - ALIGNMENT) {
        return ML_ENOMEM;
    }
    char *memory = ml_alloc_zeroed(1, bytes + ALIGNMENT);
    if (memory == NULL) {
        return ML_ENOMEM;
    }
    char *base = memory + ALIGNMENT - (uintptr_t)memory % ALIGNMENT;
    base[-1] = (char)(base - memory);
    *region = (ml_region){base, bytes};
    return 0;
}

void
ml_region_fini(ml_region *region)
{
    char *base = region->base;
    if (base != NULL) {
        ml_free(base - base[-1]);
    }
    *region = (ml_region){0};
}

void
ml_region_discard(ml_region *region)
{
    if (region->base != NULL) {
        memset(region->base, 0, region->bytes);
    }
}
