/* Gradients that live through the next forward.  Either nothing clears them,
 * zero_grad(set_to_none=False) overwrites them, or zero_grad() comes only after that
 * forward.
 *
 * Cleared in time, a step's gradients end with the step, and the next backward pass
 * makes them anew.  That pass already makes a block of each size, adds it to the
 * gradient and frees it.  The edit turns this block into the gradient.  If it is not
 * found, the edit adds one at the same place in the pass.
 *
 * A loop without an optimizer reports no steps.  Its steps then end between two
 * backward passes where gradients are freed.  Passes with no such frees between them
 * are one step.  If gradients are never freed, they cannot be distinguished from those
 * of a step with many passes. */
#include "lab/advice/advice_rules.h"

#include <stdlib.h>

#include "base/base.h"
#include "lab/advice/library_switches.h"
#include "recording/program_position.h"

/* A step of the recording, as events. */
typedef struct span {
    size_t end;      /* first event after it */
    size_t forward;  /* first allocation of its forward; ML_NO_EVENT: none */
    size_t pass;     /* first of its backward pass; likewise */
    size_t pass_end; /* event after its last */
    uint32_t call;   /* frame id of the line that called backward(); 0: not known */
} span;

/* A block made by a backward pass, by what distinguishes it from the pass's other
 * blocks. */
typedef struct made {
    size_t demand;
    uint64_t bytes;
    uint32_t step;
    uint32_t frame;
    uint32_t node; /* string */
    bool gradient; /* false: a temporary */
} made;

/* Backward passes with a forward between them. */
typedef struct passes {
    size_t count;
    uint32_t *before; /* owned; by event, the passes that began before or at it */
    /* owned; by number of earlier passes, the first event of a forward, or
     * ML_NO_EVENT */
    size_t *forward;
    /* owned; by number of earlier passes, whether gradients are freed then */
    bool *cleared;
} passes;

typedef struct gradients_work {
    const ml_advice_case *it;
    uint32_t *steps; /* owned; by event; NULL: the causes' steps */
    span *spans;     /* owned; by step, counted from the first one */
    size_t span_count;
    uint32_t first_step;
    made *made; /* owned */
    size_t made_count;
    bool *frozen; /* owned; as ml_advice_frozen: zero_grad() does not reach these */
} gradients_work;

/* NULL: the recording has no such step. */
static span *
span_of(const gradients_work *f, uint32_t step)
{
    return step - f->first_step < f->span_count ? &f->spans[step - f->first_step]
                                                : NULL;
}

static uint32_t
step_of(const gradients_work *f, size_t event)
{
    return f->steps != NULL ? f->steps[event]
                            : ml_causes_step(f->it->causes, f->it->device, event);
}

static size_t
last_event_of(const gradients_work *f, const ml_demand *demand)
{
    return demand->freed == ML_NO_EVENT ? f->it->trace->event_count : demand->freed;
}

/* ---- Steps that nothing but their backward passes tells of ---- */

static int
find_passes(const gradients_work *f, passes *p)
{
    const ml_advice_case *it = f->it;
    size_t count = it->trace->event_count;
    p->before = ml_alloc_zeroed(count + 1, sizeof(uint32_t));
    p->forward = ml_alloc_zeroed(count + 1, sizeof(size_t));
    p->cleared = ml_alloc_zeroed(count + 1, sizeof(bool));
    if (p->before == NULL || p->forward == NULL || p->cleared == NULL) {
        return ML_ENOMEM;
    }
    p->forward[0] = ML_NO_EVENT;
    for (size_t i = 0; i < count; i++) {
        enum ml_phase phase = ml_causes_phase(it->causes, it->device, i);
        bool alloc = ml_events_action(&it->trace->events, i) == ML_ACTION_ALLOC;
        if (alloc && phase == ML_PHASE_FORWARD && p->forward[p->count] == ML_NO_EVENT) {
            p->forward[p->count] = i;
        }
        bool goes_on = p->count > 0 && p->forward[p->count] == ML_NO_EVENT;
        if (phase == ML_PHASE_BACKWARD && !goes_on) {
            p->forward[++p->count] = ML_NO_EVENT;
        }
        p->before[i] = (uint32_t)p->count;
    }
    return 0;
}

static void
find_cleared(const gradients_work *f, passes *p)
{
    const ml_advice_case *it = f->it;
    for (size_t i = it->workload->before_count; i < it->workload->count; i++) {
        size_t freed = it->workload->demands[i].freed;
        if (ml_explained_of(it, i)->verdict.category == ML_CATEGORY_GRADIENT &&
            freed < it->trace->event_count &&
            ml_causes_phase(it->causes, it->device, freed) != ML_PHASE_BACKWARD) {
            p->cleared[p->before[freed]] = true;
        }
    }
}

