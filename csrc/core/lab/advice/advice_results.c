/* Results that an evaluation keeps on the GPU until it is over, such as predictions in a list, and
 * what is concatenated of them.
 *
 * The blocks of a stack are such results if several calls of the model each left one that is
 * live at the peak, and that is done with before the next backward pass: what a training needs on
 * the GPU, such as a policy's rollout or a teacher's answers, is none.  In the replay each ends when
 * the next is there, as if it went to the host, and a block with the size of all of them together
 * is not made. */
#include "lab/advice/advice_rules.h"

#include "analysis/answers/stages.h"
#include "base/base.h"
#include "lab/advice/graph_passes.h"

/* Calls that leave fewer blocks may need them together. */
#define LEAST_CALLS 5
/* Stacks considered: a model has few results. */
#define MOST_STACKS 16

/* Where the walk over the demands is. */
typedef struct place {
    uint32_t period; /* of evaluations: ends with a backward pass */
    uint32_t call;   /* of a model */
    uint32_t first;  /* stack: of the first block of the call; 0: none is open */
    bool evaluates;  /* the last call was an evaluation's */
} place;

/* The blocks of one stack in a period. */
typedef struct result {
    uint64_t bytes;  /* of all of the period but the last one */
    size_t before;   /* demand; the last one */
    uint32_t period; /* counted from 1 */
    uint32_t call;   /* of the last one */
    uint32_t calls;  /* that left a block that is live at the peak */
    bool kept;       /* calls came to LEAST_CALLS */
} result;

typedef struct results {
    const ml_advice_case *it;
    size_t *next_pass;          /* owned; by demand: event of the next backward pass */
    result *by_stack;           /* owned */
    uint32_t kept[MOST_STACKS]; /* stacks */
    size_t kept_count;
} results;

static bool
is_backward(const ml_advice_case *it, size_t demand)
{
    return ml_events_is_backward(&it->trace->events,
                                 it->workload->demands[demand].born);
}

static int
find_passes(results *f)
{
    const ml_workload *workload = f->it->workload;
    size_t next = ML_NO_EVENT;
    f->next_pass = ml_alloc_zeroed(workload->count + 1, sizeof(size_t));
    for (size_t i = workload->count; f->next_pass != NULL && i > workload->before_count;
         i--) {
        next = is_backward(f->it, i - 1) ? workload->demands[i - 1].born : next;
        f->next_pass[i - 1] = next;
    }
    return f->next_pass == NULL ? ML_ENOMEM : 0;
}

/* Whether a backward pass begins before DEMAND is done with. */
static bool
outlives_evaluation(const results *f, size_t demand)
{
    const ml_demand *of = &f->it->workload->demands[demand];
    size_t over = of->last_used != ML_NO_EVENT ? of->last_used : of->freed;
    return f->next_pass[demand] < over;
}

/* Moves AT to DEMAND.  False: it is not made by an evaluation or between two of its calls. */
static bool
follow(const results *f, place *at, size_t demand)
{
    const ml_advice_case *it = f->it;
    const ml_demand *of = &it->workload->demands[demand];
    if (is_backward(it, demand)) {
        at->period++;
        at->evaluates = false;
        at->first = 0;
        return false;
    }
    bool within = ml_causes_facts(it->causes)->of[of->stack].outer_module != 0;
    if (!within) {
        at->first = 0;
        return at->evaluates;
    }
    if (at->first == 0 || at->first == of->stack) {
        at->call++;
        at->first = of->stack;
    }
    at->evaluates = ml_stage_is_evaluation(it->stages[of->born]);
    return at->evaluates;
}

/* The blocks of the stack of DEMAND, of this period. */
static result *
result_of(const results *f, const place *at, size_t demand)
{
    result *of = &f->by_stack[f->it->workload->demands[demand].stack];
    if (of->period != at->period) {
        of->period = at->period;
        of->bytes = 0;
        of->calls = 0;
        of->call = 0;
        of->before = SIZE_MAX;
    }
    return of;
}

