/* Sorted arrays: a device holds hundreds of regions, not millions. */
#include "gpu/placement.h"

#include <string.h>

#include "base/base.h"

#define LIMIT ((uint64_t)1 << 63)

typedef struct {
    uint64_t start; /* first, for ml_find_address() */
    uint64_t bytes;
} range;

typedef struct {
    uint64_t start; /* first, for ml_find_address() */
    uint64_t bytes;
    uint64_t free;   /* free bytes in it */
    uint64_t serial; /* higher is newer */
    range *taken;    /* owned, ascending */
    size_t count;
    size_t capacity;
} region;

struct ml_placement {
    ml_placement_space space; /* .map is NULL: regions lie in base and bytes */
    uint64_t base;
    uint64_t bytes;
    enum ml_placement_policy policy;
    uint64_t draws;  /* hashed for ML_PLACEMENT_SHUFFLED */
    uint64_t serial; /* of the newest region */
    region *regions; /* owned, ascending; without the driver's rule one for all */
    size_t count;
    size_t capacity;
    int error;
};

static uint64_t
round_down(uint64_t value, uint64_t power)
{
    return value & ~(power - 1);
}

static uint64_t
round_up(uint64_t value, uint64_t power)
{
    return round_down(value + power - 1, power);
}

/* --- Ranges of a region --------------------------------------------------------------- */

/* The address in WITHIN that the policy gives BYTES at a multiple of ALIGNMENT; 0: no
 * hole has room.  ABOVE is random: the first place from there on is taken, else the
 * first of all. */
static uint64_t
choose_hole(const region *within, enum ml_placement_policy policy, uint64_t bytes,
            uint64_t alignment, uint64_t above)
{
    uint64_t best = 0, best_bytes = UINT64_MAX, low = within->start;

    for (size_t i = 0; i <= within->count; i++) {
        bool last = i == within->count;
        uint64_t high = last ? within->start + within->bytes : within->taken[i].start;
        uint64_t start = round_up(low, alignment);

        low = last ? high : high + within->taken[i].bytes;
        if (start > high || high - start < bytes) {
            continue;
        }
        if (policy == ML_PLACEMENT_DRIVER) {
            if (high - start < best_bytes) {
                best = start;
                best_bytes = high - start;
            }
        }
        else if (policy == ML_PLACEMENT_DESCENDING) {
            best = round_down(high - bytes, alignment);
        }
        else {
            uint64_t place = start < above ? above : start;
            if (place <= high - bytes) {
                return place;
            }
            best = best == 0 ? start : best;
        }
    }
    return best;
}

static int
insert_range(region *within, uint64_t start, uint64_t bytes)
{
    int error = ml_grow((void **)&within->taken, &within->capacity, within->count + 1,
                        sizeof *within->taken);
    if (error != 0) {
        return error;
    }
    size_t index =
        ml_find_address(within->taken, sizeof *within->taken, within->count, start);
    memmove(&within->taken[index + 1], &within->taken[index],
            (within->count - index) * sizeof *within->taken);
    within->taken[index] = (range){start, bytes};
    within->count++;
    within->free -= bytes;
    return 0;
}

/* The index of the item with ADDRESS in ITEMS, which begin with start and bytes; COUNT:
 * none. */
static size_t
find_holder(const void *items, size_t size, size_t count, uint64_t address)
{
    size_t index = ml_find_address(items, size, count, address);
    const uint64_t *item =
        (const uint64_t *)(const void *)((const char *)items + index * size);
    if (index < count && item[0] == address) {
        return index;
    }
    if (index == 0) {
        return count;
    }
    item = (const uint64_t *)(const void *)((const char *)items + (index - 1) * size);
    return address - item[0] < item[1] ? index - 1 : count;
}

/* --- Regions -------------------------------------------------------------------------- */

/* The newest region with a hole for BYTES, at *HOLE; NULL: none. */
static region *
find_region(const ml_placement *placement, uint64_t bytes, uint64_t alignment,
            uint64_t above, uint64_t *hole)
{
    region *newest = NULL;

    for (size_t i = 0; i < placement->count; i++) {
        region *each = &placement->regions[i];

        if (each->free < bytes || (newest != NULL && each->serial < newest->serial)) {
            continue;
        }
        uint64_t found = choose_hole(each, placement->policy, bytes, alignment, above);
        if (found != 0) {
            newest = each;
            *hole = found;
        }
    }
    return newest;
}

/* Makes a region at START, above INDEX others. */
static region *
insert_region(ml_placement *placement, size_t index, uint64_t start, uint64_t bytes)
{
    int error = ml_grow((void **)&placement->regions, &placement->capacity,
                        placement->count + 1, sizeof *placement->regions);
    if (error != 0) {
        placement->error = error;
        return NULL;
    }
    region *made = &placement->regions[index];
    memmove(made + 1, made, (placement->count - index) * sizeof *made);
    placement->count++;
    *made = (region){
        .start = start, .bytes = bytes, .free = bytes, .serial = ++placement->serial};
    return made;
}

/* Maps a region for BYTES; NULL: no room. */
static region *
map_region(ml_placement *placement, uint64_t bytes, uint64_t alignment)
{
    const ml_placement_space *space = &placement->space;
    uint64_t start = space->map(space->self, bytes, alignment);
    if (start == 0) {
        return NULL;
    }
    size_t index = ml_find_address(placement->regions, sizeof *placement->regions,
                                   placement->count, start);
    region *made = insert_region(placement, index, start, bytes);
    if (made == NULL) {
        space->unmap(space->self, start, bytes);
    }
    return made;
}

