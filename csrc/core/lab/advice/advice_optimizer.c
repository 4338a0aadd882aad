/* Avoidable memory of an optimizer: temporaries of torch's foreach functions, and
 * gradients that no optimizer reads.
 *
 * A foreach function works on all parameters at once and makes a temporary of each; a
 * fused one makes none, and where a class has no fused one, one parameter at a time needs the
 * largest.  An optimizer tags its gradients before its step.  A gradient
 * that was live then and got no tag belongs to no optimizer. */
#include "lab/advice/advice_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* ---- Temporaries of foreach functions ---- */

/* What an optimizer's foreach function could be instead. */
enum instead {
    INSTEAD_NONE,
    INSTEAD_FUSED,     /* one kernel for all parameters */
    INSTEAD_ONE_BY_ONE /* its class has none */
};

static const char *const settings[] = {
    [INSTEAD_FUSED] = "fused=True", [INSTEAD_ONE_BY_ONE] = "foreach=False"};

static enum instead
instead_of(ml_string function)
{
    static const char *const fused[] = {"_multi_tensor_adam", "_multi_tensor_adamw",
                                        "_multi_tensor_sgd"};
    if (!ml_string_holds(function, "_multi_tensor_")) {
        return INSTEAD_NONE;
    }
    for (size_t i = 0; i < sizeof(fused) / sizeof(*fused); i++) {
        ml_string of = {fused[i], (uint32_t)strlen(fused[i])};
        if (ml_string_compare(function, of) == 0) {
            return INSTEAD_FUSED;
        }
    }
    return INSTEAD_ONE_BY_ONE;
}

/* Sets *OUT by stack: an enum instead, of the foreach function of an optimizer that it is in. */
static int
find_foreach(const ml_recording *recording, uint8_t **out)
{
    uint8_t *is = ml_alloc_zeroed(recording->stack_count + 1, sizeof(*is));
    if (is == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 1; i < recording->stack_count; i++) {
        const ml_stack *stack = &recording->stacks[i];
        uint8_t own = (uint8_t)instead_of(
            recording->strings[recording->frames[stack->frame].name]);
        is[i] = own != INSTEAD_NONE ? own : is[stack->parent];
    }
    *out = is;
    return 0;
}

/* Demands of one call of a foreach function, one a parameter. */
typedef struct row {
    size_t end;
    size_t largest;
} row;

/* The row that begins with demand FIRST. */
static row
row_from(const ml_workload *workload, size_t first)
{
    const ml_demand *demands = workload->demands;
    row of = {.end = first + 1, .largest = first};
    for (; of.end < workload->count && demands[of.end].stack == demands[first].stack;
         of.end++) {
        if (demands[of.end].bytes > demands[of.largest].bytes) {
            of.largest = of.end;
        }
    }
    return of;
}

/* The class of the optimizer whose step, a region of torch's, was the last to begin at TIME. */
static ml_string
optimizer_at(const ml_recording *recording, uint64_t time)
{
    static const char before[] = "Optimizer.step#";
    static const char after[] = ".step";
    const uint32_t around = sizeof(before) - 1 + sizeof(after) - 1;
    ml_string found = {"", 0};
    for (size_t i = 0; i < recording->annotation_count; i++) {
        const ml_annotation *annotation = &recording->annotations[i];
        ml_string name = recording->strings[annotation->name];
        if (annotation->time > time) {
            break;
        }
        if (annotation->end == 0 && name.length > around &&
            memcmp(name.bytes, before, sizeof(before) - 1) == 0) {
            found = (ml_string){name.bytes + sizeof(before) - 1, name.length - around};
        }
    }
    return found;
}

static int
propose_foreach(const ml_advice_case *it, const uint8_t *foreach, enum instead instead,
                ml_proposals *out)
{
    ml_advice *advice = NULL;
    row at = {0};
    int error = 0;
    for (size_t i = it->workload->before_count; error == 0 && i < it->workload->count;
         i++) {
        at = i < at.end ? at : row_from(it->workload, i);
        const ml_explained *of = ml_explained_of(it, i);
        if (of->cause.phase != ML_PHASE_OPTIMIZER ||
            of->verdict.category != ML_CATEGORY_TEMPORARY ||
            foreach[it->workload->demands[i].stack] != instead ||
            (instead == INSTEAD_ONE_BY_ONE && i == at.largest)) {
            continue;
        }
        if (advice == NULL) {
            advice = ml_proposals_add(out, ML_ADVICE_OPTIMIZER_TEMPORARIES);
            if (advice == NULL) {
                return ML_ENOMEM;
            }
            advice->frame = of->cause.frame;
            advice->optimizer = optimizer_at(
                it->recording,
                ml_events_time(&it->trace->events, it->workload->demands[i].born));
            advice->exact = instead == INSTEAD_FUSED;
            snprintf(advice->conf, sizeof(advice->conf), "%s", settings[instead]);
        }
        if (ml_demand_at_peak(it, i)) {
            advice->bytes += it->workload->demands[i].block_bytes;
            advice->blocks++;
        }
        error = ml_advice_edit(advice, (ml_edit){.kind = ML_EDIT_RESIZE, .demand = i});
    }
    return error;
}

/* ---- Gradients of no optimizer ---- */

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
    }
    ml_free(kinds);
    return error;
}

int
ml_advise_optimizer(const ml_advice_case *it, ml_proposals *out)
{
    uint8_t *foreach = NULL;
    bool *frozen = ml_advice_frozen(it);
    int error = frozen == NULL ? ML_ENOMEM : find_foreach(it->recording, &foreach);
    error = error < 0 ? error : propose_foreach(it, foreach, INSTEAD_FUSED, out);
    error = error < 0 ? error : propose_foreach(it, foreach, INSTEAD_ONE_BY_ONE, out);
    error = error < 0 ? error : propose_frozen(it, frozen, out);
    ml_free(foreach);
    ml_free(frozen);
    return error;
}
