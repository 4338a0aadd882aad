/* Makes edits and tries them.  See advice_edits.h. */
#include "lab/advice/advice_edits.h"

#include "base/base.h"

/* A demand must live for at least one event. */
static size_t
earliest_end(const ml_demand *demand)
{
    return demand->born == ML_NO_EVENT ? 0 : demand->born + 1;
}

static void
end_at(ml_demand *demand, size_t until)
{
    size_t least = earliest_end(demand);
    size_t at = until < least ? least : until;
    demand->freed = (uint32_t)at;
    demand->completed = (uint32_t)at;
}

static void
begin_at(ml_demand *demand, size_t from)
{
    demand->born = (uint32_t)from;
    if (demand->freed != ML_NO_EVENT && demand->freed <= from) {
        demand->bytes = 0;
    }
}

static void
add_like(ml_workload *copy, const ml_edit *edit)
{
    ml_demand demand = copy->demands[edit->demand];
    demand.bytes = edit->bytes;
    demand.born = (uint32_t)edit->from;
    demand.addr = 0;
    demand.block_bytes = 0;
    demand.freed = ML_NO_EVENT;
    demand.completed = ML_NO_EVENT;
    if (edit->until != ML_NO_EVENT) {
        end_at(&demand, edit->until);
    }
    copy->demands[copy->count++] = demand;
}

static void
apply(ml_workload *copy, const ml_edit *edit)
{
    ml_demand *demand = &copy->demands[edit->demand];
    switch ((enum ml_edit_kind)edit->kind) {
    case ML_EDIT_RESIZE:
        demand->bytes = edit->bytes;
        break;
    case ML_EDIT_FREE:
        if (edit->until == ML_NO_EVENT) {
            demand->freed = ML_NO_EVENT;
            demand->completed = ML_NO_EVENT;
        }
        else {
            end_at(demand, edit->until);
        }
        break;
    case ML_EDIT_BEGIN:
        begin_at(demand, edit->from);
        break;
    case ML_EDIT_ADD:
        add_like(copy, edit);
        break;
    }
}

/* TAKEN: by demand, the number of the advice that edits it; 0: none. */
static void
apply_all(ml_workload *copy, const ml_advice *advice, uint32_t *taken, uint32_t number)
{
    for (size_t i = 0; i < advice->edit_count; i++) {
        const ml_edit *edit = &advice->edits[i];
        uint32_t *owner = &taken[edit->demand];
        if (*owner == 0 || *owner == number) {
            *owner = number;
            apply(copy, edit);
        }
    }
}

static int
grow_workload(ml_workload *copy, const ml_advice *const *advices, size_t count)
{
    size_t needed = copy->count;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < advices[i]->edit_count; k++) {
            needed += advices[i]->edits[k].kind == ML_EDIT_ADD;
        }
    }
    void *demands = copy->demands;
    size_t capacity = copy->count;
    int error =
        needed > capacity ? ml_grow(&demands, &capacity, needed, sizeof(ml_demand)) : 0;
    copy->demands = demands;
    return error;
}

int
ml_advice_set_conf(ml_allocator_settings *settings, const char *conf)
{
    int error = ml_allocator_settings_default(settings, settings->version);
    return error < 0 ? error : ml_allocator_settings_parse(settings, conf, NULL, 0);
}

/* Whether the advices change settings alone, and not what the program asks for. */
static bool
edits_nothing(const ml_advice *const *advices, size_t count)
{
    size_t edits = 0;
    for (size_t i = 0; i < count; i++) {
        edits += advices[i]->edit_count;
    }
    return edits == 0;
}

/* COPY: the workload to be edited; the original, if nothing is. */
static int
run_edited(const ml_advice_case *it, const ml_advice *const *advices, size_t count,
           ml_workload *copy, ml_trial_result *out)
{
    ml_trial_options options = it->options;
    uint32_t *taken = ml_alloc_zeroed(copy->count + 1, sizeof(uint32_t));
    int error = taken == NULL ? ML_ENOMEM : grow_workload(copy, advices, count);
    for (size_t i = 0; error == 0 && i < count; i++) {
        apply_all(copy, advices[i], taken, (uint32_t)i + 1);
        if (error == 0 && advices[i]->kind == ML_ADVICE_SETTINGS) {
            error = ml_advice_set_conf(&options.settings, advices[i]->conf);
        }
    }
    ml_free(taken);
    return error < 0 ? error : ml_trial_run(copy, &options, out);
}

int
ml_advices_try(const ml_advice_case *it, const ml_advice *const *advices, size_t count,
               ml_trial_result *out)
{
    ml_workload *copy;
    if (edits_nothing(advices, count)) {
        return run_edited(it, advices, count, it->workload, out);
    }
    int error = ml_workload_copy(it->workload, &copy);
    if (error == 0) {
        error = run_edited(it, advices, count, copy, out);
        ml_workload_free(copy);
    }
    return error;
}