/* Makes a region for BYTES by the driver's rule; NULL: no room. */
static region *
make_region(ml_placement *placement, uint64_t bytes, uint64_t alignment)
{
    uint64_t unit = alignment > ML_PLACEMENT_REGION ? alignment : ML_PLACEMENT_REGION;
    uint64_t end = placement->base + placement->bytes;

    bytes = round_up(bytes, ML_PLACEMENT_REGION);
    if (placement->space.map != NULL) {
        return map_region(placement, bytes, unit);
    }
    /* From the highest gap, which is above region i - 1, to the one below all
     * regions. */
    for (size_t i = placement->count;; i--) {
        const region *below = i > 0 ? &placement->regions[i - 1] : NULL;
        uint64_t low = below ? below->start + below->bytes : placement->base;

        if (end - low > bytes) {
            uint64_t start = round_down(end - bytes, unit);
            return start < low ? NULL : insert_region(placement, i, start, bytes);
        }
        if (below == NULL) {
            return NULL;
        }
        end = below->start;
    }
}

static void
drop_region(ml_placement *placement, region *dropped)
{
    size_t index = (size_t)(dropped - placement->regions);

    if (placement->space.unmap != NULL) {
        placement->space.unmap(placement->space.self, dropped->start, dropped->bytes);
    }
    ml_free(dropped->taken);
    placement->count--;
    memmove(dropped, dropped + 1, (placement->count - index) * sizeof *dropped);
}

static region *
holder_of(const ml_placement *placement, uint64_t address)
{
    size_t index = find_holder(placement->regions, sizeof *placement->regions,
                               placement->count, address);
    return index < placement->count ? &placement->regions[index] : NULL;
}

static void
drop_if_empty(ml_placement *placement, region *within)
{
    if (within->count == 0 && placement->policy == ML_PLACEMENT_DRIVER) {
        drop_region(placement, within);
    }
}

/* --- The placement -------------------------------------------------------------------- */

int
ml_placement_new(uint64_t base, uint64_t bytes, enum ml_placement_policy policy,
                 uint64_t seed, ml_placement **out)
{
    if (base == 0 || base >= LIMIT || bytes >= LIMIT - base || bytes == 0 ||
        base % ML_PLACEMENT_REGION != 0 || bytes % ML_PLACEMENT_REGION != 0) {
        return ML_EINVALID;
    }
    ml_placement *made = ml_alloc_zeroed(1, sizeof *made);
    if (made == NULL) {
        return ML_ENOMEM;
    }
    *made = (ml_placement){
        .base = base, .bytes = bytes, .policy = policy, .draws = ml_hash_u64(seed + 1)};
    if (policy != ML_PLACEMENT_DRIVER && insert_region(made, 0, base, bytes) == NULL) {
        ml_placement_free(made);
        return ML_ENOMEM;
    }
    *out = made;
    return 0;
}

int
ml_placement_new_mapped(const ml_placement_space *space, ml_placement **out)
{
    ml_placement *made = ml_alloc_zeroed(1, sizeof *made);
    if (made == NULL) {
        return ML_ENOMEM;
    }
    *made = (ml_placement){
        .space = *space, .bytes = LIMIT - 1, .policy = ML_PLACEMENT_DRIVER};
    *out = made;
    return 0;
}

void
ml_placement_free(ml_placement *placement)
{
    if (placement == NULL) {
        return;
    }
    for (size_t i = 0; i < placement->count; i++) {
        ml_free(placement->regions[i].taken);
    }
    ml_free(placement->regions);
    ml_free(placement);
}

uint64_t
ml_placement_take(ml_placement *placement, uint64_t bytes, uint64_t alignment)
{
    uint64_t above = 0, start = 0;

    if (alignment < ML_PLACEMENT_GRANULE) {
        alignment = ML_PLACEMENT_GRANULE;
    }
    if (bytes == 0 || bytes > placement->bytes || alignment > placement->bytes) {
        return 0;
    }
    if (placement->policy == ML_PLACEMENT_SHUFFLED) {
        uint64_t drawn = ml_hash_u64(++placement->draws) % placement->bytes;
        above = round_down(placement->base + drawn, alignment);
    }
    region *within = find_region(placement, bytes, alignment, above, &start);
    if (within == NULL && placement->policy == ML_PLACEMENT_DRIVER) {
        within = make_region(placement, bytes, alignment);
        start = within != NULL ? within->start : 0;
    }
    if (within == NULL) {
        return 0;
    }
    int error = insert_range(within, start, bytes);
    if (error != 0) {
        placement->error = error;
        drop_if_empty(placement, within);
        return 0;
    }
    return start;
}

uint64_t
ml_placement_give(ml_placement *placement, uint64_t start)
{
    region *within = holder_of(placement, start);
    if (within == NULL) {
        return 0;
    }
    size_t index =
        ml_find_address(within->taken, sizeof *within->taken, within->count, start);
    if (index == within->count || within->taken[index].start != start) {
        return 0;
    }
    uint64_t bytes = within->taken[index].bytes;
    within->count--;
    memmove(&within->taken[index], &within->taken[index + 1],
            (within->count - index) * sizeof *within->taken);
    within->free += bytes;
    drop_if_empty(placement, within);
    return bytes;
}

bool
ml_placement_find(const ml_placement *placement, uint64_t address, uint64_t *start,
                  uint64_t *bytes)
{
    const region *within = holder_of(placement, address);
    if (within == NULL) {
        return false;
    }
    size_t index =
        find_holder(within->taken, sizeof *within->taken, within->count, address);
    if (index == within->count) {
        return false;
    }
    *start = within->taken[index].start;
    *bytes = within->taken[index].bytes;
    return true;
}

int
ml_placement_error(const ml_placement *placement)
{
    return placement->error;
}
