/* Evaluations that make the peak of a training run.  A smaller batch in them would not
 * slow the training. */
#include "lab/advice/advice_rules.h"

#include <string.h>

#include "analysis/answers/stages.h"
#include "base/base.h"

/* The largest divisor of the evaluation's batch. */
#define MOST_PARTS 64
/* The evaluation may exceed the training's peak by one part in this many. */
#define ENOUGH_PART 10

/* Live bytes after each event: of evaluations, and of everything else. */
typedef struct event_sums {
    int64_t own;
    int64_t rest;
} event_sums;

static bool
is_own(const ml_advice_case *it, size_t demand)
{
    size_t born = it->workload->demands[demand].born;
    return born != ML_NO_EVENT && ml_stage_is_evaluation(it->stages[born]);
}

/* Fills in the change at each event, then sums the changes. */
static void
fill_changes(const ml_advice_case *it, event_sums *at)
{
    size_t count = it->trace->event_count;
    for (size_t i = 0; i < it->workload->count; i++) {
        const ml_demand *demand = &it->workload->demands[i];
        size_t born = demand->born == ML_NO_EVENT ? 0 : demand->born;
        size_t freed = demand->freed < count ? demand->freed : count;
        bool own = is_own(it, i);
        int64_t bytes = (int64_t)demand->block_bytes;
        *(own ? &at[born].own : &at[born].rest) += bytes;
        *(own ? &at[freed].own : &at[freed].rest) -= bytes;
    }
    for (size_t i = 1; i <= count; i++) {
        at[i].own += at[i - 1].own;
        at[i].rest += at[i - 1].rest;
    }
}

/* The divisor of the evaluations' batch that brings them near the peak of everything
 * else. 0: evaluations do not make the peak, or the program does not train. */
static int64_t
find_parts(const ml_advice_case *it, const event_sums *at)
{
    int64_t most = 0;
    bool trains = false;
    unsigned stage = ML_STAGE_OTHER;
    for (size_t i = 0; i < it->trace->event_count; i++) {
        trains |= it->stages[i] == ML_STAGE_BACKWARD;
        stage = ml_stage_around(stage, it->stages[i]);
        if (!ml_stage_is_evaluation(stage) && at[i].own + at[i].rest > most) {
            most = at[i].own + at[i].rest;
        }
    }
    int64_t parts = 1;
    int64_t enough = most + most / ENOUGH_PART;
    for (size_t i = 0; trains && i < it->trace->event_count; i++) {
        while (parts < MOST_PARTS && at[i].own / parts + at[i].rest > enough &&
               at[i].own != 0) {
            parts *= 2;
        }
    }
    return parts > 1 ? parts : 0;
}

/* Frame id of the line that runs the model at EVENT, in the evaluation's loop; without a
 * module, of EVENT's own line. */
static uint32_t
loop_of(const ml_advice_case *it, size_t event)
{
    const ml_stack *stacks = it->recording->stacks;
    uint32_t around = 0;
    for (uint32_t stack = ml_events_stack(&it->trace->events, event); stack != 0;
         stack = stacks[stack].parent) {
        around = stacks[stack].module != 0 ? stacks[stack].parent : around;
    }
    return around != 0 ? ml_stack_standing(it->recording, around).frame
                       : ml_causes_of(it->causes, it->device, event).frame;
}

static int
propose(const ml_advice_case *it, uint64_t parts, ml_proposals *out)
{
    ml_advice *advice = ml_proposals_add(out, ML_ADVICE_EVALUATION_BATCH);
    if (advice == NULL) {
        return ML_ENOMEM;
    }
    advice->exact = false;
    advice->count = parts;
    advice->frame = loop_of(it, it->before.peak_event);
    int error = 0;
    for (size_t i = 0; error == 0 && i < it->workload->count; i++) {
        if (!is_own(it, i)) {
            continue;
        }
        const ml_demand *demand = &it->workload->demands[i];
        if (ml_demand_at_peak(it, i)) {
            advice->bytes += demand->block_bytes;
            advice->blocks++;
        }
        ml_edit edit = {.kind = ML_EDIT_RESIZE,
                        .demand = i,
                        .bytes = (demand->bytes + parts - 1) / parts};
        error = ml_advice_edit(advice, edit);
    }
    return error;
}

int
ml_advise_evaluation(const ml_advice_case *it, ml_proposals *out)
{
    size_t peak = it->before.peak_event;
    if (peak >= it->trace->event_count || !ml_stage_is_evaluation(it->stages[peak])) {
        return 0;
    }
    event_sums *at = ml_alloc_zeroed(it->trace->event_count + 1, sizeof(*at));
    if (at == NULL) {
        return ML_ENOMEM;
    }
    fill_changes(it, at);
    int64_t parts = find_parts(it, at);
    ml_free(at);
    return parts == 0 ? 0 : propose(it, (uint64_t)parts, out);
}
