/* Duplicates: copies of the parameters, and blocks that grow by being copied.
 *
 * A line that makes blocks of most parameters' sizes copies the parameters: for a
 * moving average, a best state, a second network.  Such a copy could live in the host's
 * memory.
 *
 * A line may replace each of its blocks by a larger one while the old one is live.  It
 * grows something by torch.cat().  One block of the final size would do from the
 * beginning. */
#include "lab/advice/advice_rules.h"

#include <stdlib.h>

#include "base/base.h"

/* Conditions of a copy: its least quarters of the parameters' bytes; the least number
 * of parameters; and how many times over it may hold them.  Above that, it is a network
 * with layers of the same sizes. */
#define COPY_PARTS 3
#define LEAST_COPIED 4
#define MOST_COPIES 2
/* Fewest blocks of a growth. */
#define LEAST_GROWTH 4

/* Modules, by the string of their paths. */
typedef struct modules {
    bool *trained; /* owned */
    bool *called;  /* owned; a call of the module allocated something */
    /* a forward pass has ended: modules not called by then are never called */
    bool reached;
} modules;

/* A demand that a line made. */
typedef struct item {
    uint32_t frame;
    size_t demand;
    uint64_t bytes;
} item;

/* By line, then birth. */
static int
compare_items(const void *a, const void *b)
{
    const item *x = a;
    const item *y = b;
    if (x->frame != y->frame) {
        return x->frame < y->frame ? -1 : 1;
    }
    return (x->demand > y->demand) - (x->demand < y->demand);
}

static int
find_modules(const ml_advice_case *it, modules *m)
{
    m->trained = ml_advice_trained(it);
    m->called = ml_alloc_zeroed(it->recording->string_count + 1, sizeof(bool));
    if (m->trained == NULL || m->called == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 1; i < it->recording->stack_count; i++) {
        m->called[it->recording->stacks[i].module] = true;
    }
    m->reached = it->failed == ML_NO_EVENT;
    for (size_t i = 0; !m->reached && i < it->failed; i++) {
        m->reached = ml_causes_phase(it->causes, it->device, i) == ML_PHASE_BACKWARD;
    }
    return 0;
}

/* Whether no call of the block's module allocates, as in a copy for an average. */
static bool
is_idle(const modules *m, const ml_explained *of)
{
    uint32_t module = of->cause.module;
    return m->reached && of->verdict.category == ML_CATEGORY_PARAMETER && module != 0 &&
           !m->trained[module] && !m->called[module];
}

static bool
is_programs_own(const modules *m, const ml_explained *of)
{
    switch (is_idle(m, of) ? ML_CATEGORY_OTHER : of->verdict.category) {
    case ML_CATEGORY_INPUT:
    case ML_CATEGORY_OTHER:
    case ML_CATEGORY_UNKNOWN:
    case ML_CATEGORY_TEMPORARY:
        return of->cause.frame != 0 && of->cause.phase != ML_PHASE_BACKWARD &&
               of->cause.phase != ML_PHASE_OPTIMIZER && !of->cause.communication;
    default:
        return false;
    }
}

/* Finds what the program's lines made, by line and birth.  Returns their number. */
static size_t
find_items(const ml_advice_case *it, const modules *m, item *items)
{
    size_t count = 0;
    for (size_t i = it->workload->before_count; i < it->workload->count; i++) {
        if (is_programs_own(m, ml_explained_of(it, i))) {
            items[count++] = (item){.frame = ml_explained_of(it, i)->cause.frame,
                                    .demand = i,
                                    .bytes = it->workload->demands[i].bytes};
        }
    }
    if (count != 0) {
        qsort(items, count, sizeof(item), compare_items);
    }
    return count;
}

/* The first item after FIRST that is of another line. */
static size_t
end_of_line(const item *items, size_t count, size_t first)
{
    size_t end = first + 1;
    while (end < count && items[end].frame == items[first].frame) {
        end++;
    }
    return end;
}

/* ---- Copies of the parameters ---- */

typedef struct sizes {
    uint64_t *list; /* owned; bytes of the parameters in use at the peak, ascending */
    uint64_t *left; /* owned; the same, without those already matched with a block */
    size_t count;
    uint64_t bytes;
} sizes;

