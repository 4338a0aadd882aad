/* Losses of several micro-batches that one backward pass runs: all their graphs are live at
 * once.
 *
 * In the blocks between two passes that the second one frees, the first of a module's call
 * tells the calls: it comes again with each.  Between two of them there is the value of a loss,
 * and then an input of the next call: what a recurrent net calls for each token has neither.
 * The pass runs the last graph first.
 *
 * The edits leave the pass where it is.  What a call saved ends with its loss, and is there
 * again when the pass is done with the graph after it. */
#include "lab/advice/advice_rules.h"

#include "base/base.h"

/* The value of a loss, in bytes. */
#define SCALAR_BYTES 8

/* Demands from FIRST up to BACK, then those of the pass up to END. */
typedef struct span {
    size_t first;
    size_t back;
    size_t end;
} span;

typedef struct micro_work {
    const ml_advice_case *it;
    ml_proposals *out;
    size_t at; /* of the proposal; SIZE_MAX: none */
} micro_work;

static const ml_demand *
demand_of(const micro_work *f, size_t demand)
{
    return &f->it->workload->demands[demand];
}

static bool
is_backward(const micro_work *f, size_t event)
{
    return (ml_events_flags(&f->it->trace->events, event) & ML_EVENT_BACKWARD) != 0;
}

/* Whether the pass of OF frees DEMAND. */
static bool
is_saved(const micro_work *f, const span *of, size_t demand)
{
    size_t freed = demand_of(f, demand)->freed;
    bool before =
        of->end == f->it->workload->count || freed < demand_of(f, of->end)->born;
    return freed != ML_NO_EVENT && freed > demand_of(f, of->back)->born && before &&
           is_backward(f, freed);
}

/* The first block that a module's call of OF saved; OF->back: none. */
static size_t
find_first(const micro_work *f, const span *of)
{
    size_t i = of->first;
    while (i < of->back &&
           !(is_saved(f, of, i) && ml_explained_of(f->it, i)->cause.module != 0 &&
             ml_explained_of(f->it, i)->cause.phase == ML_PHASE_FORWARD)) {
        i++;
    }
    return i;
}

/* The next demand behind I with the stack of FIRST; OF->back: none. */
static size_t
find_next(const micro_work *f, const span *of, size_t first, size_t i)
{
    do {
        i++;
    } while (i < of->back && demand_of(f, i)->stack != demand_of(f, first)->stack);
    return i;
}

/* The last value between the calls that begin with I and NEXT, behind which an input of the
 * second is made; SIZE_MAX: these are no calls of two batches. */
static size_t
find_loss(const micro_work *f, size_t i, size_t next)
{
    bool input = false;
    for (size_t at = next; at > i + 1; at--) {
        const ml_explained *is = ml_explained_of(f->it, at - 1);
        if (is->cause.module == 0 && demand_of(f, at - 1)->bytes <= SCALAR_BYTES) {
            return input ? at - 1 : SIZE_MAX;
        }
        input = input || is->verdict.category == ML_CATEGORY_INPUT;
    }
    return SIZE_MAX;
}

/* The first demand with the stack of FIRST of the call after that of demand I, and the loss
 * before it; OF->back, for both: there is no other call. */
static size_t
find_call(const micro_work *f, const span *of, size_t first, size_t i, size_t *loss)
{
    while (i < of->back) {
        size_t next = find_next(f, of, first, i);
        *loss = next < of->back ? find_loss(f, i, next) : of->back;
        if (*loss != SIZE_MAX) {
            return next;
        }
        i = next;
    }
    *loss = of->back;
    return of->back;
}

/* The call whose values end with LOSS, from demand FROM on: its blocks end there, and are made
 * again at event AGAIN. */
static int
edit_call(const micro_work *f, const span *of, size_t from, size_t loss, size_t again)
{
    ml_advice *advice = &f->out->list[f->at];
    int error = 0;
    for (size_t i = from; i <= loss && error == 0; i++) {
        const ml_demand *demand = demand_of(f, i);
        if (!is_saved(f, of, i)) {
            continue;
        }
        if (ml_demand_at_peak(f->it, i) && f->it->before.peak_event < again) {
            advice->bytes += demand->block_bytes;
            advice->blocks++;
        }
        ml_edit edit = {.kind = ML_EDIT_FREE,
                        .demand = i,
                        .until = (size_t)demand_of(f, loss)->born + 1};
        error = ml_advice_edit(advice, edit);
        if (demand->freed > again && error == 0) {
            ml_edit anew = {.kind = ML_EDIT_ADD,
                            .demand = i,
                            .bytes = demand->bytes,
                            .from = again,
                            .until = demand->freed};
            error = ml_advice_edit(advice, anew);
        }
    }
    return error;
}

/* The event by which the pass has freed all that demands from FROM up to END saved. */
static size_t
done_with(const micro_work *f, const span *of, size_t from, size_t end)
{
    size_t last = demand_of(f, of->back)->born;
    for (size_t i = from; i < end; i++) {
        if (is_saved(f, of, i) && demand_of(f, i)->freed > last) {
            last = demand_of(f, i)->freed;
        }
    }
    return last + 1;
}

/* The line that called the pass of OF; 0: unknown. */
static uint32_t
line_of(const micro_work *f, const span *of)
{
    uint32_t frame = 0;
    for (size_t i = of->first; i < of->end && frame == 0; i++) {
        const ml_cause *cause = &ml_explained_of(f->it, i)->cause;
        frame = cause->seed ? cause->frame : 0;
    }
    return frame;
}

/* A new proposal, of the pass of OF.  0 or ML_ENOMEM. */
static int
begin(micro_work *f, const span *of)
{
    ml_advice *advice = ml_proposals_add(f->out, ML_ADVICE_LOSSES_SUMMED);
    if (advice == NULL) {
        return ML_ENOMEM;
    }
    f->at = f->out->count - 1;
    advice->exact = false;
    advice->frame = line_of(f, of);
    return 0;
}

static int
edit_calls(micro_work *f, const span *of)
{
    size_t first = find_first(f, of);
    size_t from = of->first;
    size_t loss, count = 1;
    int error = 0;
    size_t next = find_call(f, of, first, first, &loss);
    if (next < of->back && f->at == SIZE_MAX) {
        error = begin(f, of);
    }
    for (; next < of->back && error == 0; count++) {
        size_t end;
        next = find_call(f, of, first, next, &end);
        error = edit_call(f, of, from, loss, done_with(f, of, loss + 1, end));
        from = loss + 1;
        loss = end;
    }
    if (error == 0 && f->at != SIZE_MAX && count > f->out->list[f->at].count) {
        f->out->list[f->at].count = count;
    }
    return error;
}

int
ml_advise_micro(const ml_advice_case *it, ml_proposals *out)
{
    const ml_workload *workload = it->workload;
    micro_work f = {.it = it, .out = out, .at = SIZE_MAX};
    span of = {.first = workload->before_count};
    int error = 0;
    while (error == 0 && of.first < workload->count) {
        of.back = of.first;
        while (of.back < workload->count &&
               !is_backward(&f, demand_of(&f, of.back)->born)) {
            of.back++;
        }
        of.end = of.back;
        while (of.end < workload->count &&
               is_backward(&f, demand_of(&f, of.end)->born)) {
            of.end++;
        }
        if (of.back < workload->count) {
            error = edit_calls(&f, &of);
        }
        of.first = of.end;
    }
    return error;
}
