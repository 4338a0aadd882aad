/* Keeps taken ranges.  See ranges.h. */
#include "base/ranges.h"

#include <string.h>

#include "base/base.h"

void
ml_ranges_fini(ml_ranges *ranges)
{
    ml_free(ranges->items);
    *ranges = (ml_ranges){0};
}

/* The first range that ends after ADDR. */
static size_t
find_range(const ml_ranges *ranges, uint64_t addr)
{
    size_t at = ml_find_address(ranges->items, sizeof(ml_range), ranges->count, addr);
    return at > 0 && ranges->items[at - 1].end > addr ? at - 1 : at;
}

static int
insert(ml_ranges *ranges, size_t at, ml_range range)
{
    void *items = ranges->items;
    int error = ml_grow(&items, &ranges->capacity, ranges->count + 1, sizeof(ml_range));
    if (error < 0) {
        return error;
    }
    ranges->items = items;
    memmove(&ranges->items[at + 1], &ranges->items[at],
            (ranges->count - at) * sizeof(ml_range));
    ranges->items[at] = range;
    ranges->count++;
    return 0;
}

int
ml_ranges_take(ml_ranges *ranges, uint64_t start, uint64_t bytes)
{
    if (bytes == 0 || bytes > UINT64_MAX - start) {
        return 0;
    }
    size_t at = find_range(ranges, start);
    if (at < ranges->count && ranges->items[at].start < start + bytes) {
        return 0;
    }
    int error = insert(ranges, at, (ml_range){start, start + bytes});
    return error < 0 ? error : 1;
}

int
ml_ranges_give(ml_ranges *ranges, uint64_t start, uint64_t bytes)
{
    uint64_t end = bytes > UINT64_MAX - start ? UINT64_MAX : start + bytes;
    size_t at = find_range(ranges, start);
    while (at < ranges->count && ranges->items[at].start < end) {
        ml_range *range = &ranges->items[at];
        ml_range rest = {end, range->end};
        if (range->start < start) {
            range->end = start;
            at++;
            if (rest.start < rest.end) {
                return insert(ranges, at, rest);
            }
        }
        else if (rest.start < rest.end) {
            range->start = end;
            return 0;
        }
        else {
            ranges->count--;
            memmove(range, range + 1, (ranges->count - at) * sizeof(ml_range));
        }
    }
    return 0;
}
