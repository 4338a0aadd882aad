/* Temporaries of torch's foreach functions.
 *
 * A foreach function works on all parameters at once and makes a temporary of each; a
 * fused one makes none, and where a class has no fused one, one parameter at a time needs the
 * largest. */
#include "lab/advice/advice_rules.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

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
        uint8_t own = (uint8_t)instead_of(ml_frame_name(recording, stack->frame));
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

int
ml_advise_optimizer(const ml_advice_case *it, ml_proposals *out)
{
    uint8_t *foreach = NULL;
    int error = find_foreach(it->recording, &foreach);
    error = error < 0 ? error : propose_foreach(it, foreach, INSTEAD_FUSED, out);
    error = error < 0 ? error : propose_foreach(it, foreach, INSTEAD_ONE_BY_ONE, out);
    ml_free(foreach);
    return error;
}
