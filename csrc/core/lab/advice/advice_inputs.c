/* Data that lie on the GPU for the whole run, though each step copies only a small
 * part.  A copy from the host would need only the part.  Data that a module was given are
 * not of them: it may use all, as a net over one graph does. */
#include "lab/advice/advice_rules.h"

#include "base/base.h"

/* The largest part of the data that a step takes. */
#define TAKEN_PART 4
/* Fewest steps that take a part. */
#define LEAST_STEPS 2

typedef struct span {
    size_t first; /* first forward allocation; ML_NO_EVENT: none */
    size_t last;
} span;

/* From the first to the last forward pass of the recording. */
static span
find_forwards(const ml_advice_case *it)
{
    span all = {.first = ML_NO_EVENT};
    for (size_t i = it->workload->before_count; i < it->workload->count; i++) {
        if (ml_explained_of(it, i)->cause.phase == ML_PHASE_FORWARD) {
            all.last = it->workload->demands[i].born;
            all.first = all.first == ML_NO_EVENT ? all.last : all.first;
        }
    }
    return all;
}

static bool
is_programs_own(const ml_explained *of)
{
    return of->verdict.category == ML_CATEGORY_INPUT ||
           of->verdict.category == ML_CATEGORY_OTHER;
}

static bool
is_data(const ml_advice_case *it, size_t demand, span forwards)
{
    const ml_demand *of = &it->workload->demands[demand];
    return ml_explained_of(it, demand)->verdict.category == ML_CATEGORY_OTHER &&
           ml_explained_of(it, demand)->cause.frame != 0 && of->born < forwards.first &&
           (of->freed == ML_NO_EVENT || of->freed > forwards.last);
}

/* Number of steps that made inputs, each a small part of BYTES. */
static unsigned
count_steps(const ml_advice_case *it, size_t behind, uint64_t bytes)
{
    unsigned steps = 0;
    uint32_t last = 0;
    for (size_t i = behind + 1; i < it->workload->count && steps < LEAST_STEPS; i++) {
        const ml_explained *of = ml_explained_of(it, i);
        uint64_t taken = it->workload->demands[i].bytes;
        if (is_programs_own(of) && taken <= bytes / TAKEN_PART &&
            (steps == 0 || ml_demand_step(it, i) != last) &&
            it->workload->demands[i].freed != ML_NO_EVENT) {
            steps++;
            last = ml_demand_step(it, i);
        }
    }
    return steps;
}

static int
propose(const ml_advice_case *it, size_t demand, ml_proposals *out)
{
    ml_advice *advice = ml_proposals_add(out, ML_ADVICE_DATA_KEPT);
    if (advice == NULL) {
        return ML_ENOMEM;
    }
    advice->exact = false;
    advice->frame = ml_explained_of(it, demand)->cause.frame;
    advice->bytes = it->workload->demands[demand].block_bytes;
    advice->blocks = 1;
    return ml_advice_edit(advice, (ml_edit){.kind = ML_EDIT_RESIZE, .demand = demand});
}

int
ml_advise_inputs(const ml_advice_case *it, ml_proposals *out)
{
    span forwards = find_forwards(it);
    if (forwards.first == ML_NO_EVENT) {
        return 0;
    }
    int error = 0;
    for (size_t i = it->workload->before_count; error == 0 && i < it->workload->count;
         i++) {
        if (it->workload->demands[i].born > forwards.first) {
            break;
        }
        /* Large enough to be a data set, not a constant. */
        if (it->workload->demands[i].bytes >= it->before.peak.allocated / 16 &&
            is_data(it, i, forwards) &&
            count_steps(it, i, it->workload->demands[i].bytes) >= LEAST_STEPS) {
            error = propose(it, i, out);
        }
    }
    return error;
}
