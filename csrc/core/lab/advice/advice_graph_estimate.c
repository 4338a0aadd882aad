/* What autograd graphs hold in vain, where the recording does not know last uses: an estimate.
 *
 * A graph goes in one row of frees, with nothing allocated between, together with the tensor that
 * the program let go; the memory of that tensor goes last.  So the last block of a row was the
 * program's own, and a graph held the others.
 *
 * Of a graph that no pass ran, a layer's block is taken to be used until the same line of the next
 * layer has made its own of the same size, other blocks until their forward is over; of a graph
 * that a pass retained, until the pass has run its node. */
#include "lab/advice/advice_rules.h"

#include <stdlib.h>

#include "analysis/answers/stages.h"
#include "base/base.h"
#include "lab/advice/advice_places.h"
#include "lab/advice/graph_passes.h"

/* A block of a forward that no pass frees, or an input. */
typedef struct block {
    /* Hash of its line, its module's path without numbers, and its size; of an input, of its
     * stack. */
    uint64_t like;
    size_t demand;
    size_t forward; /* number of its forward, and the birth of the last block there */
    size_t last;
    size_t freed; /* event */
    size_t until; /* event by which it could be freed; ML_NO_EVENT: not known */
    const ml_graph_pass *by;  /* the pass that retained it; NULL: none ran it */
    const ml_graph_pass *ran; /* the last that did */
    uint64_t number;          /* of its node */
    bool input;
} block;

static const ml_demand *
demand_of(const ml_graph_passes *f, const block *of)
{
    return &f->it->workload->demands[of->demand];
}

/* ---- Blocks ---- */

/* Whether DEMAND was made outside a backward pass, and no pass frees it. */
static bool
is_without_pass(const ml_graph_passes *f, size_t demand)
{
    const ml_advice_case *it = f->it;
    const ml_demand *of = &it->workload->demands[demand];
    const ml_cause *cause = &ml_explained_of(it, demand)->cause;
    const ml_events *events = &it->trace->events;
    if (of->born == ML_NO_EVENT || cause->recomputed ||
        ml_events_is_backward(events, of->born) ||
        ml_stage_is_evaluation(it->stages[of->born]) ||
        ml_demand_awaits_pass(it, demand) || ml_growth_has(it->growth, cause)) {
        return false;
    }
    if (of->freed == ML_NO_EVENT) {
        /* Where passes run such a forward, the one after the next may yet run this one. */
        size_t without = f->trained[of->stack] ? 2 : 1;
        return f->pass_count >= ml_graph_passes_before(f, of->born) + without;
    }
    return !ml_events_is_backward(events, of->freed);
}

/* The last pass before event FREED that may have run node NUMBER and retained it, as FIRST did: one
 * that frees what it runs would have freed its block. */
static const ml_graph_pass *
last_pass_of(const ml_graph_passes *f, const ml_graph_pass *first, uint64_t number,
             size_t freed)
{
    const ml_graph_pass *last = first;
    const ml_graph_pass *end = f->passes + f->pass_count;
    for (const ml_graph_pass *at = first + 1;
         at < end && at->thread == first->thread && at->first < freed; at++) {
        last = at->lowest <= number && at->freed == 0 ? at : last;
    }
    return last;
}

/* Whether a graph may hold AT, of a forward; sets the pass that retained it, if one did. */
static bool
may_be_held(const ml_graph_passes *f, block *at)
{
    const ml_demand *of = demand_of(f, at);
    const ml_events *events = &f->it->trace->events;
    uint16_t thread = ml_events_autograd_thread(events, of->born);
    uint64_t sequence = ml_events_sequence(events, of->born);
    if (ml_explained_of(f->it, at->demand)->cause.phase != ML_PHASE_FORWARD ||
        thread == 0 || sequence <= f->threads[thread].first) {
        return false;
    }
    const ml_graph_pass *first = ml_graph_pass_of(f, thread, sequence - 1);
    if (first == NULL) {
        return true;
    }
    if (first->freed != 0 || (of->freed == ML_NO_EVENT && first->shared == 0)) {
        return false;
    }
    at->by = first;
    at->ran = last_pass_of(f, first, sequence - 1, of->freed);
    at->number = sequence - 1;
    return true;
}

