/* A case: the facts about each demand, and the edits of proposals.  See
 * advice_case.h. */
#include "lab/advice/advice_case.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/answers/stages.h"
#include "base/base.h"
#include "lab/advice/advice_places.h"

/* Stacks told last. */
#define RECENT 1024u

/* ---- What is known ---- */

static size_t
first_failed(const ml_device_trace *trace)
{
    size_t at =
        ml_events_find_action(&trace->events, trace->event_count, 0, ML_ACTION_OOM);
    return at < trace->event_count ? at : ML_NO_EVENT;
}

/* Keeps what is known of demands: few things are, of millions. */
typedef struct teller {
    ml_advice_case *it;
    ml_intern seen;
    size_t capacity;
    uint32_t recent[RECENT]; /* 1 + the index of what a stack told last */
    const ml_explained *sought;
} teller;

static bool
is_sought(const void *context, uint32_t id)
{
    const teller *t = context;
    return memcmp(&t->it->told[id], t->sought, sizeof(ml_explained)) == 0;
}

/* *INDEX becomes that of IT among what is told.  0 or ML_ENOMEM. */
static int
tell_explained(teller *t, const ml_explained *it, uint32_t *index)
{
    uint32_t *recent = &t->recent[it->cause.stack % RECENT];
    t->sought = it;
    if (*recent != 0 && is_sought(t, *recent - 1)) {
        *index = *recent - 1;
        return 0;
    }
    uint64_t hash = ml_hash_bytes(it, sizeof(*it));
    if (ml_intern_find(&t->seen, hash, is_sought, t, index) == 0) {
        *index = (uint32_t)t->seen.count;
        if (ml_grow((void **)&t->it->told, &t->capacity, t->seen.count + 1,
                    sizeof(*it)) < 0) {
            return ML_ENOMEM;
        }
        t->it->told[*index] = *it;
        if (ml_intern_add(&t->seen, hash) < 0) {
            return ML_ENOMEM;
        }
    }
    *recent = *index + 1;
    return 0;
}

static int
explain_demand(teller *t, const ml_analysis *analysis, size_t i)
{
    const ml_advice_case *it = t->it;
    const ml_demand *demand = &it->workload->demands[i];
    bool before = demand->born == ML_NO_EVENT;
    ml_explained is =
        ml_explain(analysis, demand->addr,
                   before ? ML_BEFORE_EVENTS : (uint64_t)demand->born, demand->stack);
    ml_growth_tell(it->growth, &is.cause, &is.verdict);
    is.cause.step = before ? is.cause.step : 0;
    return tell_explained(t, &is, &it->of[i]);
}

static int
explain_demands(ml_advice_case *it)
{
    const ml_workload *workload = it->workload;
    const ml_analysis *analysis;
    int error = ml_analysis_of(it->recording, it->device, &analysis);
    if (error == 0) {
        it->causes = analysis->causes;
        error = ml_stages_new(analysis, &it->stages);
    }
    if (error == 0) {
        error = ml_growth_of(analysis, &it->growth);
    }
    if (error == 0) {
        error = ml_held_variables_find(analysis, workload, &it->variables);
    }
    if (error == 0) {
        it->of = ml_alloc_zeroed(workload->count + 1, sizeof(*it->of));
        error = it->of == NULL ? ML_ENOMEM : 0;
    }
    teller t = {.it = it};
    if (error == 0) {
        error = tell_explained(&t, &(ml_explained){0}, &it->of[workload->count]);
    }
    for (size_t i = 0; error == 0 && i < workload->count; i++) {
        error = explain_demand(&t, analysis, i);
    }
    it->told_count = t.seen.count;
    ml_intern_fini(&t.seen);
    return error;
}

/* The start of the forward pass in which the first request failed, or, of a BACKWARD pass, which
 * failed there; ML_NO_EVENT: none did. */
static size_t
find_unfinished(const ml_advice_case *it, bool backward)
{
    size_t from = ML_NO_EVENT;
    size_t i = it->failed == ML_NO_EVENT ? 0 : it->workload->count;
    for (; i > it->workload->before_count; i--) {
        size_t born = it->workload->demands[i - 1].born;
        if (born >= it->failed || ml_demand_is_kept_workspace(it, i - 1)) {
            continue;
        }
        uint8_t phase = ml_explained_of(it, i - 1)->cause.phase;
        /* A loss outside the model's calls may be of no phase. */
        if (backward && from == ML_NO_EVENT &&
            (phase == ML_PHASE_BACKWARD || phase == ML_PHASE_OTHER)) {
            continue;
        }
        /* So may be what the loss makes of its targets; a batch begins the pass. */
        if (from != ML_NO_EVENT && phase == ML_PHASE_OTHER &&
            ml_explained_of(it, i - 1)->verdict.category != ML_CATEGORY_INPUT) {
            continue;
        }
        if (phase != ML_PHASE_FORWARD) {
            break;
        }
        from = born;
    }
    return from;
}

