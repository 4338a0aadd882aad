/* Gradients that no optimizer reads, and the graphs that lead only to them.
 *
 * An optimizer tags its gradients before its step.  A gradient that was live then and got no tag
 * belongs to no optimizer.
 *
 * Where no optimizer has a parameter of a whole model, such as a teacher, its graph is in vain
 * too, unless gradients pass through the model to what was before its call.  Such a gradient is a
 * block that the pass makes in the model's graph and does not free there. */
#include "lab/advice/advice_rules.h"

#include <stdlib.h>

#include "base/base.h"
#include "lab/advice/advice_places.h"
#include "lab/advice/graph_passes.h"

/* Reports of optimizers. */
typedef struct owners {
    /* owned; gradients tagged before each event, and before the end */
    uint32_t *tagged;
    bool *trains; /* owned; by string: as ml_advice_trained */
} owners;

bool *
ml_advice_trained(const ml_advice_case *it)
{
    bool *trains = ml_alloc_zeroed(it->recording->string_count + 1, sizeof(bool));
    for (size_t i = 0; trains != NULL && i < it->trace->tag_count; i++) {
        const ml_tag *tag = &it->trace->tags[i];
        trains[tag->module] |= tag->category == ML_CATEGORY_GRADIENT ||
                               tag->category == ML_CATEGORY_OPTIMIZER_STATE;
    }
    return trains;
}

static int
find_told(const ml_advice_case *it, owners *out)
{
    const ml_device_trace *trace = it->trace;
    uint32_t *tagged = ml_alloc_zeroed(trace->event_count + 1, sizeof(uint32_t));
    bool *trains = ml_advice_trained(it);
    *out = (owners){tagged, trains};
    if (tagged == NULL || trains == NULL) {
        return ML_ENOMEM;
    }
    size_t next = 0;
    uint32_t count = 0;
    for (size_t i = 0; i <= trace->event_count; i++) {
        for (; next < trace->tag_count && trace->tags[next].position <= i; next++) {
            count += trace->tags[next].category == ML_CATEGORY_GRADIENT;
        }
        tagged[i] = count;
    }
    return 0;
}

/* Whether an optimizer tagged its gradients while DEMAND was live. */
static bool
was_seen(const ml_advice_case *it, const owners *told, const ml_demand *demand)
{
    size_t end = demand->freed == ML_NO_EVENT ? it->trace->event_count : demand->freed;
    return told->tagged[end] > told->tagged[demand->born];
}

/* In a module with trained parameters, the block could be a library's workspace. */
static bool
is_frozen(const ml_advice_case *it, const owners *told, size_t demand)
{
    uint32_t module = ml_explained_of(it, demand)->cause.module;
    return ml_explained_of(it, demand)->verdict.category == ML_CATEGORY_GRADIENT &&
           !ml_explained_of(it, demand)->verdict.exact && module != 0 &&
           !told->trains[module] && was_seen(it, told, &it->workload->demands[demand]);
}

bool *
ml_advice_frozen(const ml_advice_case *it)
{
    owners told = {0};
    bool *frozen = ml_alloc_zeroed(it->workload->count + 1, sizeof(bool));
    if (frozen == NULL || find_told(it, &told) < 0) {
        ml_free(frozen);
        frozen = NULL;
    }
    for (size_t i = it->workload->before_count;
         frozen != NULL && i < it->workload->count; i++) {
        frozen[i] = is_frozen(it, &told, i);
    }
    ml_free(told.tagged);
    ml_free(told.trains);
    return frozen;
}

/* ---- Edits of gradients ---- */

/* Identifies a gradient's block.  A temporary that a backward pass adds to the gradient
 * looks the same. */
typedef struct made {
    uint64_t bytes;
    uint32_t frame;
    uint32_t module;
    uint32_t node;
} made;

static int
compare_made(const void *a, const void *b)
{
    const made *x = a;
    const made *y = b;
    const uint64_t of_x[] = {x->bytes, x->frame, x->module, x->node};
    const uint64_t of_y[] = {y->bytes, y->frame, y->module, y->node};
    for (size_t i = 0; i < sizeof(of_x) / sizeof(of_x[0]); i++) {
        if (of_x[i] != of_y[i]) {
            return of_x[i] < of_y[i] ? -1 : 1;
        }
    }
    return 0;
}

static made
made_of(const ml_advice_case *it, size_t demand)
{
    const ml_demand *of = &it->workload->demands[demand];
    return (made){.bytes = of->bytes,
                  .frame = ml_explained_of(it, demand)->cause.frame,
                  .module = ml_explained_of(it, demand)->cause.module,
                  .node = ml_events_node(&it->trace->events, of->born)};
}

