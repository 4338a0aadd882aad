/* What a step leaves, by what each of some steps left.  See growth.h. */
#include <stdlib.h>

#include "analysis/answers/growth_parts.h"
#include "base/base.h"

/* The usual distance between steps comes from this many last ones. */
#define DISTANCES 8
/* Within the fewest steps of a leak, sizes differ by at most this factor. */
#define SIZES_APART 4

static uint64_t
median(uint64_t *numbers, size_t count)
{
    qsort(numbers, count, sizeof(*numbers), ml_compare_u64);
    return numbers[count / 2];
}

size_t
ml_growth_run(const growth_work *f, size_t count)
{
    uint64_t distances[DISTANCES] = {0};
    size_t known = count - 1 < DISTANCES ? count - 1 : DISTANCES;
    for (size_t i = 0; i < known; i++) {
        distances[i] = f->lefts[count - 1 - i].step - f->lefts[count - 2 - i].step;
    }
    uint64_t usual = median(distances, known);
    if (f->steps.count - 1 - f->lefts[count - 1].step >= 2 * usual) {
        return count;
    }
    size_t first = count - 1;
    while (first > 0 && f->lefts[first].step - f->lefts[first - 1].step <= 2 * usual) {
        first--;
    }
    return first;
}

/* The last step may still free some. */
bool
ml_growth_measure(growth_work *f, size_t first, size_t count, found *out)
{
    ml_growing *line = &out->line;
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    size_t sizes = 0;
    for (size_t i = first; i < count; i++) {
        line->bytes += f->lefts[i].bytes;
        line->blocks += f->lefts[i].blocks;
        if (f->lefts[i].step + 1 == f->steps.count) {
            continue;
        }
        least = f->lefts[i].bytes < least ? f->lefts[i].bytes : least;
        most = f->lefts[i].bytes > most ? f->lefts[i].bytes : most;
        f->sums[sizes++] = f->lefts[i].bytes;
    }
    out->begin = f->lefts[first].step;
    out->last = f->lefts[count - 1].step;
    line->since = ml_growth_step_number(&f->steps, out->begin);
    line->steps = count - first;
    line->certain = line->steps >= ML_GROWTH_STEPS;
    /* The median: something may have been made once for all in one of them. */
    line->per_step =
        median(f->sums, sizes) * line->steps / (f->steps.count - out->begin);
    return line->certain || most / SIZES_APART <= least;
}
