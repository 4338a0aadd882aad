/* Losses of several micro-batches that one backward pass runs: all their graphs are live at
 * once.
 *
 * In the blocks between two passes that the second one frees, the first of a module's call
 * tells the calls: it comes again with each.  Between two of them there is the value of a loss.
 * The pass runs the last graph first.
 *
 * Calls that depend on each other need one pass.  It shows them: while it goes from one call's
 * graph to that of the call before, the gradient of what they share is there, as in a recurrent
 * net; or it begins with blocks of several calls, which their common loss saved.
 *
 * The edits leave the pass where it is.  What a call saved ends with its loss, and is there
 * again when the pass comes to it. */
#include "lab/advice/advice_rules.h"

#include "analysis/attribution/passes.h"
#include "base/base.h"

/* Demands from FIRST up to BACK, then those of the pass up to END. */
typedef struct span {
    size_t first;
    size_t back;
    size_t end;
} span;

/* A call, by the demands from FROM up to END, of which the last is its loss. */
typedef struct call {
    size_t from;
    size_t end;
    uint64_t number; /* of its first node of autograd */
    size_t over;     /* event; the pass begins with nodes of the calls before it */
} call;

typedef struct micro_work {
    const ml_advice_case *it;
    ml_proposals *out;
    size_t at;   /* of the proposal; SIZE_MAX: none */
    call *calls; /* owned; of one pass */
    size_t count;
    size_t capacity;
    ml_weights weights;
} micro_work;

static const ml_demand *
demand_of(const micro_work *f, size_t demand)
{
    return &f->it->workload->demands[demand];
}

/* Whether a pass frees DEMAND, not after that of OF. */
static bool
is_freed_until(const micro_work *f, const span *of, size_t demand)
{
    size_t freed = demand_of(f, demand)->freed;
    return freed != ML_NO_EVENT &&
           ml_events_is_backward(&f->it->trace->events, freed) &&
           (of->end == f->it->workload->count || freed < demand_of(f, of->end)->born);
}