/* A changed program would have filled another cache before the recording began, so
 * trials begin without it. */
static int
find_start_cached(ml_advice_case *it)
{
    const ml_workload *workload = it->workload;
    if (!it->checks || it->before.peak.reserved >= workload->peak.reserved ||
        workload->segment_count == 0) {
        return 0;
    }
    ml_trial_options options = it->options;
    ml_trial_result with;
    options.recorded_start = true;
    int error = ml_trial_run(workload, &options, &with);
    if (error < 0 || with.peak.reserved <= it->before.peak.reserved) {
        return error;
    }
    it->start_cached = ml_workload_start_cached(workload);
    return 0;
}

/* Only one of the compared programs was recorded, so all trials use the driver's
 * placement and the recorded amount of memory, and continue after an out of memory.  If
 * the recorded run ran out, they have unlimited memory. */
static int
try_as_it_is(ml_advice_case *it)
{
    ml_trial_options *options = &it->options;
    const ml_trial_result *checked = &it->checked;
    ml_trial_options_of(it->workload, &it->own);
    it->own.schedule = &it->schedule;
    int error = ml_trial_check(it->workload, &it->own, &it->checked);
    if (error < 0 && error != ML_EFORMAT) {
        return error;
    }
    /* If the memory at the start does not fit together, the trial requests it anew. */
    it->checks = error == 0;
    it->exact = error == 0 && checked->mismatched_addresses == 0 &&
                checked->mismatched_segments == 0 && checked->mismatched_blocks == 0;
    *options = it->own;
    /* Of the bounds of a limit, the lower one: that much was certainly available. */
    if (it->workload->failed) {
        it->memory_bytes = it->workload->limit != UINT64_MAX
                               ? it->workload->limit
                               : it->workload->peak.reserved;
    }
    if (it->workload->failed) {
        options->settings.limited = false;
        options->settings.memory_fraction = 1;
        options->memory_bytes = UINT64_MAX;
    }
    options->recorded_addresses = false;
    options->placement = ML_PLACEMENT_DRIVER;
    options->go_on = true;
    if (it->checks && checked->any_addresses && !it->workload->failed) {
        it->before = *checked;
        it->before.mismatched_addresses = it->before.mismatched_segments = 0;
        it->before.mismatched_blocks = 0;
        it->before.compared = false;
        return 0;
    }
    error = ml_trial_run(it->workload, options, &it->before);
    return error == 0 ? find_start_cached(it) : error;
}

int
ml_advice_case_init(ml_advice_case *it, const ml_recording *recording, size_t device)
{
    *it = (ml_advice_case){.memory_bytes = UINT64_MAX};
    int error = ml_workload_new(recording, device, &it->workload);
    if (error < 0) {
        return error;
    }
    it->recording = it->workload->recording;
    it->device = it->workload->device;
    it->trace = it->workload->trace;
    it->failed = first_failed(it->trace);
    error = ml_schedule_init(&it->schedule, it->workload);
    if (error == 0) {
        error = try_as_it_is(it);
    }
    if (error == 0) {
        error = explain_demands(it);
    }
    if (error == 0) {
        bool backward = it->failed != ML_NO_EVENT &&
                        ml_causes_is_backward(it->causes, it->device, it->failed);
        it->unfinished = find_unfinished(it, false);
        it->awaited = find_unfinished(it, backward);
    }
    if (error < 0) {
        ml_advice_case_fini(it);
    }
    return error;
}

void
ml_advice_case_fini(ml_advice_case *it)
{
    ml_free(it->told);
    ml_free(it->of);
    ml_free(it->stages);
    ml_held_variables_fini(&it->variables);
    ml_schedule_fini(&it->schedule);
    ml_workload_free(it->workload);
    *it = (ml_advice_case){0};
}

bool
ml_advice_knows_uses(const ml_advice_case *it)
{
    bool known = false;
    for (size_t i = 0; i < it->workload->count && !known; i++) {
        known = it->workload->demands[i].last_used != ML_NO_EVENT;
    }
    return known;
}

uint32_t
ml_demand_step(const ml_advice_case *it, size_t demand)
{
    size_t born = it->workload->demands[demand].born;
    return born == ML_NO_EVENT ? ml_explained_of(it, demand)->cause.step
                               : ml_causes_step(it->causes, it->device, born);
}