static int
find_sizes(const ml_advice_case *it, const modules *m, sizes *s)
{
    s->list = ml_alloc_zeroed(it->workload->count + 1, sizeof(uint64_t));
    s->left = ml_alloc_zeroed(it->workload->count + 1, sizeof(uint64_t));
    if (s->list == NULL || s->left == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < it->workload->count; i++) {
        if (ml_explained_of(it, i)->verdict.category == ML_CATEGORY_PARAMETER &&
            !is_idle(m, ml_explained_of(it, i)) && ml_demand_at_peak(it, i)) {
            s->list[s->count++] = it->workload->demands[i].bytes;
            s->bytes += it->workload->demands[i].bytes;
        }
    }
    if (s->count != 0) {
        qsort(s->list, s->count, sizeof(uint64_t), ml_compare_u64);
    }
    return 0;
}

/* The index of the first BYTES in the list, or the list's length. */
static size_t
find_size(const sizes *s, uint64_t bytes)
{
    size_t low;
    ML_SEARCH(low, s->count, s->list[low] < bytes);
    return low < s->count && s->list[low] == bytes ? low : s->count;
}

static bool
are_enough(const ml_advice_case *it, const sizes *s, const item *items, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += ml_demand_at_peak(it, items[i].demand) ? items[i].bytes : 0;
    }
    return s->count >= LEAST_COPIED && bytes / COPY_PARTS >= s->bytes / 4;
}

/* Whether ITEMS at the peak have most of the parameters' sizes, once each. */
static bool
is_copy(const ml_advice_case *it, sizes *s, const item *items, size_t count)
{
    uint64_t matched = 0;
    size_t blocks = 0, of_sizes = 0;
    for (size_t i = 0; i < s->count; i++) {
        /* In each run of equal sizes, the first entry counts how many are left. */
        s->left[i] = 0;
        s->left[find_size(s, s->list[i])]++;
    }
    for (size_t i = 0; i < count; i++) {
        size_t at = find_size(s, items[i].bytes);
        if (at == s->count || !ml_demand_at_peak(it, items[i].demand)) {
            continue;
        }
        of_sizes++;
        if (s->left[at] != 0) {
            s->left[at]--;
            blocks++;
            matched += items[i].bytes;
        }
    }
    return blocks >= LEAST_COPIED && of_sizes / MOST_COPIES <= blocks &&
           matched / COPY_PARTS >= s->bytes / 4;
}

static int
propose_copy(const ml_advice_case *it, const sizes *s, const item *items, size_t count,
             ml_proposals *out)
{
    ml_advice *advice = ml_proposals_add(out, ML_ADVICE_MODEL_COPIED);
    if (advice == NULL) {
        return ML_ENOMEM;
    }
    advice->frame = items[0].frame;
    advice->exact = false;
    int error = 0;
    for (size_t i = 0; error == 0 && i < count; i++) {
        size_t demand = items[i].demand;
        if (find_size(s, items[i].bytes) == s->count) {
            continue;
        }
        if (ml_demand_at_peak(it, demand)) {
            advice->bytes += it->workload->demands[demand].block_bytes;
            advice->blocks++;
        }
        error =
            ml_advice_edit(advice, (ml_edit){.kind = ML_EDIT_RESIZE, .demand = demand});
    }
    return error;
}

static int
propose_copies(const ml_advice_case *it, sizes *s, const item *items, size_t count,
               ml_proposals *out)
{
    int error = 0;
    for (size_t first = 0, end; error == 0 && first < count; first = end) {
        end = end_of_line(items, count, first);
        /* A copy is made at once; what one step after the other leaves is none. */
        const ml_cause *cause = &ml_explained_of(it, items[first].demand)->cause;
        if (are_enough(it, s, items + first, end - first) &&
            is_copy(it, s, items + first, end - first) &&
            ml_growth_find(it->growth, cause) == NULL) {
            error = propose_copy(it, s, items + first, end - first, out);
        }
    }
    return error;
}

/* ---- Growth ---- */

/* The last of a line's COUNT ITEMS born before EVENT; COUNT: none. */
static size_t
last_before(const ml_advice_case *it, const item *items, size_t count, size_t event)
{
    size_t low;
    ML_SEARCH(low, count, it->workload->demands[items[low].demand].born < event);
    return low == 0 ? count : low - 1;
}