/* Whether the pass of OF frees DEMAND. */
static bool
is_saved(const micro_work *f, const span *of, size_t demand)
{
    return is_freed_until(f, of, demand) &&
           demand_of(f, demand)->freed > demand_of(f, of->back)->born;
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

static bool
is_value(const micro_work *f, size_t demand)
{
    return ml_explained_of(f->it, demand)->cause.module == 0 &&
           demand_of(f, demand)->bytes <= ML_LOSS_VALUE_BYTES;
}

/* The last value between the calls that begin with I and NEXT; SIZE_MAX: these are no calls of
 * two batches. */
static size_t
find_loss(const micro_work *f, size_t i, size_t next)
{
    for (size_t at = next; at > i + 1; at--) {
        if (is_value(f, at - 1)) {
            return at - 1;
        }
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

/* ---- Calls ---- */

static int
add_call(micro_work *f, size_t from, size_t end)
{
    void *calls = f->calls;
    int error = ml_grow(&calls, &f->capacity, f->count + 1, sizeof(call));
    if (error == 0) {
        f->calls = calls;
        /* The loss before it was made for the node before the next one. */
        const ml_events *events = &f->it->trace->events;
        uint64_t number =
            f->count == 0 ? 0
                          : ml_events_sequence(events, demand_of(f, from - 1)->born);
        f->calls[f->count++] = (call){.from = from, .end = end, .number = number};
    }
    return error;
}

static int
find_calls(micro_work *f, const span *of)
{
    size_t first = find_first(f, of);
    size_t from = of->first;
    size_t next = first;
    int error = 0;
    f->count = 0;
    while (next < of->back && error == 0) {
        size_t loss;
        next = find_call(f, of, first, next, &loss);
        size_t end = next < of->back ? loss + 1 : of->back;
        error = add_call(f, from, end);
        from = end;
    }
    return error;
}

/* Finds when the pass of OF comes from one call to the one before: it runs the nodes with the
 * highest numbers first. */
static void
follow_pass(micro_work *f, const span *of)
{
    const ml_events *events = &f->it->trace->events;
    size_t at = f->count - 1;
    size_t born = 0;
    for (size_t i = of->back; i < of->end && at > 0; i++) {
        born = demand_of(f, i)->born;
        uint64_t number = ml_events_sequence(events, born);
        for (; at > 0 && number < f->calls[at].number; at--) {
            f->calls[at].over = born;
        }
    }
    for (; at > 0; at--) {
        f->calls[at].over = born;
    }
}

/* ---- Calls that depend on each other ---- */

/* Whether DEMAND, of the pass of OF, is there when the pass comes from one call to the one
 * before.  The gradient of a weight is, until those of all calls are added; so are those of the
 * losses. */
static bool
crosses(const micro_work *f, const span *of, size_t demand)
{
    const ml_demand *is = demand_of(f, demand);
    if (!is_freed_until(f, of, demand) || is->bytes <= ML_LOSS_VALUE_BYTES * f->count ||
        ml_weights_have(&f->weights, is->bytes)) {
        return false;
    }
    const call *last = &f->calls[f->count - 1];
    size_t at;
    ML_SEARCH(at, f->count - 1, (last - at)->over <= is->born);
    return at < f->count - 1 && (last - at)->over <= is->freed;
}

/* Whether the pass frees something of call AT, or uses it last, before it comes to it. */
static bool
is_needed_behind(const micro_work *f, const span *of, size_t at)
{
    bool needed = false;
    const call *is = &f->calls[at];
    for (size_t i = is->from; i < is->end && !needed; i++) {
        const ml_demand *made = demand_of(f, i);
        bool used = made->last_used != ML_NO_EVENT &&
                    made->last_used > demand_of(f, of->back)->born &&
                    made->last_used < is[1].over;
        needed = used || (is_saved(f, of, i) && made->freed < is[1].over);
    }
    return needed;
}

/* Values that call AT saved. */
static size_t
count_values(const micro_work *f, const span *of, size_t at)
{
    size_t count = 0;
    for (size_t i = f->calls[at].from; i < f->calls[at].end; i++) {
        count += is_saved(f, of, i) && is_value(f, i);
    }
    return count;
}

/* Whether each call can have a pass of its own, as far as the pass of OF tells.  What is
 * computed of the losses, if more than their sum, saves values behind the last of them. */
static bool
are_apart(const micro_work *f, const span *of)
{
    bool apart = count_values(f, of, f->count - 1) <= count_values(f, of, 0);
    for (size_t i = 0; i + 1 < f->count && apart; i++) {
        apart = !is_needed_behind(f, of, i);
    }
    for (size_t i = of->back; i < of->end && apart; i++) {
        apart = !crosses(f, of, i);
    }
    return apart;
}

/* ---- Edits ---- */

/* The blocks of IS, one of the calls but the last, end with its loss, and are made again when
 * the pass comes to it. */
static int
edit_call(const micro_work *f, const span *of, const call *is)
{
    size_t again = is[1].over;
    size_t loss = is->end - 1;
    ml_advice *advice = &f->out->list[f->at];
    int error = 0;
    for (size_t i = is->from; i <= loss && error == 0; i++) {
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

static int
edit_calls(micro_work *f, const span *of)
{
    int error = find_calls(f, of);
    if (error < 0 || f->count < 2) {
        return error;
    }
    follow_pass(f, of);
    if (f->weights.bytes == NULL) {
        error = ml_weights_find(f->it, &f->weights);
    }
    if (error < 0 || !are_apart(f, of)) {
        return error;
    }
    error = f->at == SIZE_MAX ? begin(f, of) : 0;
    for (size_t i = 0; i + 1 < f->count && error == 0; i++) {
        error = edit_call(f, of, &f->calls[i]);
    }
    if (error == 0 && f->count > f->out->list[f->at].count) {
        f->out->list[f->at].count = f->count;
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
               !ml_events_is_backward(&f.it->trace->events,
                                      demand_of(&f, of.back)->born)) {
            of.back++;
        }
        of.end = of.back;
        while (
            of.end < workload->count &&
            ml_events_is_backward(&f.it->trace->events, demand_of(&f, of.end)->born)) {
            of.end++;
        }
        if (of.back < workload->count) {
            error = edit_calls(&f, &of);
        }
        of.first = of.end;
    }
    ml_free(f.calls);
    ml_weights_fini(&f.weights);
    return error;
}
