/* The rest of a pass, copied from an earlier pass of the same kind. */
#include <stdlib.h>

#include "analysis/answers/stages.h"
#include "base/base.h"
#include "lab/verdict/remainder_parts.h"

/* Two alike passes may differ in size by one byte in this many. */
#define UNLIKE_PART 50
/* Most allocations at the start that only one of two passes has. */
#define MOST_SHIFT 8
/* Of the largest demand of the earlier pass, smaller ones than one part in so many are small. */
#define SMALL_PART 256
/* What is kept may rise by one part in so many from pass to pass. */
#define GROWTH_PART 200

/* Bytes of results that live at EVENT and still at THEN. */
static uint64_t
kept_at(const ml_remainder_builder *b, size_t event, size_t then)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < b->out->recorded; i++) {
        unsigned category = ml_explained_of(b->it, i)->verdict.category;
        bool counts =
            !ml_remainder_is_kept(category) && category != ML_CATEGORY_GRADIENT;
        if (counts && ml_demand_lives_at(b->it, i, event) &&
            ml_demand_lives_at(b->it, i, then)) {
            bytes += b->it->workload->demands[i].block_bytes;
        }
    }
    return bytes;
}

/* One pass beside the one before it, of demands that are large. */
typedef struct comparison {
    ml_sequence before;
    ml_sequence now;
    /* Where what scales has other sizes, as a longer sequence makes: times TO of FROM. */
    uint64_t to;
    uint64_t from;
} comparison;

