/* Gradients that live on while the next forward runs, as zero_grad(set_to_none=False)
 * leaves them.
 *
 * Without them a step's gradients end with it, and are made anew by the next backward
 * pass: it makes a block of each size there already, which it adds to the gradient and
 * frees, and which is then the gradient.  Where it is not found, one is made at the same
 * place of the pass. */
#include "advice_rules.h"

#include <stdlib.h>

#include "base.h"

/* A step of the recording, as events. */
typedef struct span {
    size_t end;      /* first event behind it */
    size_t forward;  /* first allocation of its forward; ML_NO_EVENT: none */
    size_t pass;     /* first of its backward pass; likewise */
    size_t pass_end; /* behind the last of it */
} span;

/* A block that a backward pass made, by what tells it from its others. */
typedef struct made {
    size_t demand;
    uint64_t bytes;
    uint32_t step;
    uint32_t frame;
    uint32_t node; /* string */
    bool gradient; /* else a temporary */
} made;

typedef struct finder {
    const ml_advice_case *it;
    span *spans; /* owned; by step, less the first one's number */
    size_t span_count;
    uint32_t first_step;
    made *made; /* owned */
    size_t made_count;
} finder;

/* NULL: the recording has no such step. */
static const span *
span_of(const finder *f, uint32_t step)
{
    return step - f->first_step < f->span_count ? &f->spans[step - f->first_step]
                                                : NULL;
}

static int
find_spans(finder *f)
{
    const ml_advice_case *it = f->it;
    size_t count = it->trace->event_count;
    f->first_step = ml_causes_step(it->causes, it->device, 0);
    uint32_t last = ml_causes_step(it->causes, it->device, count - 1);
    if (last < f->first_step || last - f->first_step >= count) {
        return 0; /* numbers that a file made up */
    }
    f->span_count = (size_t)(last - f->first_step) + 1;
    f->spans = ml_alloc_zeroed(f->span_count, sizeof(span));
    if (f->spans == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < f->span_count; i++) {
        f->spans[i] = (span){.forward = ML_NO_EVENT, .pass = ML_NO_EVENT};
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t step = ml_causes_step(it->causes, it->device, i) - f->first_step;
        if (step >= f->span_count) {
            continue;
        }
        span *at = &f->spans[step];
        enum ml_phase phase = ml_causes_phase(it->causes, it->device, i);
        bool alloc = it->trace->events[i].action == ML_ACTION_ALLOC;
        at->end = i + 1;
        if (alloc && phase == ML_PHASE_FORWARD && at->forward == ML_NO_EVENT) {
            at->forward = i;
        }
        if (phase == ML_PHASE_BACKWARD) {
            at->pass = at->pass == ML_NO_EVENT ? i : at->pass;
            at->pass_end = i + 1;
        }
    }
    return 0;
}

static int
compare_kind(const made *x, const made *y)
{
    const uint64_t a[] = {x->bytes, x->frame, x->node};
    const uint64_t b[] = {y->bytes, y->frame, y->node};
    for (size_t i = 0; i < sizeof(a) / sizeof(a[0]); i++) {
        if (a[i] != b[i]) {
            return a[i] < b[i] ? -1 : 1;
        }
    }
    return 0;
}

static int
compare_made(const void *a, const void *b)
{
    const made *x = a;
    const made *y = b;
    if (x->step != y->step) {
        return x->step < y->step ? -1 : 1;
    }
    int kind = compare_kind(x, y);
    return kind != 0 ? kind : x->demand < y->demand ? -1 : x->demand > y->demand;
}

static int
find_made(finder *f)
{
    const ml_advice_case *it = f->it;
    f->made = ml_alloc_zeroed(it->workload->count + 1, sizeof(made));
    if (f->made == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = it->workload->before_count; i < it->workload->count; i++) {
        const ml_explained *of = &it->of[i];
        bool gradient = of->verdict.category == ML_CATEGORY_GRADIENT;
        bool temporary = of->verdict.category == ML_CATEGORY_TEMPORARY &&
                         of->cause.phase == ML_PHASE_BACKWARD;
        if (gradient || temporary) {
            const ml_demand *demand = &it->workload->demands[i];
            f->made[f->made_count++] =
                (made){.demand = i,
                       .bytes = demand->bytes,
                       .step = of->cause.step,
                       .frame = of->cause.frame,
                       .node = it->trace->events[demand->born].node,
                       .gradient = gradient};
        }
    }
    if (f->made_count != 0) {
        qsort(f->made, f->made_count, sizeof(made), compare_made);
    }
    return 0;
}