static bool
is_addend(const ml_advice_case *it, size_t demand)
{
    return ml_explained_of(it, demand)->verdict.category == ML_CATEGORY_TEMPORARY &&
           ml_explained_of(it, demand)->cause.phase == ML_PHASE_BACKWARD;
}

static int
edit_frozen(const ml_advice_case *it, const bool *of_none, const made *kinds,
            size_t count, ml_advice *advice)
{
    int error = 0;
    for (size_t i = it->workload->before_count; error == 0 && i < it->workload->count;
         i++) {
        bool frozen = of_none[i];
        made key = made_of(it, i);
        if (!frozen && (!is_addend(it, i) || bsearch(&key, kinds, count, sizeof(made),
                                                     compare_made) == NULL)) {
            continue;
        }
        if (frozen && ml_demand_at_peak(it, i)) {
            advice->bytes += it->workload->demands[i].block_bytes;
            advice->blocks++;
        }
        error = frozen ? ml_advice_add_module(advice, it->recording, key.module) : 0;
        ml_edit none = {.kind = ML_EDIT_RESIZE, .demand = i};
        error = error < 0 ? error : ml_advice_edit(advice, none);
    }
    return error;
}

/* ---- Models of which no optimizer has a parameter ---- */

/* Calls of such models with nothing of another one between, by the nodes that they make: from
 * FIRST up to END. */
typedef struct call {
    uint64_t first;
    uint64_t end;
    size_t last;     /* birth of the last demand: maybe the result */
    size_t demand;   /* of the largest block; index */
    uint16_t thread; /* autograd's */
    bool ran;        /* a pass made something for these nodes */
    bool passed;     /* gradients passed through to what was before */
} call;

/* A block that the graph of a call holds. */
typedef struct held {
    uint64_t like; /* hash of what it shares with the same block of another layer */
    size_t call;   /* index */
    size_t demand;
} held;

typedef struct models {
    const ml_advice_case *it;
    const bool *frozen; /* by demand */
    bool *vain;         /* owned; by string: no gradient of the model is of use */
    call *calls;        /* owned; by thread, then by first node */
    size_t call_count;
    size_t call_capacity;
    held *held; /* owned */
    size_t held_count;
} models;

static uint32_t
model_of(const ml_advice_case *it, uint32_t stack)
{
    return ml_causes_facts(it->causes)->of[stack].outer_module;
}

/* Of models with frozen gradients those with no trained module. */
static int
find_models(models *f)
{
    const ml_advice_case *it = f->it;
    bool *trains = ml_advice_trained(it);
    f->vain = ml_alloc_zeroed(it->recording->string_count + 1, sizeof(bool));
    if (trains == NULL || f->vain == NULL) {
        ml_free(trains);
        return ML_ENOMEM;
    }
    for (size_t i = it->workload->before_count; i < it->workload->count; i++) {
        f->vain[model_of(it, ml_explained_of(it, i)->cause.stack)] |= f->frozen[i];
    }
    for (uint32_t i = 1; i < it->recording->stack_count; i++) {
        f->vain[model_of(it, i)] &= !trains[it->recording->stacks[i].module];
    }
    f->vain[0] = false;
    ml_free(trains);
    return 0;
}

static int
compare_calls(const void *a, const void *b)
{
    const call *x = a;
    const call *y = b;
    if (x->thread != y->thread) {
        return x->thread < y->thread ? -1 : 1;
    }
    return (x->first > y->first) - (x->first < y->first);
}

/* Adds DEMAND, of a forward, to the call at *OPEN, an index plus 1, or begins one.  BEFORE: the
 * number of the next node when the demand before it was made. */
static int
follow_call(models *f, size_t demand, uint64_t before, size_t *open)
{
    const ml_advice_case *it = f->it;
    const ml_demand *of = &it->workload->demands[demand];
    uint32_t model = model_of(it, of->stack);
    if (!f->vain[model]) {
        /* What is outside of models may only carry results from one call to the next. */
        *open = model == 0 ? *open : 0;
        return 0;
    }
    if (*open == 0) {
        void *calls = f->calls;
        if (ml_grow(&calls, &f->call_capacity, f->call_count + 1, sizeof(call)) < 0) {
            return ML_ENOMEM;
        }
        f->calls = calls;
        f->calls[f->call_count] =
            (call){.first = before,
                   .demand = demand,
                   .thread = ml_events_autograd_thread(&it->trace->events, of->born)};
        *open = ++f->call_count;
    }
    call *now = &f->calls[*open - 1];
    now->last = of->born;
    now->end = ml_events_sequence(&it->trace->events, of->born);
    if (of->block_bytes > it->workload->demands[now->demand].block_bytes) {
        now->demand = demand;
    }
    return 0;
}