static uint64_t
largest(const ml_remainder_builder *b, const ml_sequence *of)
{
    uint64_t most = 0;
    for (size_t i = 0; i < of->count; i++) {
        uint64_t bytes = b->out->workload->demands[of->list[i]].bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Without those below LEAST bytes, which libraries make once or at times. */
static void
leave_large(const ml_remainder_builder *b, ml_sequence *of, uint64_t least)
{
    size_t kept = 0;
    for (size_t i = 0; i < of->count; i++) {
        if (b->out->workload->demands[of->list[i]].bytes >= least) {
            of->list[kept++] = of->list[i];
        }
    }
    of->count = kept;
}

/* BYTES times the ratio of the passes, to the POWER of 1 or 2. */
static uint64_t
times(const comparison *of, uint64_t bytes, unsigned power)
{
    double ratio = (double)of->to / (double)of->from;
    return (uint64_t)((double)bytes * (power == 2 ? ratio * ratio : ratio) + 0.5);
}

static bool
is_about(uint64_t a, uint64_t b)
{
    return (a > b ? a - b : b - a) <= b / UNLIKE_PART;
}

/* Whether the passes ask for the same in the same modules, as far as NOW goes: sizes are
 * equal, or those that scale have one ratio, or its square. */
static bool
is_alike(const ml_remainder_builder *b, comparison *of)
{
    const ml_demand *demands = b->out->workload->demands;
    uint64_t all = 0;
    uint64_t unlike = 0;
    of->to = of->from = 1;
    if (of->now.count == 0 || of->now.count >= of->before.count) {
        return false;
    }
    for (size_t i = 0; i < of->now.count; i++) {
        size_t now = of->now.list[i];
        size_t before = of->before.list[i];
        uint64_t bytes = demands[now].bytes;
        uint64_t was = demands[before].bytes;
        bool same = ml_explained_of(b->it, now)->cause.module ==
                    ml_explained_of(b->it, before)->cause.module;
        if (same && bytes != was && of->to == of->from && b->out->items[now].scales) {
            of->to = bytes;
            of->from = was;
        }
        all += bytes;
        if (!same || (bytes != was && !is_about(bytes, times(of, was, 1)) &&
                      !is_about(bytes, times(of, was, 2)))) {
            unlike += bytes;
        }
    }
    return unlike <= all / UNLIKE_PART;
}

/* Leaves out allocations at the start that only one pass has, such as a first batch
 * loaded before.  Returns whether the passes are then alike. */
static bool
align(const ml_remainder_builder *b, comparison *of)
{
    for (size_t shift = 0; shift <= 2 * MOST_SHIFT; shift++) {
        ml_sequence *from = shift <= MOST_SHIFT ? &of->now : &of->before;
        size_t left = shift <= MOST_SHIFT ? shift : shift - MOST_SHIFT;
        if (from->count <= left) {
            continue;
        }
        ml_sequence kept = *from;
        from->list += left;
        from->count -= left;
        if (is_alike(b, of)) {
            return true;
        }
        *from = kept;
    }
    return false;
}

/* What demand I of the pass before would ask for in this one. */
static uint64_t
bytes_now(const ml_remainder_builder *b, const comparison *of, size_t i)
{
    const ml_demand *demands = b->out->workload->demands;
    uint64_t bytes = demands[i].bytes;
    for (size_t k = 0; of->to != of->from && k < of->now.count; k++) {
        if (demands[of->before.list[k]].bytes == bytes) {
            return demands[of->now.list[k]].bytes;
        }
    }
    return b->out->items[i].scales ? times(of, bytes, 1) : bytes;
}

/* What BEFORE had from the place on at which NOW ended.  A pass of another size may be one
 * without a backward pass, as in an evaluation. */
static int
add_rest(ml_remainder_builder *b, const comparison *of, size_t until)
{
    ml_remainder *out = b->out;
    size_t place = out->workload->demands[of->before.list[of->now.count]].born;
    size_t start = b->now;
    bool forward_only = of->to != of->from && !b->much && b->stage == ML_STAGE_FORWARD;
    int error = 0;
    for (size_t k = 0; k < of->now.count; k++) {
        size_t freed = out->workload->demands[of->before.list[k]].freed;
        if (freed != ML_NO_EVENT && freed > place &&
            ml_remainder_is_live(out, of->now.list[k])) {
            ml_remainder_free_at(b, of->now.list[k], start + (freed - place));
        }
    }
    /* The request that failed is there already. */
    size_t failed = of->before.list[of->now.count];
    for (size_t i = 0; i < out->recorded && error == 0; i++) {
        ml_demand demand = out->workload->demands[i];
        bool after = demand.bytes != 0 && demand.born != ML_NO_EVENT &&
                     demand.born >= place && demand.born < until;
        bool is_there =
            ml_remainder_is_live(out, i) && out->items[i].kind != ML_REST_PASS;
        if (!after || is_there ||
            (forward_only &&
             ml_explained_of(b->it, i)->cause.phase != ML_PHASE_FORWARD)) {
            continue;
        }
        size_t index = out->recorded;
        if (i != failed) {
            uint64_t bytes = bytes_now(b, of, i);
            b->now = start + (demand.born - place);
            error = ml_remainder_add(b, bytes, i, out->items[i].scales, ML_REST_BRIEF,
                                     &index);
            out->forward += bytes;
        }
        if (error == 0 && demand.freed != ML_NO_EVENT) {
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

/* Whether HIGH bytes are more than LOW, without what a pass returned: the next pass replaces
 * it, which this one may not have done yet. */
static bool
is_more(const ml_remainder_builder *b, uint64_t low, uint64_t high)
{
    uint64_t returned = b->outputs_living > low ? b->outputs_living - low : 0;
    high = high > returned ? high - returned : 0;
    return high > low + low / GROWTH_PART &&
           high - low > b->it->before.peak.allocated / GROWTH_PART;
}

/* Whether passes leave ever more: this one began with more than the one before it, and more of
 * that has lasted since. */
static bool
grows(const ml_remainder_builder *b, size_t previous)
{
    size_t now = b->out->failed - 1;
    return is_more(b, kept_at(b, previous, previous), kept_at(b, b->pass, b->pass)) &&
           is_more(b, kept_at(b, previous, b->pass), kept_at(b, b->pass, now));
}

int
ml_remainder_resume(ml_remainder_builder *b, size_t previous)
{
    comparison of = {.to = 1, .from = 1};
    int error = ml_sequence_take(b, previous, b->pass, &of.before);
    if (error == 0) {
        error = ml_sequence_take(b, b->pass, b->out->failed, &of.now);
    }
    size_t *lists[] = {of.before.list, of.now.list};
    if (error == 0) {
        /* The same for both: the pass that ended early may lack the largest. */
        uint64_t least = largest(b, &of.before) / SMALL_PART;
        leave_large(b, &of.before, least);
        leave_large(b, &of.now, least);
        if (align(b, &of)) {
            b->out->sizes_differ = of.to != of.from;
            error = add_rest(b, &of, b->pass);
        }
        else {
            b->out->untold |= 1u << ML_UNTOLD_SIZES;
        }
    }
    ml_free(lists[0]);
    ml_free(lists[1]);
    if (b->out->untold == 0 && of.to == of.from && grows(b, previous)) {
        b->out->untold |= 1u << ML_UNTOLD_GROWTH;
    }
    return error;
}