static void
find_kept(results *f)
{
    const ml_advice_case *it = f->it;
    place at = {.period = 1};
    for (size_t i = it->workload->before_count; i < it->workload->count; i++) {
        if (!follow(f, &at, i) || !ml_demand_at_peak(it, i) ||
            f->next_pass[i] < it->before.peak_event || outlives_evaluation(f, i) ||
            ml_growth_has(it->growth, &ml_explained_of(it, i)->cause)) {
            continue;
        }
        result *of = result_of(f, &at, i);
        of->calls += of->call != at.call;
        of->call = at.call;
        if (of->calls == LEAST_CALLS && !of->kept && f->kept_count < MOST_STACKS) {
            of->kept = true;
            f->kept[f->kept_count++] = it->workload->demands[i].stack;
        }
    }
}

/* Whether DEMAND has the size of all results of one kind in this period. */
static bool
is_whole(const results *f, const place *at, size_t demand)
{
    bool is = false;
    for (size_t i = 0; i < f->kept_count && !is; i++) {
        const result *of = &f->by_stack[f->kept[i]];
        const ml_demand *demands = f->it->workload->demands;
        if (of->period == at->period && of->calls + 1 >= LEAST_CALLS) {
            bool last = demands[of->before].freed > demands[demand].born;
            uint64_t bytes = of->bytes + (last ? demands[of->before].bytes : 0);
            is = bytes == demands[demand].bytes;
        }
    }
    return is;
}

static int
concern(const results *f, size_t demand, ml_advice *advice)
{
    if (!ml_demand_at_peak(f->it, demand)) {
        return 0;
    }
    advice->bytes += f->it->workload->demands[demand].block_bytes;
    advice->blocks++;
    return ml_advice_add_module(advice, f->it->recording,
                                ml_explained_of(f->it, demand)->cause.module);
}

/* The result before DEMAND ends when this one is there. */
static int
edit_result(const results *f, const place *at, size_t demand, ml_advice *advice)
{
    const ml_demand *demands = f->it->workload->demands;
    result *of = result_of(f, at, demand);
    size_t before = of->before;
    of->before = demand;
    int error = concern(f, demand, advice);
    /* A workspace of the same line is gone by then. */
    if (error < 0 || before == SIZE_MAX ||
        demands[before].freed <= demands[demand].born + 1) {
        return error;
    }
    of->bytes += demands[before].bytes;
    of->calls++;
    return ml_advice_edit(advice, (ml_edit){.kind = ML_EDIT_FREE,
                                            .demand = before,
                                            .until = demands[demand].born + 1});
}

static int
edit_all(results *f, ml_advice *advice)
{
    const ml_advice_case *it = f->it;
    const ml_demand *demands = it->workload->demands;
    place at = {.period = 1};
    uint64_t largest = 0;
    int error = 0;
    for (size_t i = 0; i < f->kept_count; i++) {
        f->by_stack[f->kept[i]].period = 0;
    }
    for (size_t i = it->workload->before_count; i < it->workload->count && error == 0;
         i++) {
        if (!follow(f, &at, i) || outlives_evaluation(f, i)) {
            continue;
        }
        if (f->by_stack[demands[i].stack].kept) {
            error = edit_result(f, &at, i, advice);
            if (demands[i].block_bytes > largest) {
                largest = demands[i].block_bytes;
                advice->frame = ml_graph_calling_line(it, i);
            }
        }
        else if (at.first == 0 && is_whole(f, &at, i)) {
            error = concern(f, i, advice);
            ml_edit none = {.kind = ML_EDIT_RESIZE, .demand = i};
            error = error < 0 ? error : ml_advice_edit(advice, none);
        }
    }
    return error;
}

int
ml_advise_results(const ml_advice_case *it, ml_proposals *out)
{
    results f = {.it = it};
    f.by_stack = ml_alloc_zeroed(it->recording->stack_count + 1, sizeof(result));
    int error = f.by_stack == NULL ? ML_ENOMEM : find_passes(&f);
    if (error == 0) {
        find_kept(&f);
    }
    if (f.kept_count != 0) {
        ml_advice *advice = ml_proposals_add(out, ML_ADVICE_RESULTS_KEPT);
        error = advice == NULL ? ML_ENOMEM : 0;
        if (error == 0) {
            advice->exact = false;
            advice->count = f.kept_count;
            error = edit_all(&f, advice);
        }
    }
    ml_free(f.by_stack);
    ml_free(f.next_pass);
    return error;
}