static int
find_steps(gradients_work *f)
{
    size_t count = f->it->trace->event_count;
    passes p = {0};
    int error = find_passes(f, &p);
    if (error == 0) {
        find_cleared(f, &p);
        f->steps = ml_alloc_zeroed(count, sizeof(uint32_t));
        error = f->steps == NULL ? ML_ENOMEM : 0;
    }
    uint32_t step = 0;
    for (size_t i = 0; error == 0 && i < count; i++) {
        size_t pass = p.before[i];
        step += p.forward[pass] == i && p.cleared[pass];
        f->steps[i] = step;
    }
    ml_free(p.before);
    ml_free(p.forward);
    ml_free(p.cleared);
    return error;
}

/* ---- What steps are made of ---- */

static int
find_spans(gradients_work *f)
{
    const ml_advice_case *it = f->it;
    size_t count = it->trace->event_count;
    ml_program_position moment;
    int error = ml_program_position_at(it->recording, 0, &moment);
    if (error == 0 && !moment.has_steps) {
        error = find_steps(f);
    }
    if (error < 0) {
        return error;
    }
    f->first_step = step_of(f, 0);
    uint32_t last = step_of(f, count - 1);
    if (last < f->first_step || last - f->first_step >= count) {
        return 0; /* the file's numbers are invalid */
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
        uint32_t step = step_of(f, i) - f->first_step;
        if (step >= f->span_count) {
            continue;
        }
        span *at = &f->spans[step];
        enum ml_phase phase = ml_causes_phase(it->causes, it->device, i);
        bool alloc = ml_events_action(&it->trace->events, i) == ML_ACTION_ALLOC;
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

/* Also finds the line that called each step's backward pass. */
static int
find_made(gradients_work *f)
{
    const ml_advice_case *it = f->it;
    f->made = ml_alloc_zeroed(it->workload->count + 1, sizeof(made));
    if (f->made == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = it->workload->before_count; i < it->workload->count; i++) {
        const ml_explained *of = ml_explained_of(it, i);
        const ml_demand *demand = &it->workload->demands[i];
        uint32_t step = step_of(f, demand->born);
        span *own = of->cause.seed ? span_of(f, step) : NULL;
        if (own != NULL) {
            own->call = of->cause.frame;
        }
        bool gradient = of->verdict.category == ML_CATEGORY_GRADIENT;
        bool temporary = of->verdict.category == ML_CATEGORY_TEMPORARY &&
                         of->cause.phase == ML_PHASE_BACKWARD;
        if (gradient || temporary) {
            f->made[f->made_count++] =
                (made){.demand = i,
                       .bytes = demand->bytes,
                       .step = step,
                       .frame = of->cause.frame,
                       .node = ml_events_node(&it->trace->events, demand->born),
                       .gradient = gradient};
        }
    }
    if (f->made_count != 0) {
        qsort(f->made, f->made_count, sizeof(made), compare_made);
    }
    return 0;
}

/* The block of STEP that corresponds to the one at AT, by kind; *OTHER: STEP's blocks
 * of the kind. */
static const made *
find_again(const gradients_work *f, size_t at, uint32_t step)
{
    size_t first = at;
    while (first > 0 && f->made[first - 1].step == f->made[at].step &&
           compare_kind(&f->made[first - 1], &f->made[at]) == 0) {
        first--;
    }
    made sought = f->made[at];
    sought.step = step;
    sought.demand = 0;
    size_t low;
    ML_SEARCH(low, f->made_count, compare_made(&f->made[low], &sought) < 0);
    low += at - first;
    bool found = low < f->made_count && f->made[low].step == step &&
                 compare_kind(&f->made[low], &sought) == 0;
    return found ? &f->made[low] : NULL;
}

/* ---- The edits ---- */

/* Makes the gradient anew in the step of NOW, which has its own pass.  THEN is the step
 * of the gradient's birth. */
static int
make_anew(const gradients_work *f, ml_advice *advice, size_t at, const span *then,
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
edit_gradient(const gradients_work *f, ml_advice *advice, size_t at)
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

/* Whether the optimizer of GRADIENT steps later than at event BY, as one that accumulates while
 * another one steps.  An optimizer tags its gradients before its step. */
static bool
awaits_step(const ml_advice_case *it, const ml_demand *gradient, size_t by)
{
    const ml_device_trace *trace = it->trace;
    bool tells = false;
    size_t next;
    ML_SEARCH(next, trace->tag_count, trace->tags[next].position <= gradient->born);
    for (; next < trace->tag_count && trace->tags[next].position <= by; next++) {
        if (trace->tags[next].category != ML_CATEGORY_GRADIENT) {
            continue;
        }
        if (trace->tags[next].addr - gradient->addr < gradient->block_bytes) {
            return false;
        }
        tells = true;
    }
    return tells;
}

/* How GRADIENT lives through the forward of the step after its own.  ML_ADVICE_COUNT:
 * it does not. Freed between that forward and its pass: something clears it, but late.
 * Kept through the pass: the pass adds to it. */
static enum ml_advice_kind
kind_of(const gradients_work *f, const made *gradient)
{
    const ml_demand *demand = &f->it->workload->demands[gradient->demand];
    size_t last = last_event_of(f, demand);
    const span *own = span_of(f, gradient->step);
    const span *next = own != NULL ? span_of(f, gradient->step + 1) : NULL;
    bool kept = next != NULL && own->pass != ML_NO_EVENT && own->pass <= demand->born &&
                next->forward != ML_NO_EVENT && next->pass != ML_NO_EVENT &&
                last > next->forward;
    if (!kept) {
        return ML_ADVICE_COUNT;
    }
    if (last >= next->pass) {
        return f->steps == NULL && !awaits_step(f->it, demand, next->forward)
                   ? ML_ADVICE_GRADIENTS_KEPT
                   : ML_ADVICE_COUNT;
    }
    /* Without an optimizer's report, the update of the parameters may come this
     * late. */
    bool needed = f->steps != NULL && demand->last_used < last &&
                  demand->last_used > next->forward;
    return needed ? ML_ADVICE_COUNT : ML_ADVICE_GRADIENTS_LATE;
}

static uint32_t
stack_of_free(const gradients_work *f, const made *gradient)
{
    size_t freed = f->it->workload->demands[gradient->demand].freed;
    return ml_events_stack(&f->it->trace->events, freed);
}

/* Frame id of the line to look at: the one that freed GRADIENT, or whose pass made it;
 * 0: unknown. */
static uint32_t
line_of(const gradients_work *f, const made *gradient, enum ml_advice_kind kind)
{
    if (kind == ML_ADVICE_GRADIENTS_KEPT) {
        const span *own = span_of(f, gradient->step);
        return own != NULL ? own->call : 0;
    }
    uint32_t stack = stack_of_free(f, gradient);
    return ml_stack_facts_line(ml_causes_facts(f->it->causes), stack).frame;
}

static int
propose(const gradients_work *f, enum ml_advice_kind kind, ml_proposals *out)
{
    const ml_advice_case *it = f->it;
    ml_advice *advice = NULL;
    int error = 0;
    for (size_t i = 0; error == 0 && i < f->made_count; i++) {
        const made *gradient = &f->made[i];
        if (!gradient->gradient || f->frozen[gradient->demand] ||
            kind_of(f, gradient) != kind) {
            continue;
        }
        if (advice == NULL) {
            advice = ml_proposals_add(out, kind);
            if (advice == NULL) {
                return ML_ENOMEM;
            }
            advice->exact = false;
            advice->count = f->span_count;
            if (kind == ML_ADVICE_GRADIENTS_LATE) {
                advice->library_switch = ml_switch_of_late_gradients(
                    it->recording, stack_of_free(f, gradient));
            }
        }
        if (advice->frame == 0 && advice->library_switch == NULL) {
            advice->frame = line_of(f, gradient, kind);
        }
        if (ml_demand_at_peak(it, gradient->demand)) {
            advice->bytes += it->workload->demands[gradient->demand].block_bytes;
            advice->blocks++;
        }
        error = ml_advice_add_module(
            advice, it->recording, ml_explained_of(it, gradient->demand)->cause.module);
        error = error < 0 ? error : edit_gradient(f, advice, i);
    }
    return error;
}

static bool
has_gradients(const ml_advice_case *it)
{
    for (size_t i = 0; i < it->told_count; i++) {
        if (it->told[i].verdict.category == ML_CATEGORY_GRADIENT) {
            return true;
        }
    }
    return false;
}

int
ml_advise_gradients(const ml_advice_case *it, ml_proposals *out)
{
    gradients_work f = {.it = it};
    if (!has_gradients(it)) {
        return 0;
    }
    int error = it->trace->event_count == 0 ? 0 : find_spans(&f);
    if (error == 0 && f.span_count > 1) {
        error = find_made(&f);
        f.frozen = ml_advice_frozen(it);
        error = f.frozen == NULL ? ML_ENOMEM : error;
    }
    if (error == 0) {
        error = propose(&f, ML_ADVICE_GRADIENTS_KEPT, out);
    }
    if (error == 0) {
        error = propose(&f, ML_ADVICE_GRADIENTS_LATE, out);
    }
    ml_free(f.steps);
    ml_free(f.spans);
    ml_free(f.made);
    ml_free(f.frozen);
    return error;
}