static int
find_calls(models *f)
{
    const ml_advice_case *it = f->it;
    const ml_events *events = &it->trace->events;
    size_t *open = ml_alloc_zeroed(UINT16_MAX + 1, sizeof(size_t));
    uint64_t *next = ml_alloc_zeroed(UINT16_MAX + 1, sizeof(uint64_t));
    int error = open == NULL || next == NULL ? ML_ENOMEM : 0;
    for (size_t i = it->workload->before_count; error == 0 && i < it->workload->count;
         i++) {
        size_t born = it->workload->demands[i].born;
        uint16_t thread = ml_events_autograd_thread(events, born);
        if (ml_events_is_backward(&it->trace->events, born)) {
            open[thread] = 0;
        }
        else if (thread != 0) {
            error = follow_call(f, i, next[thread], &open[thread]);
            next[thread] = ml_events_sequence(events, born);
        }
    }
    ml_free(open);
    ml_free(next);
    if (error == 0 && f->call_count != 0) {
        qsort(f->calls, f->call_count, sizeof(call), compare_calls);
    }
    return error;
}

/* The call that made node NUMBER of THREAD; NULL: none of these. */
static call *
call_of(const models *f, uint16_t thread, uint64_t number)
{
    const call sought = {.thread = thread, .first = number};
    size_t low;
    ML_SEARCH(low, f->call_count, compare_calls(&f->calls[low], &sought) <= 0);
    call *at = low != 0 ? &f->calls[low - 1] : NULL;
    return at != NULL && at->thread == thread && number < at->end ? at : NULL;
}

/* The call whose node EVENT, of a pass, is about; NULL: of none. */
static call *
call_at(const models *f, size_t event)
{
    const ml_events *events = &f->it->trace->events;
    return event < f->it->trace->event_count &&
                   ml_events_is_backward(&f->it->trace->events, event)
               ? call_of(f, ml_events_autograd_thread(events, event),
                         ml_events_sequence(events, event))
               : NULL;
}

/* Whether DEMAND, which a pass made for OF, is a gradient of what was before the call. */
static bool
passes_through(const models *f, const call *of, size_t demand)
{
    if (f->frozen[demand] ||
        ml_explained_of(f->it, demand)->verdict.category == ML_CATEGORY_WORKSPACE) {
        return false;
    }
    size_t freed = f->it->workload->demands[demand].freed;
    return freed >= f->it->trace->event_count ||
           !ml_events_is_backward(&f->it->trace->events, freed) ||
           ml_events_sequence(&f->it->trace->events, freed) < of->first;
}

/* The call in whose forward DEMAND was made for a node; NULL: none. */
static call *
call_in(const models *f, size_t demand)
{
    const ml_events *events = &f->it->trace->events;
    size_t born = f->it->workload->demands[demand].born;
    uint64_t next = ml_events_sequence(events, born);
    return next == 0 || ml_events_is_backward(&f->it->trace->events, born)
               ? NULL
               : call_of(f, ml_events_autograd_thread(events, born), next - 1);
}

/* Keeps the models that no gradient passes through. */
static void
follow_gradients(models *f)
{
    const ml_workload *workload = f->it->workload;
    for (size_t i = workload->before_count; i < workload->count; i++) {
        call *of = call_at(f, workload->demands[i].born);
        if (of != NULL) {
            of->ran = true;
            of->passed |= passes_through(f, of, i);
        }
    }
    for (size_t i = workload->before_count; i < workload->count; i++) {
        const call *of = call_in(f, i);
        f->vain[model_of(f->it, workload->demands[i].stack)] &=
            of == NULL || !of->passed;
    }
}

/* ---- Edits of graphs ---- */

static int
compare_held(const void *a, const void *b)
{
    const held *x = a;
    const held *y = b;
    if (x->call != y->call) {
        return x->call < y->call ? -1 : 1;
    }
    if (x->like != y->like) {
        return x->like < y->like ? -1 : 1;
    }
    return (x->demand > y->demand) - (x->demand < y->demand);
}

/* Sets the blocks that a pass frees, but for the last of each call, which is its result. */
static int
find_held(models *f)
{
    const ml_advice_case *it = f->it;
    f->held = ml_alloc_zeroed(it->workload->count + 1, sizeof(held));
    if (f->held == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = it->workload->before_count; i < it->workload->count; i++) {
        const ml_demand *of = &it->workload->demands[i];
        uint32_t model = model_of(it, of->stack);
        if (!f->vain[model] || ml_events_is_backward(&it->trace->events, of->born) ||
            of->freed >= it->trace->event_count ||
            !ml_events_is_backward(&it->trace->events, of->freed)) {
            continue;
        }
        const call *at = call_in(f, i);
        if (at == NULL || !at->ran || of->born == at->last) {
            continue;
        }
        const ml_cause *cause = &ml_explained_of(it, i)->cause;
        uint64_t like = ml_module_pattern(&it->recording->strings[cause->module]);
        f->held[f->held_count++] =
            (held){.like = ml_hash_u64(ml_hash_u64(like ^ cause->frame) ^ of->bytes),
                   .call = (size_t)(at - f->calls),
                   .demand = i};
    }
    if (f->held_count != 0) {
        qsort(f->held, f->held_count, sizeof(held), compare_held);
    }
    return 0;
}

