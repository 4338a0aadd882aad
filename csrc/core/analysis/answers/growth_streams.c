/* Workspaces of streams: torch keeps one of cuBLAS for each handle and stream, so a program that
 * makes a stream a step leaves one a step behind.  See growth.h. */
#include "analysis/answers/growth_parts.h"

#include <string.h>

#include "base/base.h"

/* Adds STREAM to the COUNT of LIST, which has room, if it is new. */
static size_t
add_stream(uint64_t *list, size_t count, uint64_t stream)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i] == stream) {
            return count;
        }
    }
    list[count] = stream;
    return count + 1;
}

static bool
is_of_stream(const growth_work *f, const ml_kept *block)
{
    return block->first && ml_kept_is_left(f, block);
}

/* Sets the streams of the blocks.  0 or ML_ENOMEM. */
static int
count_streams(const growth_work *f, size_t *out)
{
    const ml_lifetimes *lifetimes = &f->analysis->lifetimes;
    size_t blocks = 0;
    for (size_t i = 0; i < f->kept.count; i++) {
        blocks += is_of_stream(f, &f->kept.list[i]);
    }
    *out = 0;
    uint64_t *list = ml_alloc_zeroed(blocks + 1, sizeof(*list));
    if (list == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < f->kept.count; i++) {
        const ml_kept *block = &f->kept.list[i];
        if (is_of_stream(f, block)) {
            uint64_t stream = ml_lifetimes_request(lifetimes, block->row).stream;
            *out = add_stream(list, *out, stream);
        }
    }
    ml_free(list);
    return 0;
}

/* Fills LEFTS; returns how many steps left something. */
static size_t
find_lefts(growth_work *f)
{
    memset(f->lefts, 0, f->steps.count * sizeof(*f->lefts));
    for (size_t i = 0; i < f->kept.count; i++) {
        const ml_kept *block = &f->kept.list[i];
        if (is_of_stream(f, block)) {
            f->lefts[block->step].bytes += block->bytes;
            f->lefts[block->step].blocks++;
        }
    }
    size_t count = 0;
    for (uint32_t step = 0; step < f->steps.count; step++) {
        if (f->lefts[step].blocks != 0) {
            f->lefts[count] = f->lefts[step];
            f->lefts[count++].step = step;
        }
    }
    return count;
}

int
ml_growth_find_streams(growth_work *f, ml_growing_streams *out)
{
    size_t streams;
    int error = count_streams(f, &streams);
    f->streams = error == 0 && streams >= ML_GROWTH_FEWEST;
    if (error < 0 || streams < ML_GROWTH_STEPS) {
        return error;
    }
    size_t count = find_lefts(f);
    size_t from = count < ML_GROWTH_STEPS ? count : ml_growth_run(f, count);
    found all = {0};
    if (count - from >= ML_GROWTH_STEPS && ml_growth_measure(f, from, count, &all)) {
        *out = (ml_growing_streams){.streams = streams,
                                    .since = all.line.since,
                                    .steps = all.line.steps,
                                    .per_step = all.line.per_step,
                                    .bytes = all.line.bytes,
                                    .blocks = all.line.blocks};
    }
    return 0;
}