/* Of the blocks of a kind and a step, which the one at AT is; *OTHER: those of STEP. */
static const made *
find_again(const finder *f, size_t at, uint32_t step)
{
    size_t first = at;
    while (first > 0 && f->made[first - 1].step == f->made[at].step &&
           compare_kind(&f->made[first - 1], &f->made[at]) == 0) {
        first--;
    }
    made sought = f->made[at];
    sought.step = step;
    sought.demand = 0;
    size_t low = 0, high = f->made_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_made(&f->made[middle], &sought) < 0) {
            low = middle + 1;
        }
        else {
            high = middle;
        }
    }
    low += at - first;
    bool found = low < f->made_count && f->made[low].step == step &&
                 compare_kind(&f->made[low], &sought) == 0;
    return found ? &f->made[low] : NULL;
}

/* ---- The edits ---- */

static size_t
last_event_of(const finder *f, const ml_demand *demand)
{
    return demand->freed == ML_NO_EVENT ? f->it->trace->event_count : demand->freed;
}

/* As the gradient is from the step of NOW on, which has its own pass; THEN is that of the
 * gradient's birth. */
static int
make_anew(const finder *f, ml_advice *advice, size_t at, const span *then,
          const span *now)
{
    const made *gradient = &f->made[at];
    const ml_demand *demand = &f->it->workload->demands[gradient->demand];
    size_t last = last_event_of(f, demand);
    uint32_t step = f->first_step + (uint32_t)(now - f->spans);
    bool stays = demand->freed == ML_NO_EVENT && now + 1 == f->spans + f->span_count;
    ml_edit edit = {.until = stays ? ML_NO_EVENT : now->end < last ? now->end : last};
    const made *again = find_again(f, at, step);
    if (again != NULL && !again->gradient) {
        edit.kind = ML_EDIT_FREE;
        edit.demand = again->demand;
        return ml_advice_edit(advice, edit);
    }
    size_t into = demand->born - then->pass;
    edit.kind = ML_EDIT_ADD;
    edit.demand = gradient->demand;
    edit.bytes = gradient->bytes;
    edit.from = into < now->pass_end - now->pass ? now->pass + into : now->pass_end;
    return edit.from < last ? ml_advice_edit(advice, edit) : 0;
}

static int
edit_gradient(const finder *f, ml_advice *advice, size_t at)
{
    const made *gradient = &f->made[at];
    const ml_demand *demand = &f->it->workload->demands[gradient->demand];
    const span *own = &f->spans[gradient->step - f->first_step];
    ml_edit end = {.kind = ML_EDIT_FREE, .demand = gradient->demand, .until = own->end};
    int error = ml_advice_edit(advice, end);
    size_t last = last_event_of(f, demand);
    for (const span *next = own + 1; error == 0 && next < f->spans + f->span_count &&
                                     next->pass != ML_NO_EVENT && next->pass < last;
         next++) {
        error = make_anew(f, advice, at, own, next);
    }
    return error;
}

/* Whether it is there in the forward of the step after its own. */
static bool
is_kept(const finder *f, const made *gradient)
{
    const ml_demand *demand = &f->it->workload->demands[gradient->demand];
    const span *own = span_of(f, gradient->step);
    const span *next = own != NULL ? span_of(f, gradient->step + 1) : NULL;
    return next != NULL && own->pass != ML_NO_EVENT && own->pass <= demand->born &&
           next->forward != ML_NO_EVENT && next->pass != ML_NO_EVENT &&
           last_event_of(f, demand) > next->forward;
}

static int
propose(const finder *f, ml_proposals *out)
{
    const ml_advice_case *it = f->it;
    ml_advice *advice = NULL;
    int error = 0;
    for (size_t i = 0; error == 0 && i < f->made_count; i++) {
        const made *gradient = &f->made[i];
        if (!gradient->gradient || !is_kept(f, gradient)) {
            continue;
        }
        if (advice == NULL) {
            advice = ml_proposals_add(out, ML_ADVICE_GRADIENTS_KEPT);
            if (advice == NULL) {
                return ML_ENOMEM;
            }
            advice->exact = false;
        }
        if (ml_demand_at_peak(it, gradient->demand)) {
            advice->bytes += it->workload->demands[gradient->demand].block_bytes;
            advice->blocks++;
        }
        advice->count = f->span_count;
        error = ml_advice_add_module(advice, it->recording,
                                     it->of[gradient->demand].cause.module);
        error = error < 0 ? error : edit_gradient(f, advice, i);
    }
    return error;
}

int
ml_advise_gradients(const ml_advice_case *it, ml_proposals *out)
{
    finder f = {.it = it};
    int error = it->trace->event_count == 0 ? 0 : find_spans(&f);
    if (error == 0 && f.span_count > 1) {
        error = find_made(&f);
    }
    if (error == 0) {
        error = propose(&f, out);
    }
    ml_free(f.spans);
    ml_free(f.made);
    return error;
}
