/* Blocks held after their last use, by a variable or a list that is no longer read.
 *
 * This needs a recording that knows last uses, or the variable (held_variables.h): what it
 * holds is then taken to end with its step, an estimate.  It looks only at blocks that the
 * program itself holds: not at parameters, gradients and states, nor at what autograd
 * or an optimizer makes. advice_graph.c has the blocks that a graph holds.  A block
 * that is live at the end counts only if the recording continues for a whole step
 * without a use of it. */
#include "lab/advice/advice_rules.h"

#include <stdlib.h>

#include "base/base.h"
#include "lab/advice/advice_places.h"

/* Groups proposed, those of the most bytes; each costs a trial. */
#define MOST_GROUPS 16
#define LEAST_BYTES (UINT64_C(1) << 20)

typedef struct late {
    size_t demand;
    size_t until;    /* event by which it could end */
    uint64_t module; /* hash of the module's path without numbers; 0: of a variable */
    uint32_t frame;
    bool at_peak; /* it would already be freed there */
} late;

/* Blocks of one line, in modules whose paths differ in numbers alone. */
typedef struct group {
    const late *first;
    size_t count;
    uint64_t bytes; /* at the peak */
    uint64_t blocks;
} group;

static bool
is_programs_own(const ml_explained *of)
{
    switch (of->verdict.category) {
    case ML_CATEGORY_ACTIVATION:
    case ML_CATEGORY_TEMPORARY:
    case ML_CATEGORY_INPUT:
    case ML_CATEGORY_OTHER:
    case ML_CATEGORY_UNKNOWN:
    case ML_CATEGORY_WORKSPACE: /* known by its size alone; operators use tensors */
        break;
    default:
        return false;
    }
    bool by_torch = of->cause.phase == ML_PHASE_OPTIMIZER || of->cause.communication ||
                    (of->cause.phase == ML_PHASE_BACKWARD && !of->cause.recomputed);
    return of->cause.frame != 0 && !by_torch;
}

/* Whether the demand INDEX, of VARIABLE if that is not NULL, is held in vain after event
 * *UNTIL. */
static bool
is_late(const ml_advice_case *it, size_t index, const ml_held_variable *variable,
        size_t *until)
{
    const ml_demand *demand = &it->workload->demands[index];
    if (demand->born == ML_NO_EVENT || ml_demand_unfinished(it, index) ||
        !is_programs_own(ml_explained_of(it, index))) {
        return false;
    }
    *until = demand->last_used;
    if (demand->last_used == ML_NO_EVENT) {
        return variable != NULL &&
               ml_held_variable_ends(&it->variables, variable, demand, until);
    }
    if (demand->freed == ML_NO_EVENT) {
        return ml_demand_left(it, index);
    }
    /* Blocks freed by a backward pass were held by autograd alone. */
    return demand->last_used < demand->freed &&
           (ml_events_flags(&it->trace->events, demand->freed) & ML_EVENT_BACKWARD) ==
               0;
}

static int
compare_groups_of(const late *x, const late *y)
{
    if (x->frame != y->frame) {
        return x->frame < y->frame ? -1 : 1;
    }
    return (x->module > y->module) - (x->module < y->module);
}

static int
compare_late(const void *a, const void *b)
{
    const late *x = a;
    const late *y = b;
    int of = compare_groups_of(x, y);
    if (of != 0) {
        return of;
    }
    return (x->demand > y->demand) - (x->demand < y->demand);
}

/* Most bytes first.  Ties are broken by line and module, so that answers are
 * repeatable. */
static int
compare_groups(const void *a, const void *b)
{
    const group *x = a;
    const group *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return compare_groups_of(x->first, y->first);
}

static size_t
find_late(const ml_advice_case *it, const bool *held, late *all)
{
    size_t count = 0;
    size_t peak = it->before.peak_event;
    for (size_t i = it->workload->before_count; i < it->workload->count; i++) {
        const ml_demand *demand = &it->workload->demands[i];
        const ml_held_variable *variable = ml_held_variable_of(&it->variables, demand);
        size_t until;
        if (!held[i] && is_late(it, i, variable, &until)) {
            const ml_cause *cause = &ml_explained_of(it, i)->cause;
            bool set = variable != NULL && variable->frame != 0;
            all[count++] = (late){
                .demand = i,
                .until = until,
                .module =
                    set ? 0 : ml_module_pattern(&it->recording->strings[cause->module]),
                .frame = set ? variable->frame : cause->frame,
                .at_peak =
                    peak != ML_NO_EVENT && until <= peak && ml_demand_at_peak(it, i)};
        }
    }
    if (count != 0) {
        qsort(all, count, sizeof(late), compare_late);
    }
    return count;
}

static size_t
find_groups(const ml_advice_case *it, const late *all, size_t count, group *groups)
{
    size_t group_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || compare_groups_of(&all[i], &all[i - 1]) != 0) {
            groups[group_count++] = (group){.first = &all[i]};
        }
        group *at = &groups[group_count - 1];
        at->count++;
        if (all[i].at_peak) {
            at->bytes += it->workload->demands[all[i].demand].block_bytes;
            at->blocks++;
        }
    }
    if (group_count != 0) {
        qsort(groups, group_count, sizeof(group), compare_groups);
    }
    return group_count;
}

/* String: the variable that holds the demand INDEX; 0: not known. */
static uint32_t
name_of(const ml_advice_case *it, size_t index)
{
    const ml_held_variable *variable =
        ml_held_variable_of(&it->variables, &it->workload->demands[index]);
    return variable != NULL ? variable->name : 0;
}

static int
propose(const ml_advice_case *it, const group *of, ml_proposals *out)
{
    ml_advice *advice = ml_proposals_add(out, ML_ADVICE_LATE_FREES);
    if (advice == NULL) {
        return ML_ENOMEM;
    }
    advice->exact = !it->trace->uses_sampled;
    advice->frame = of->first->frame;
    advice->bytes = of->bytes;
    advice->blocks = of->blocks;
    advice->count = of->count;
    advice->name = name_of(it, of->first->demand);
    int error = 0;
    for (size_t i = 0; i < of->count && error == 0; i++) {
        size_t index = of->first[i].demand;
        const ml_explained *is = ml_explained_of(it, index);
        advice->name = advice->name == name_of(it, index) ? advice->name : 0;
        advice->exact =
            advice->exact && it->workload->demands[index].last_used != ML_NO_EVENT;
        if (of->first[i].at_peak && is->cause.module != 0) {
            error = ml_advice_add_module(advice, it->recording, is->cause.module);
        }
        ml_edit edit = {
            .kind = ML_EDIT_FREE, .demand = index, .until = of->first[i].until};
        error = error < 0 ? error : ml_advice_edit(advice, edit);
    }
    return error;
}

int
ml_advise_frees(const ml_advice_case *it, ml_proposals *out)
{
    size_t room = it->workload->count + 1;
    late *all = ml_alloc_zeroed(room, sizeof(late));
    group *groups = ml_alloc_zeroed(room, sizeof(group));
    bool *held = ml_proposals_hold(it, out);
    int error = all == NULL || groups == NULL || held == NULL ? ML_ENOMEM : 0;
    if (error == 0) {
        size_t count = find_late(it, held, all);
        size_t group_count = find_groups(it, all, count, groups);
        for (size_t i = 0; i < group_count && i < MOST_GROUPS && error == 0; i++) {
            if (groups[i].bytes >= LEAST_BYTES) {
                error = propose(it, &groups[i], out);
            }
        }
    }
    ml_free(all);
    ml_free(groups);
    ml_free(held);
    return error;
}