/* The item that replaces the one at AT; COUNT: none. */
static size_t
successor(const ml_advice_case *it, const item *items, size_t count, size_t at)
{
    const ml_demand *demand = &it->workload->demands[items[at].demand];
    if (demand->freed == ML_NO_EVENT) {
        return count;
    }
    size_t next = last_before(it, items, count, demand->freed);
    bool grows = next < count && next > at && items[next].bytes > items[at].bytes;
    return grows ? next : count;
}

typedef struct growth {
    const ml_advice_case *it;
    const item *items; /* of one line */
    size_t count;
    size_t *next;  /* by item: its successor; COUNT: none */
    bool *follows; /* by item: it replaces another */
} growth;

static void
link_items(const growth *g)
{
    for (size_t i = 0; i < g->count; i++) {
        g->follows[i] = false;
    }
    for (size_t i = 0; i < g->count; i++) {
        size_t next = successor(g->it, g->items, g->count, i);
        if (next < g->count && g->follows[next]) {
            next = g->count;
        }
        if (next < g->count) {
            g->follows[next] = true;
        }
        g->next[i] = next;
    }
}

/* Makes the first block of a chain as large as the last, and keeps it as long. */
static int
edit_chain(const growth *g, ml_advice *advice, size_t first)
{
    const ml_demand *demands = g->it->workload->demands;
    size_t last = first;
    int error = 0;
    while (error == 0 && g->next[last] < g->count) {
        size_t demand = g->items[last].demand;
        if (ml_demand_at_peak(g->it, demand)) {
            advice->bytes += demands[demand].block_bytes;
            advice->blocks++;
        }
        last = g->next[last];
        ml_edit none = {.kind = ML_EDIT_RESIZE, .demand = g->items[last].demand};
        error = ml_advice_edit(advice, none);
        advice->count++;
    }
    ml_edit whole = {.kind = ML_EDIT_RESIZE,
                     .demand = g->items[first].demand,
                     .bytes = g->items[last].bytes};
    ml_edit stay = {.kind = ML_EDIT_FREE,
                    .demand = g->items[first].demand,
                    .until = demands[g->items[last].demand].freed};
    error = error < 0 ? error : ml_advice_edit(advice, whole);
    return error < 0 ? error : ml_advice_edit(advice, stay);
}

static size_t
chain_length(const growth *g, size_t first)
{
    size_t length = 1;
    for (size_t i = first; g->next[i] < g->count; i = g->next[i]) {
        length++;
    }
    return length;
}

static int
propose_growth(const growth *g, ml_proposals *out)
{
    link_items(g);
    ml_advice *advice = NULL;
    int error = 0;
    for (size_t i = 0; error == 0 && i < g->count; i++) {
        if (g->follows[i] || chain_length(g, i) < LEAST_GROWTH) {
            continue;
        }
        if (advice == NULL) {
            advice = ml_proposals_add(out, ML_ADVICE_GROWN);
            if (advice == NULL) {
                return ML_ENOMEM;
            }
            advice->exact = false;
            advice->frame = g->items[0].frame;
        }
        error = edit_chain(g, advice, i);
    }
    return error;
}

static int
propose_growths(const ml_advice_case *it, const item *items, size_t count,
                ml_proposals *out)
{
    growth g = {.it = it};
    g.next = ml_alloc_zeroed(count + 1, sizeof(size_t));
    g.follows = ml_alloc_zeroed(count + 1, sizeof(bool));
    int error = g.next == NULL || g.follows == NULL ? ML_ENOMEM : 0;
    for (size_t first = 0, end; error == 0 && first < count; first = end) {
        end = end_of_line(items, count, first);
        g.items = items + first;
        g.count = end - first;
        error = g.count < LEAST_GROWTH ? 0 : propose_growth(&g, out);
    }
    ml_free(g.next);
    ml_free(g.follows);
    return error;
}

int
ml_advise_copies(const ml_advice_case *it, ml_proposals *out)
{
    sizes s = {0};
    modules m = {0};
    item *items = ml_alloc_zeroed(it->workload->count + 1, sizeof(item));
    int error = items == NULL ? ML_ENOMEM : find_modules(it, &m);
    error = error < 0 ? error : find_sizes(it, &m, &s);
    if (error == 0) {
        size_t count = find_items(it, &m, items);
        error = propose_copies(it, &s, items, count, out);
        error = error < 0 ? error : propose_growths(it, items, count, out);
    }
    ml_free(items);
    ml_free(m.trained);
    ml_free(m.called);
    ml_free(s.list);
    ml_free(s.left);
    return error;
}
