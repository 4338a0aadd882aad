/* The parts of the allocated peak.  See advice_parts.h. */
#include "lab/advice/advice_parts.h"

#include <stdlib.h>

#include "analysis/attribution/module_repeats.h"
#include "base/base.h"

/* A block at the peak, and its module. */
typedef struct owned {
    ml_string before; /* the number */
    ml_string number; /* empty: none */
    uint8_t category;
    uint8_t why;
    uint64_t bytes;
} owned;

static void
cut_at_number(ml_string path, owned *out)
{
    size_t number;
    size_t end = ml_path_number(path, 0, &number);
    out->before = path;
    if (end != 0) {
        out->before.length = (uint32_t)number;
        out->number = (ml_string){path.bytes + number, (uint32_t)(end - number)};
    }
}

static int
compare_owned(const void *a, const void *b)
{
    const owned *x = a;
    const owned *y = b;
    if (x->category != y->category) {
        return x->category < y->category ? -1 : 1;
    }
    if (x->why != y->why) {
        return x->why < y->why ? -1 : 1;
    }
    int order = ml_string_compare(x->before, y->before);
    return order != 0 ? order : ml_string_compare(x->number, y->number);
}

static int
compare_parts(const void *a, const void *b)
{
    const ml_advice_part *x = a;
    const ml_advice_part *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? 1 : -1;
    }
    if (x->category != y->category) {
        return x->category < y->category ? -1 : 1;
    }
    if (x->why != y->why) {
        return x->why < y->why ? -1 : 1;
    }
    return ml_string_compare(x->module, y->module);
}

static size_t
collect_owned(const ml_advice_case *it, owned *out)
{
    size_t count = 0;
    for (size_t i = 0; i < it->workload->count; i++) {
        if (ml_demand_at_peak(it, i)) {
            owned *block = &out[count++];
            const ml_verdict *verdict = &ml_explained_of(it, i)->verdict;
            bool unknown = verdict->category == ML_CATEGORY_UNKNOWN;
            *block = (owned){.category = verdict->category,
                             .why = unknown ? verdict->why : ML_WHY_KNOWN,
                             .bytes = it->workload->demands[i].block_bytes};
            cut_at_number(it->recording->strings[ml_explained_of(it, i)->cause.module],
                          block);
        }
    }
    return count;
}

static size_t
group(const owned *blocks, size_t count, ml_advice_part *parts)
{
    size_t made = 0;
    for (size_t i = 0; i < count; i++) {
        const owned *last = i > 0 ? &blocks[i - 1] : NULL;
        bool repeats = blocks[i].number.length != 0;
        if (last == NULL || last->category != blocks[i].category ||
            last->why != blocks[i].why ||
            ml_string_compare(last->before, blocks[i].before) != 0 ||
            (last->number.length != 0) != repeats) {
            parts[made++] = (ml_advice_part){.module = blocks[i].before,
                                             .repeats = repeats,
                                             .category = blocks[i].category,
                                             .why = blocks[i].why};
            last = NULL;
        }
        ml_advice_part *part = &parts[made - 1];
        part->bytes += blocks[i].bytes;
        part->blocks++;
        part->modules +=
            last == NULL || ml_string_compare(last->number, blocks[i].number) != 0;
    }
    return made;
}

int
ml_advice_find_parts(const ml_advice_case *it, ml_advice_part **out, size_t *count)
{
    size_t most = it->workload->count + 1;
    owned *blocks = ml_alloc_zeroed(most, sizeof(owned));
    size_t found = blocks == NULL ? 0 : collect_owned(it, blocks);
    ml_advice_part *parts = ml_alloc_zeroed(found + 1, sizeof(ml_advice_part));
    if (blocks == NULL || parts == NULL) {
        ml_free(blocks);
        ml_free(parts);
        return ML_ENOMEM;
    }
    qsort(blocks, found, sizeof(owned), compare_owned);
    *count = group(blocks, found, parts);
    qsort(parts, *count, sizeof(ml_advice_part), compare_parts);
    *out = parts;
    ml_free(blocks);
    return 0;
}
