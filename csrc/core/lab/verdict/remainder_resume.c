/* The rest of a pass, copied from an earlier pass of the same kind. */
#include <stdlib.h>

#include "base/base.h"
#include "lab/verdict/remainder_parts.h"

/* Two alike passes may differ in size by one byte in this many. */
#define UNLIKE_PART 50
/* Most allocations at the start that only one of two passes has. */
#define MOST_SHIFT 8
/* Kept bytes may grow by one part in this many from pass to pass. */
#define GROWTH_PART 200

static uint64_t
kept_at(const ml_remainder_builder *b, size_t event)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < b->out->recorded; i++) {
        unsigned category = b->it->of[i].verdict.category;
        bool counts =
            !ml_remainder_is_kept(category) && category != ML_CATEGORY_GRADIENT;
        if (counts && ml_demand_lives_at(b->it, i, event)) {
            bytes += b->it->workload->demands[i].block_bytes;
        }
    }
    return bytes;
}

/* Whether the passes request the same sizes, up to the end of NOW. */
static bool
is_alike(const ml_remainder_builder *b, const ml_sequence *before,
         const ml_sequence *now)
{
    const ml_demand *demands = b->out->workload->demands;
    uint64_t all = 0;
    uint64_t unlike = 0;
    for (size_t i = 0; i < now->count; i++) {
        uint64_t bytes = demands[now->list[i]].bytes;
        all += bytes;
        if (i >= before->count || demands[before->list[i]].bytes != bytes) {
            unlike += bytes;
        }
    }
    return now->count < before->count && unlike <= all / UNLIKE_PART;
}

/* Leaves out allocations at the start that only one pass has, such as a first batch
 * loaded before.  Returns whether the passes are then alike. */
static bool
align(const ml_remainder_builder *b, ml_sequence *before, ml_sequence *now)
{
    for (size_t shift = 0; shift <= 2 * MOST_SHIFT; shift++) {
        ml_sequence *from = shift <= MOST_SHIFT ? now : before;
        size_t left = shift <= MOST_SHIFT ? shift : shift - MOST_SHIFT;
        if (from->count <= left) {
            continue;
        }
        ml_sequence kept = *from;
        from->list += left;
        from->count -= left;
        if (is_alike(b, before, now)) {
            return true;
        }
        *from = kept;
    }
    return false;
}

/* Adds what BEFORE has after the place at which NOW ended. */
static int
follow(ml_remainder_builder *b, const ml_sequence *before, const ml_sequence *now)
{
    ml_remainder *out = b->out;
    size_t place = out->workload->demands[before->list[now->count]].born;
    size_t start = b->now;
    int error = 0;
    for (size_t k = 0; k < before->count && error == 0; k++) {
        size_t i = before->list[k];
        ml_demand demand = out->workload->demands[i];
        size_t index = k < now->count ? now->list[k] : 0;
        if (k >= now->count) {
            if (ml_remainder_is_live(out, i) && out->items[i].kind != ML_REST_PASS) {
                continue; /* already there */
            }
            b->now = start + (demand.born - place);
            error = ml_remainder_add(b, demand.bytes, i, out->items[i].scales,
                                     ML_REST_BRIEF, &index);
            out->forward += demand.bytes;
        }
        bool ends = demand.freed != ML_NO_EVENT && demand.freed > place;
        if (error == 0 && ends && ml_remainder_is_live(out, index)) {
            ml_remainder_free_at(b, index, start + (demand.freed - place));
        }
    }
    size_t last = 0;
    for (size_t i = 0; i < out->workload->count; i++) {
        const ml_demand *demand = &out->workload->demands[i];
        last = demand->born != ML_NO_EVENT && demand->born > last ? demand->born : last;
        last =
            demand->freed != ML_NO_EVENT && demand->freed > last ? demand->freed : last;
    }
    b->now = last + 1;
    return error;
}

int
ml_remainder_resume(ml_remainder_builder *b, size_t previous)
{
    ml_sequence before = {0};
    ml_sequence now = {0};
    int error = ml_sequence_take(b, previous, b->pass, &before);
    if (error == 0) {
        error = ml_sequence_take(b, b->pass, b->out->failed, &now);
    }
    size_t *lists[] = {before.list, now.list};
    if (error == 0 && !align(b, &before, &now)) {
        b->out->untold |= 1u << ML_UNTOLD_SIZES;
    }
    else if (error == 0) {
        error = follow(b, &before, &now);
    }
    ml_free(lists[0]);
    ml_free(lists[1]);
    uint64_t low = kept_at(b, previous);
    uint64_t high = kept_at(b, b->pass);
    if (b->out->untold == 0 && high > low + low / GROWTH_PART &&
        high - low > b->it->before.peak.allocated / GROWTH_PART) {
        b->out->untold |= 1u << ML_UNTOLD_GROWTH;
    }
    return error;
}