static block
describe(const ml_graph_passes *f, size_t demand)
{
    const ml_explained *is = ml_explained_of(f->it, demand);
    const ml_demand *of = &f->it->workload->demands[demand];
    block at = {.demand = demand,
                .freed = of->freed,
                .until = ML_NO_EVENT,
                .input = is->verdict.category == ML_CATEGORY_INPUT};
    uint64_t pattern = ml_module_pattern(&f->it->recording->strings[is->cause.module]);
    at.like = ml_hash_u64(ml_hash_u64(pattern ^ is->cause.frame) ^ of->bytes);
    at.like = at.input ? ml_hash_u64(~(uint64_t)of->stack) : at.like;
    return at;
}

/* By birth. */
static size_t
find_blocks(const ml_graph_passes *f, block *all)
{
    size_t count = 0;
    for (size_t i = f->it->workload->before_count; i < f->it->workload->count; i++) {
        block at = describe(f, i);
        if (is_without_pass(f, i) && (at.input || may_be_held(f, &at))) {
            all[count++] = at;
        }
    }
    return count;
}

/* ---- Forwards ---- */

/* Where the forward that begins with ALL[FIRST] ends: a pass comes between, or its first block's
 * stack comes again, or a pass retained only one of both.  The inputs of the next forward are
 * that one's. */
static size_t
end_of_forward(const ml_graph_passes *f, const block *all, size_t first, size_t count)
{
    size_t passes = ml_graph_passes_before(f, demand_of(f, &all[first])->born);
    const block *begins = NULL;
    size_t end = first;
    for (; end < count; end++) {
        const block *at = &all[end];
        if (ml_graph_passes_before(f, demand_of(f, at)->born) != passes ||
            (begins != NULL && !at->input &&
             (demand_of(f, at)->stack == demand_of(f, begins)->stack ||
              at->by != begins->by))) {
            break;
        }
        begins = begins == NULL && !at->input ? at : begins;
    }
    while (end < count && end > first + 1 && all[end - 1].input) {
        end--;
    }
    return end;
}

static void
number_forwards(const ml_graph_passes *f, block *all, size_t count)
{
    size_t number = 0;
    for (size_t first = 0, end; first < count; first = end, number++) {
        end = end_of_forward(f, all, first, count);
        for (size_t i = first; i < end; i++) {
            all[i].forward = number;
            all[i].last = demand_of(f, &all[end - 1])->born;
        }
    }
}

static int
compare_like(const void *a, const void *b)
{
    const block *x = a;
    const block *y = b;
    if (x->like != y->like) {
        return x->like < y->like ? -1 : 1;
    }
    return (x->demand > y->demand) - (x->demand < y->demand);
}

/* Blocks of one pass, those of the last nodes first. */
static int
compare_nodes(const void *a, const void *b)
{
    const block *x = a;
    const block *y = b;
    size_t of_x = x->ran != NULL ? x->ran->first : 0;
    size_t of_y = y->ran != NULL ? y->ran->first : 0;
    if (of_x != of_y) {
        return of_x < of_y ? -1 : 1;
    }
    return (x->number < y->number) - (x->number > y->number);
}

/* When what a pass retained could be freed: nodes run from the last to the first, so once one
 * before its own runs, else with the pass. */
static void
find_ends_in_passes(const ml_graph_passes *f, block *all, size_t count)
{
    const ml_events *events = &f->it->trace->events;
    qsort(all, count, sizeof(block), compare_nodes);
    size_t event = 0;
    for (size_t i = 0; i < count; i++) {
        const ml_graph_pass *ran = all[i].ran;
        if (ran == NULL) {
            continue;
        }
        event = event > ran->first ? event : ran->first;
        while (event < ran->end &&
               !(ml_events_is_backward(events, event) &&
                 ml_events_sequence(events, event) < all[i].number)) {
            event++;
        }
        all[i].until = event < ran->end ? event : ran->end;
    }
}

/* When each could be freed: an input once the next is there. */
static void
find_ends(const ml_graph_passes *f, block *all, size_t count)
{
    find_ends_in_passes(f, all, count);
    qsort(all, count, sizeof(block), compare_like);
    for (size_t i = 0; i < count; i++) {
        block *at = &all[i];
        const block *next =
            i + 1 < count && all[i + 1].like == at->like ? &all[i + 1] : NULL;
        bool follows = next != NULL && (at->input || next->forward == at->forward);
        if (at->by != NULL) {
            continue;
        }
        if (follows) {
            at->until = (size_t)demand_of(f, next)->born + 1;
        }
        else if (!at->input) {
            at->until = at->last + 1;
        }
    }
}

/* ---- Rows of frees ---- */

