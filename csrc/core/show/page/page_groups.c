/* The groups by which a page colours a device's allocations.  See page_device.h. */
#include <stdlib.h>
#include <string.h>

#include "base/varint.h"
#include "show/page/page_device.h"

/* From bottom to top: long-lived categories lie below short-lived ones. */
static const uint8_t category_order[ML_CATEGORY_COUNT] = {
    ML_CATEGORY_BEFORE_RECORDING,
    ML_CATEGORY_PARAMETER,
    ML_CATEGORY_BUFFER,
    ML_CATEGORY_OPTIMIZER_STATE,
    ML_CATEGORY_WORKSPACE,
    ML_CATEGORY_COMMUNICATION,
    ML_CATEGORY_INPUT,
    ML_CATEGORY_OTHER,
    ML_CATEGORY_GRADIENT,
    ML_CATEGORY_ACTIVATION,
    ML_CATEGORY_TEMPORARY,
    ML_CATEGORY_UNKNOWN,
};

typedef struct weighed {
    ml_wide weight; /* bytes times events */
    uint32_t id;
    bool present;
} weighed;

static int
compare_weights(const void *a, const void *b)
{
    const weighed *x = a;
    const weighed *y = b;
    if (x->present != y->present) {
        return x->present ? -1 : 1;
    }
    if (x->weight != y->weight) {
        return x->weight > y->weight ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The ML_PAGE_GROUPS_MOST heaviest lines, and one group for the others. */
static int
group_by_line(ml_page_device *device, const weighed *kinds)
{
    ml_page_groups *groups = &device->groups;
    size_t count = device->kinds->line_count + 1;
    weighed *sums = ml_alloc_zeroed(count, sizeof(weighed));
    uint32_t *places = ml_alloc_zeroed(count, sizeof(uint32_t)); /* plus 1 */
    if (sums == NULL || places == NULL) {
        ml_free(sums);
        ml_free(places);
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < groups->kind_count; i++) {
        weighed *sum = &sums[device->kinds->list[i].line];
        sum->weight += kinds[i].weight;
        sum->present = sum->present || kinds[i].present;
    }
    for (size_t i = 0; i < count; i++) {
        sums[i].id = (uint32_t)i;
    }
    qsort(sums, count, sizeof(weighed), compare_weights);
    size_t kept = 0;
    for (; kept < count && kept < ML_PAGE_GROUPS_MOST && sums[kept].present; kept++) {
        groups->ids[ML_PAGE_BY_LINE][kept] = sums[kept].id;
        places[sums[kept].id] = (uint32_t)kept + 1;
    }
    bool others = kept < count && sums[kept].present;
    groups->ids[ML_PAGE_BY_LINE][kept] = -1;
    groups->counts[ML_PAGE_BY_LINE] = kept + others;
    for (size_t i = 0; i < groups->kind_count; i++) {
        uint32_t place = places[device->kinds->list[i].line];
        groups->of_kind[ML_PAGE_BY_LINE][i] = !kinds[i].present ? ML_PAGE_NO_GROUP
                                              : place != 0      ? place - 1
                                                                : (uint32_t)kept;
    }
    ml_free(sums);
    ml_free(places);
    return 0;
}

static int
group_by_module(ml_page_device *device, const weighed *kinds)
{
    size_t count = device->groups.kind_count;
    bool *present = ml_alloc_zeroed(count + 1, sizeof(bool));
    if (present == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        present[i] = kinds[i].present;
    }
    int error = ml_page_group_modules(device, present);
    ml_free(present);
    return error;
}

static void
group_by_category(ml_page_device *device, const weighed *kinds)
{
    ml_page_groups *groups = &device->groups;
    uint32_t places[ML_CATEGORY_COUNT] = {0};
    bool present[ML_CATEGORY_COUNT] = {false};
    for (size_t i = 0; i < groups->kind_count; i++) {
        uint8_t category = device->kinds->list[i].category;
        present[category] = present[category] || kinds[i].present;
    }
    for (size_t i = 0; i < ML_CATEGORY_COUNT; i++) {
        size_t *count = &groups->counts[ML_PAGE_BY_CATEGORY];
        if (present[category_order[i]]) {
            places[category_order[i]] = (uint32_t)*count;
            groups->ids[ML_PAGE_BY_CATEGORY][(*count)++] = category_order[i];
        }
    }
    for (size_t i = 0; i < groups->kind_count; i++) {
        groups->of_kind[ML_PAGE_BY_CATEGORY][i] =
            kinds[i].present ? places[device->kinds->list[i].category]
                             : ML_PAGE_NO_GROUP;
    }
}

/* 0; or 1 + the largest power of 4 up to BYTES. */
static size_t
size_class(uint64_t bytes)
{
    size_t power = bytes == 0 ? 0 : 1 + (63u - (size_t)__builtin_clzll(bytes)) / 2;
    return power < ML_PAGE_SIZES ? power : ML_PAGE_SIZES - 1;
}

static void
group_by_size(ml_page_device *device)
{
    ml_page_groups *groups = &device->groups;
    bool present[ML_PAGE_SIZES] = {false};
    const ml_lifetimes *lifetimes = device->rows.lifetimes;
    for (size_t i = 0; i < lifetimes->count; i++) {
        present[size_class(lifetimes->rows[i].bytes)] = true;
    }
    size_t count = 0;
    for (size_t i = 0; i < ML_PAGE_SIZES; i++) {
        if (present[i]) {
            groups->of_size[i] = (uint8_t)count;
            groups->ids[ML_PAGE_BY_SIZE][count++] =
                i == 0 ? 0 : (int64_t)(UINT64_C(1) << 2 * (i - 1));
        }
    }
    groups->counts[ML_PAGE_BY_SIZE] = count;
}

static void
weigh(const ml_page_device *device, weighed *kinds)
{
    const ml_allocation_rows *rows = &device->rows;
    uint32_t last = (uint32_t)rows->trace->event_count;
    for (size_t i = 0; i < rows->lifetimes->count; i++) {
        const ml_lifetime *row = &rows->lifetimes->rows[i];
        uint32_t until = row->requested != ML_NEVER ? row->requested : last + 1;
        weighed *kind = &kinds[rows->kinds[i]];
        kind->present = true;
        kind->weight += (ml_wide)row->bytes * (until - row->start);
    }
}

int
ml_page_groups_make(ml_page_device *device)
{
    ml_page_groups *groups = &device->groups;
    size_t count = device->kinds->count;
    groups->kind_count = count;
    weighed *kinds = ml_alloc_zeroed(count + 1, sizeof(weighed));
    int error = kinds == NULL ? ML_ENOMEM : 0;
    for (size_t i = 0; i < ML_PAGE_BY_SIZE && error == 0; i++) {
        groups->of_kind[i] = ml_alloc_zeroed(count + 1, sizeof(uint32_t));
        error = groups->of_kind[i] == NULL ? ML_ENOMEM : 0;
    }
    if (error == 0) {
        weigh(device, kinds);
        group_by_category(device, kinds);
        group_by_size(device);
        error = group_by_module(device, kinds);
    }
    if (error == 0) {
        error = group_by_line(device, kinds);
    }
    ml_free(kinds);
    for (size_t i = 0; i < ML_PAGE_SCHEMES; i++) {
        groups->firsts[i] = groups->total;
        groups->total += groups->counts[i];
    }
    return error;
}

size_t
ml_page_group_of_size(const ml_page_device *device, uint64_t bytes)
{
    const ml_page_groups *groups = &device->groups;
    return groups->firsts[ML_PAGE_BY_SIZE] + groups->of_size[size_class(bytes)];
}