bool
ml_demand_lives_at(const ml_advice_case *it, size_t demand, size_t event)
{
    const ml_demand *of = &it->workload->demands[demand];
    bool born = of->born == ML_NO_EVENT || (event != ML_NO_EVENT && of->born <= event);
    return born &&
           (of->freed == ML_NO_EVENT || event == ML_NO_EVENT || of->freed > event);
}

bool
ml_demand_at_peak(const ml_advice_case *it, size_t demand)
{
    return ml_demand_lives_at(it, demand, it->before.peak_event);
}

bool
ml_demand_unfinished(const ml_advice_case *it, size_t demand)
{
    size_t born = it->workload->demands[demand].born;
    return it->unfinished <= born && born <= it->failed;
}

bool
ml_demand_awaits_pass(const ml_advice_case *it, size_t demand)
{
    size_t born = it->workload->demands[demand].born;
    return it->awaited <= born && born <= it->failed;
}

bool
ml_demand_left(const ml_advice_case *it, size_t demand)
{
    size_t last_used = it->workload->demands[demand].last_used;
    size_t events = it->trace->event_count;
    if (last_used >= events) {
        return false;
    }
    uint32_t then = ml_causes_step(it->causes, it->device, last_used);
    uint32_t last = ml_causes_step(it->causes, it->device, events - 1);
    return last > then && last - then >= 2;
}

/* ---- Weights ---- */

int
ml_weights_find(const ml_advice_case *it, ml_weights *out)
{
    *out = (ml_weights){
        .bytes = ml_alloc_zeroed(2 * it->workload->count + 1, sizeof(uint64_t))};
    if (out->bytes == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < it->workload->count; i++) {
        if (ml_explained_of(it, i)->verdict.category == ML_CATEGORY_PARAMETER) {
            uint64_t bytes = it->workload->demands[i].bytes;
            out->bytes[out->count++] = bytes;
            out->bytes[out->count++] = bytes / 2;
        }
    }
    qsort(out->bytes, out->count, sizeof(uint64_t), ml_compare_u64);
    return 0;
}

void
ml_weights_fini(ml_weights *weights)
{
    ml_free(weights->bytes);
}

bool
ml_weights_have(const ml_weights *weights, uint64_t bytes)
{
    return bsearch(&bytes, weights->bytes, weights->count, sizeof(uint64_t),
                   ml_compare_u64) != NULL;
}

/* ---- Proposals ---- */

ml_advice *
ml_proposals_add(ml_proposals *proposals, enum ml_advice_kind kind)
{
    void *list = proposals->list;
    if (ml_grow(&list, &proposals->capacity, proposals->count + 1, sizeof(ml_advice)) <
        0) {
        return NULL;
    }
    proposals->list = list;
    ml_advice *advice = &proposals->list[proposals->count++];
    *advice = (ml_advice){.kind = (uint8_t)kind, .exact = true};
    return advice;
}

bool *
ml_proposals_hold(const ml_advice_case *it, const ml_proposals *proposals)
{
    bool *held = ml_alloc_zeroed(it->workload->count + 1, sizeof(bool));
    for (size_t i = 0; held != NULL && i < proposals->count; i++) {
        const ml_advice *advice = &proposals->list[i];
        if (advice->kind != ML_ADVICE_GRAPH_UNUSED &&
            advice->kind != ML_ADVICE_GRAPH_RETAINED &&
            advice->kind != ML_ADVICE_GRAPH_SHARED &&
            advice->kind != ML_ADVICE_STEPS_KEPT) {
            continue;
        }
        for (size_t k = 0; k < advice->edit_count; k++) {
            held[advice->edits[k].demand] = true;
        }
    }
    return held;
}

int
ml_advice_edit(ml_advice *advice, ml_edit edit)
{
    void *edits = advice->edits;
    if (ml_grow(&edits, &advice->edit_capacity, advice->edit_count + 1,
                sizeof(ml_edit)) < 0) {
        return ML_ENOMEM;
    }
    advice->edits = edits;
    advice->edits[advice->edit_count++] = edit;
    return 0;
}

int
ml_advice_add_module(ml_advice *advice, const ml_recording *recording, uint32_t module)
{
    return module == 0 ? 0
                       : ml_places_widen(&advice->module, recording->strings[module]);
}

void
ml_advice_fini(ml_advice *advice)
{
    ml_free(advice->module);
    ml_free(advice->edits);
    *advice = (ml_advice){0};
}

void
ml_proposals_fini(ml_proposals *proposals)
{
    for (size_t i = 0; i < proposals->count; i++) {
        ml_advice_fini(&proposals->list[i]);
    }
    ml_free(proposals->list);
    *proposals = (ml_proposals){0};
}