static int
compare_frees(const void *a, const void *b)
{
    const block *x = a;
    const block *y = b;
    if (x->forward != y->forward) {
        return x->forward < y->forward ? -1 : 1;
    }
    if (x->freed != y->freed) {
        return x->freed < y->freed ? -1 : 1;
    }
    return (x->demand > y->demand) - (x->demand < y->demand);
}

/* Whether a block was made between two frees. */
static bool
is_apart(const ml_graph_passes *f, size_t freed, size_t then)
{
    size_t next;
    const ml_workload *workload = f->it->workload;
    size_t count = workload->count - workload->before_count;
    const ml_demand *demands = workload->demands + workload->before_count;
    ML_SEARCH(next, count, demands[next].born < freed);
    return next < count && demands[next].born < then;
}

/* Where the row that begins with ALL[FIRST] ends. */
static size_t
end_of_row(const ml_graph_passes *f, const block *all, size_t first, size_t count)
{
    size_t end = first + 1;
    while (end < count && all[end].forward == all[first].forward &&
           !is_apart(f, all[end - 1].freed, all[end].freed)) {
        end++;
    }
    return end;
}

/* The line of a row: that of the pass, or that around the forward of the largest block in a
 * module. */
static uint32_t
line_of(const ml_graph_passes *f, const block *row, size_t count)
{
    uint32_t frame = 0;
    uint64_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        bool in_module = ml_explained_of(f->it, row[i].demand)->cause.module != 0;
        if (in_module && !row[i].input &&
            demand_of(f, &row[i])->block_bytes > largest) {
            largest = demand_of(f, &row[i])->block_bytes;
            frame = row[i].by != NULL && row[i].by->frame != 0
                        ? row[i].by->frame
                        : ml_graph_untrained_line(f, row[i].demand);
        }
    }
    return frame;
}

/* The kind of a row up to its last block, which is the program's own.  ML_ADVICE_COUNT: none.  A
 * function that ends frees its variables in a row, too, the oldest first; a retained graph goes
 * from its end. */
static enum ml_advice_kind
kind_of(const ml_graph_passes *f, const block *row, size_t own)
{
    bool trained = f->trained[demand_of(f, &row[own])->stack];
    const block *first = NULL;
    const block *last = NULL;
    for (size_t i = 0; i < own; i++) {
        if (!row[i].input) {
            first = first == NULL ? &row[i] : first;
            last = &row[i];
            trained = trained || f->trained[demand_of(f, &row[i])->stack];
        }
    }
    if (first == NULL) {
        return ML_ADVICE_COUNT;
    }
    if (first->by != NULL) {
        bool from_end = first->demand > last->demand || first->freed == ML_NO_EVENT;
        return from_end ? ml_graph_kept_by(first->by) : ML_ADVICE_COUNT;
    }
    return trained ? ML_ADVICE_LATE_FREES : ML_ADVICE_GRAPH_UNUSED;
}

static int
propose_row(const ml_graph_passes *f, const block *row, size_t count, ml_proposals *out,
            ml_graph_proposed *to)
{
    size_t own = count;
    while (own > 0 && row[own - 1].input) {
        own--;
    }
    if (own < 2) {
        return 0;
    }
    own--;
    enum ml_advice_kind kind = kind_of(f, row, own);
    uint32_t frame = line_of(f, row, count);
    int error = 0;
    for (size_t i = 0; i < own && error == 0; i++) {
        if (kind != ML_ADVICE_COUNT && frame != 0 && row[i].until < row[i].freed) {
            ml_graph_held held = {.demand = row[i].demand,
                                  .until = row[i].until,
                                  .kind = kind,
                                  .frame = frame};
            error = ml_graph_propose(f, &held, out, to);
        }
    }
    return error;
}

int
ml_graph_estimate(const ml_graph_passes *f, ml_proposals *out, ml_graph_proposed *to)
{
    block *all = ml_alloc_zeroed(f->it->workload->count + 1, sizeof(block));
    if (all == NULL) {
        return ML_ENOMEM;
    }
    size_t count = find_blocks(f, all);
    number_forwards(f, all, count);
    int error = 0;
    if (count != 0) {
        find_ends(f, all, count);
        qsort(all, count, sizeof(block), compare_frees);
    }
    for (size_t first = 0, end; first < count && error == 0; first = end) {
        end = end_of_row(f, all, first, count);
        error = propose_row(f, all + first, end - first, out, to);
    }
    ml_free(all);
    return error;
}
