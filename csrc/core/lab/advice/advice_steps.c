/* Blocks that a line leaves behind step after step, or a graph that ends there: a leak, told by
 * what it would save to keep none of them.
 *
 * growth.h finds the lines.  A block ends after its last use, where those of all steps are
 * known; else with the step that made it, an estimate. */
#include "lab/advice/advice_rules.h"

#include "analysis/answers/growth_steps.h"
#include "base/base.h"

typedef struct kept_work {
    const ml_advice_case *it;
    bool uses; /* the last uses of all steps are known */
    ml_growth_steps steps;
    const ml_growing *
        *line_of; /* owned; by index of what is told of demands; NULL: none */
    bool *held;   /* owned; by demand: it is told of already */
} kept_work;

/* Whether a training keeps blocks of CATEGORY, whichever line made them: what a library kept
 * for its work in the first step is no leak. */
static bool
is_for_good(uint8_t category)
{
    return category == ML_CATEGORY_PARAMETER || category == ML_CATEGORY_GRADIENT ||
           category == ML_CATEGORY_OPTIMIZER_STATE ||
           category == ML_CATEGORY_WORKSPACE || category == ML_CATEGORY_COMMUNICATION;
}

/* Whether DEMAND, an index, is kept beyond the step after its own, or is of the last step.
 * *UNTIL: the event by which it could end. */
static bool
is_kept(const kept_work *f, size_t index, size_t *until)
{
    const ml_growth_steps *steps = &f->steps;
    const ml_demand *demand = &f->it->workload->demands[index];
    size_t step = ml_growth_step_of(steps, demand->born);
    if (step == steps->count) {
        return false;
    }
    size_t next = step + 1 < steps->count ? step + 1 : step;
    if (demand->freed != ML_NO_EVENT && demand->freed < steps->moments[next]) {
        return false;
    }
    if (!f->uses) {
        *until = steps->moments[step];
        return true;
    }
    *until = demand->last_used;
    /* What is there at the end may yet be used, unless a whole step did without it. */
    return demand->freed != ML_NO_EVENT
               ? demand->last_used < demand->freed
               : ml_growth_step_of(steps, demand->last_used) + 1 < steps->count;
}

static int
propose(const kept_work *f, const ml_growing *line, ml_proposals *out)
{
    const ml_advice_case *it = f->it;
    ml_advice *advice = ml_proposals_add(out, ML_ADVICE_STEPS_KEPT);
    if (advice == NULL) {
        return ML_ENOMEM;
    }
    advice->exact = f->uses;
    advice->garbage = ml_growing_is_garbage(it->recording, line);
    advice->frame = line->cause.frame;
    int error = 0;
    for (size_t i = it->workload->before_count; i < it->workload->count && error == 0;
         i++) {
        size_t until;
        const ml_demand *demand = &it->workload->demands[i];
        if (f->line_of[it->of[i]] != line || f->held[i] || !is_kept(f, i, &until)) {
            continue;
        }
        const ml_explained *is = ml_explained_of(it, i);
        advice->name = advice->count == 0 || advice->name == is->name ? is->name : 0;
        advice->count++;
        if (until <= it->before.peak_event && ml_demand_at_peak(it, i)) {
            advice->bytes += demand->block_bytes;
            advice->blocks++;
        }
        if (is->cause.module != 0 && !line->graph) {
            error = ml_advice_add_module(advice, it->recording, is->cause.module);
        }
        ml_edit edit = {.kind = ML_EDIT_FREE, .demand = i, .until = until};
        error = error < 0 ? error : ml_advice_edit(advice, edit);
    }
    return error;
}

/* Call fini in any case.  0 or ML_ENOMEM. */
static int
init(kept_work *f, const ml_advice_case *it)
{
    const ml_analysis *analysis;
    *f = (kept_work){.it = it};
    int error = ml_analysis_of(it->recording, it->device, &analysis);
    error = error < 0 ? error : ml_growth_steps_find(analysis, &f->steps);
    f->line_of = ml_alloc_zeroed(it->told_count + 1, sizeof(*f->line_of));
    error = error == 0 && f->line_of == NULL ? ML_ENOMEM : error;
    for (size_t i = 0; error == 0 && i < it->told_count; i++) {
        const ml_explained *of = &it->told[i];
        f->line_of[i] = is_for_good(of->verdict.category)
                            ? NULL
                            : ml_growth_find(it->growth, &of->cause);
    }
    return error;
}

static void
fini(kept_work *f)
{
    ml_free(f->line_of);
    ml_free(f->held);
    ml_growth_steps_fini(&f->steps);
}

int
ml_advise_steps_kept(const ml_advice_case *it, ml_proposals *out)
{
    const ml_growth *growth = it->growth;
    if (growth->count == 0) {
        return 0;
    }
    kept_work f;
    int error = init(&f, it);
    f.uses = !it->trace->uses_sampled && ml_advice_knows_uses(it);
    f.held = ml_proposals_hold(it, out);
    error = error == 0 && f.held == NULL ? ML_ENOMEM : error;
    for (size_t i = 0; error == 0 && i < growth->count; i++) {
        if (growth->lines[i].certain) {
            error = propose(&f, &growth->lines[i], out);
        }
    }
    fini(&f);
    return error;
}

bool *
ml_advice_left_by_steps(const ml_advice_case *it)
{
    kept_work f;
    size_t count = it->workload->count;
    bool *left = ml_alloc_zeroed(count + 1, sizeof(bool));
    bool known = left != NULL && init(&f, it) == 0;
    for (size_t i = it->workload->before_count; known && i < count; i++) {
        size_t until;
        left[i] = f.line_of[it->of[i]] != NULL && is_kept(&f, i, &until);
    }
    if (left != NULL) {
        fini(&f);
    }
    if (!known) {
        ml_free(left);
        return NULL;
    }
    return left;
}