static int
concern(const ml_advice_case *it, size_t demand, ml_advice *advice)
{
    if (!ml_demand_at_peak(it, demand)) {
        return 0;
    }
    advice->bytes += it->workload->demands[demand].block_bytes;
    advice->blocks++;
    return ml_advice_add_module(advice, it->recording,
                                ml_explained_of(it, demand)->cause.module);
}

/* Without a graph, a layer's block is there until the next layer has made its own, another one
 * until the call is over. */
static int
edit_held(const models *f, ml_advice *advice)
{
    const ml_advice_case *it = f->it;
    int error = 0;
    for (size_t i = 0; i < f->held_count && error == 0; i++) {
        const held *at = &f->held[i];
        const held *next = at + 1;
        bool again =
            i + 1 < f->held_count && next->call == at->call && next->like == at->like;
        size_t last =
            again ? it->workload->demands[next->demand].born : f->calls[at->call].last;
        ml_edit edit = {.kind = ML_EDIT_FREE, .demand = at->demand, .until = last + 1};
        error = concern(it, at->demand, advice);
        error = error < 0 ? error : ml_advice_edit(advice, edit);
    }
    return error;
}

/* No pass makes anything for these models. */
static int
edit_passes(const models *f, ml_advice *advice)
{
    const ml_advice_case *it = f->it;
    int error = 0;
    for (size_t i = it->workload->before_count; i < it->workload->count && error == 0;
         i++) {
        uint32_t model = model_of(it, ml_explained_of(it, i)->cause.stack);
        if (!f->vain[model] || f->frozen[i] ||
            call_at(f, it->workload->demands[i].born) == NULL ||
            ml_demand_is_kept_workspace(it, i)) {
            continue;
        }
        error = concern(it, i, advice);
        ml_edit none = {.kind = ML_EDIT_RESIZE, .demand = i};
        error = error < 0 ? error : ml_advice_edit(advice, none);
    }
    return error;
}

/* The line that calls the model with the largest block. */
static uint32_t
line_of(const models *f)
{
    const ml_demand *demands = f->it->workload->demands;
    const call *largest = NULL;
    for (size_t i = 0; i < f->call_count; i++) {
        const call *at = &f->calls[i];
        uint32_t model = model_of(f->it, demands[at->demand].stack);
        if (f->vain[model] && at->ran &&
            (largest == NULL ||
             demands[at->demand].block_bytes > demands[largest->demand].block_bytes)) {
            largest = at;
        }
    }
    return largest != NULL ? ml_graph_calling_line(f->it, largest->demand) : 0;
}

static int
edit_graphs(const ml_advice_case *it, const bool *frozen, ml_advice *advice)
{
    models f = {.it = it, .frozen = frozen};
    int error = find_models(&f);
    error = error < 0 ? error : find_calls(&f);
    if (error == 0) {
        follow_gradients(&f);
        error = find_held(&f);
    }
    error = error < 0 ? error : edit_held(&f, advice);
    error = error < 0 ? error : edit_passes(&f, advice);
    if (error == 0) {
        advice->frame = line_of(&f);
    }
    ml_free(f.vain);
    ml_free(f.calls);
    ml_free(f.held);
    return error;
}

/* ---- All of it ---- */

static int
propose_frozen(const ml_advice_case *it, const bool *frozen, ml_proposals *out)
{
    made *kinds = ml_alloc_zeroed(it->workload->count + 1, sizeof(made));
    size_t count = 0;
    if (kinds == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = it->workload->before_count; i < it->workload->count; i++) {
        if (frozen[i]) {
            kinds[count++] = made_of(it, i);
        }
    }
    int error = 0;
    if (count != 0) {
        qsort(kinds, count, sizeof(made), compare_made);
        ml_advice *advice = ml_proposals_add(out, ML_ADVICE_FROZEN_GRADIENTS);
        error = advice == NULL ? ML_ENOMEM : 0;
        if (error == 0) {
            advice->exact = false;
            advice->count = count;
            error = edit_frozen(it, frozen, kinds, count, advice);
        }
        error = error < 0 ? error : edit_graphs(it, frozen, advice);
    }
    ml_free(kinds);
    return error;
}

int
ml_advise_frozen(const ml_advice_case *it, ml_proposals *out)
{
    bool *frozen = ml_advice_frozen(it);
    int error = frozen == NULL ? ML_ENOMEM : propose_frozen(it, frozen, out);
    ml_free(frozen);
    return error;
}
