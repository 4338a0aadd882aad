/* Tries the rules' proposals, drops those that save nothing and ranks the rest.  See
 * advice.h. */
#include "lab/advice/advice.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "lab/advice/advice_edits.h"
#include "lab/advice/advice_places.h"
#include "lab/advice/advice_rules.h"

/* Proposals tried of each kind, those of the most bytes first.  A trial costs a whole
 * replay. */
#define MOST_TRIED 16

typedef int (*rule)(const ml_advice_case *it, ml_proposals *out);

static const rule rules[] = {
    ml_advise_gradients,  ml_advise_graph, ml_advise_optimizer,  ml_advise_frozen,
    ml_advise_copies,     ml_advise_micro, ml_advise_loss,       ml_advise_inputs,
    ml_advise_steps_kept, ml_advise_frees, ml_advise_checkpoint, ml_advise_results,
    ml_advise_evaluation, ml_advise_cache, ml_advise_workspaces,
};

static int
propose(const ml_advice_case *it, ml_proposals *proposals)
{
    int error = 0;
    for (size_t i = 0; error == 0 && i < sizeof(rules) / sizeof(rules[0]); i++) {
        error = rules[i](it, proposals);
    }
    return error;
}

/* ---- Savings ---- */

static uint64_t
saved(uint64_t before, uint64_t after)
{
    return before > after ? before - after : 0;
}

static uint64_t
saving(const ml_advices *advices, const ml_advice *advice)
{
    uint64_t allocated =
        saved(advices->before.peak.allocated, advice->alone.peak.allocated);
    uint64_t reserved =
        saved(advices->before.peak.reserved, advice->alone.peak.reserved);
    return allocated > reserved ? allocated : reserved;
}

static bool
is_worth_it(uint64_t bytes, uint64_t peak)
{
    return bytes != 0 && bytes >= peak / ML_ADVICE_LEAST_PART;
}

static bool
lowers(const ml_trial_result *before, const ml_totals *after)
{
    return is_worth_it(saved(before->peak.allocated, after->allocated),
                       before->peak.allocated) ||
           is_worth_it(saved(before->peak.reserved, after->reserved),
                       before->peak.reserved);
}

/* Whether a request that failed finds less in use.  Memory that was free by then does not
 * help it, as torch gives its cache back before it fails; that settings do is told by
 * lab/verdict. */
static bool
helps_the_failed(const ml_advices *advices, const ml_advice *advice)
{
    const uint64_t before = advices->before.at_failure;
    return before == 0 || advice->kind == ML_ADVICE_SETTINGS ||
           advice->kind == ML_ADVICE_FRAGMENTATION ||
           is_worth_it(saved(before, advice->alone.at_failure), before);
}

/* Less than this is not worth computing twice. */
#define LEAST_FOR_TIME (UINT64_C(16) << 20)

static bool
is_worth_its_time(const ml_advices *advices, const ml_advice *advice)
{
    bool costs =
        advice->kind == ML_ADVICE_CHECKPOINT || advice->kind == ML_ADVICE_LOSS_WHOLE;
    return !costs || saving(advices, advice) >= LEAST_FOR_TIME;
}

/* ---- Each alone ---- */

static int
compare_bytes(const void *a, const void *b)
{
    const ml_advice *x = a;
    const ml_advice *y = b;
    if (x->kind != y->kind) {
        return x->kind < y->kind ? -1 : 1;
    }
    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

static int
try_alone(const ml_advice_case *it, ml_advice *advice)
{
    const ml_advice *const one = advice;
    return advice->tried ? 0 : ml_advices_try(it, &one, 1, &advice->alone);
}

/* Moves the proposals that lower a peak to the answer's list; of a run that failed, those
 * that help it. */
static int
try_each(const ml_advice_case *it, ml_proposals *proposals, ml_advices *out)
{
    /* A list of nothing is sorted. */
    if (proposals->count == 0) {
        return 0;
    }
    qsort(proposals->list, proposals->count, sizeof(ml_advice), compare_bytes);
    unsigned tried[ML_ADVICE_COUNT] = {0};
    bool estimated = ml_causes_signs(it->causes)->of != NULL;
    for (size_t i = 0; i < proposals->count; i++) {
        ml_advice *advice = &proposals->list[i];
        advice->exact =
            advice->exact && (!estimated || advice->kind == ML_ADVICE_SETTINGS);
        if (tried[advice->kind]++ == MOST_TRIED) {
            tried[advice->kind] = MOST_TRIED;
            continue;
        }
        out->tried++;
        int error = try_alone(it, advice);
        if (error != 0) {
            return error;
        }
        if (lowers(&out->before, &advice->alone.peak) &&
            is_worth_its_time(out, advice) && helps_the_failed(out, advice)) {
            out->list[out->count++] = *advice;
            *advice = (ml_advice){0};
        }
    }
    return 0;
}

static void
rank(ml_advices *out)
{
    for (size_t i = 1; i < out->count; i++) {
        ml_advice moved = out->list[i];
        size_t at = i;
        for (; at > 0 && saving(out, &out->list[at - 1]) < saving(out, &moved); at--) {
            out->list[at] = out->list[at - 1];
        }
        out->list[at] = moved;
    }
}

/* ---- Checkpointing, once ---- */

/* MORE's modules and edits become INTO's. */
static int
absorb(ml_advice *into, const ml_advice *more, const ml_trial_result *both)
{
    int error = ml_places_add(&into->module, more->module);
    if (error < 0) {
        return error;
    }
    into->bytes += more->bytes;
    into->blocks += more->blocks;
    into->count += more->count;
    into->normalizes |= more->normalizes;
    into->alone = *both;
    for (size_t i = 0; error == 0 && i < more->edit_count; i++) {
        error = ml_advice_edit(into, more->edits[i]);
    }
    return error;
}

/* Checkpointing of one family more, if it saves beside those before it.  *LESS: it does. */
static int
try_beside(const ml_advice_case *it, ml_advice *into, const ml_advice *more, bool *less)
{
    const ml_advice *both[] = {into, more};
    ml_trial_result result;
    *less = false;
    if (ml_places_nest(into->module, more->module)) {
        return 0;
    }
    int error = ml_advices_try(it, both, 2, &result);
    *less = error == 0 && result.peak.allocated <= into->alone.peak.allocated &&
            lowers(&into->alone, &result.peak);
    return *less ? absorb(into, more, &result) : error;
}

/* Of the ranked list one advice of checkpointing stays, with the places of those that save
 * beside it. */
static int
merge_checkpoints(const ml_advice_case *it, ml_advices *out)
{
    ml_advice *into = NULL;
    size_t kept = 0;
    int error = 0;
    for (size_t i = 0; i < out->count; i++) {
        ml_advice *advice = &out->list[i];
        bool more = into != NULL && advice->kind == ML_ADVICE_CHECKPOINT;
        if (more && error == 0) {
            bool less;
            error = try_beside(it, into, advice, &less);
        }
        if (more) {
            ml_advice_fini(advice);
            continue;
        }
        ml_advice moved = *advice;
        *advice = (ml_advice){0};
        out->list[kept] = moved;
        into = moved.kind == ML_ADVICE_CHECKPOINT ? &out->list[kept] : into;
        kept++;
    }
    out->count = kept;
    return error == 0 && into != NULL ? ml_places_fold(&into->module) : error;
}

/* ---- All of them ---- */

/* Keeps, in order, each advice that still lowers a peak after those before it. */
static int
try_together(const ml_advice_case *it, ml_advices *out)
{
    const ml_advice **kept = ml_alloc_zeroed(out->count + 1, sizeof(*kept));
    size_t count = 0;
    int error = kept == NULL ? ML_ENOMEM : 0;
    out->after = out->before;
    for (size_t i = 0; error == 0 && i < out->count; i++) {
        ml_trial_result result = out->list[i].alone;
        kept[count] = &out->list[i];
        /* Checkpointing of several families was tried as several advices. */
        if (count != 0 || out->list[i].kind == ML_ADVICE_CHECKPOINT) {
            error = ml_advices_try(it, kept, count + 1, &result);
        }
        if (error == 0 && lowers(&out->after, &result.peak)) {
            out->list[i].together = true;
            out->after = result;
            count++;
        }
    }
    ml_free(kept);
    return error;
}

static int
advise(const ml_advice_case *it, ml_advices *out)
{
    out->recorded = it->workload->peak;
    out->before = it->before;
    out->start_cached = it->start_cached;
    out->exact = it->exact;
    out->failed = it->workload->failed;
    out->doubts = it->workload->doubts |
                  (uint32_t)it->workload->failed << ML_DOUBT_FAILED |
                  (uint32_t)!it->exact << ML_DOUBT_MODEL;
    out->uses_known = ml_advice_knows_uses(it);
    if (it->before.peak_event < it->trace->event_count) {
        size_t event = it->before.peak_event;
        out->at_peak = ml_causes_of(it->causes, it->device, event);
        out->peak_time = ml_events_time(&it->trace->events, event);
    }
    ml_proposals proposals = {0};
    int error = propose(it, &proposals);
    if (error == 0) {
        out->list = ml_alloc_zeroed(proposals.count + 1, sizeof(ml_advice));
        error = out->list == NULL ? ML_ENOMEM : try_each(it, &proposals, out);
    }
    ml_proposals_fini(&proposals);
    if (error == 0) {
        rank(out);
        error = merge_checkpoints(it, out);
    }
    if (error == 0) {
        rank(out);
        error = try_together(it, out);
    }
    return error;
}

int
ml_advices_new(const ml_recording *recording, size_t device, uint64_t memory_bytes,
               ml_advices **out)
{
    ml_advice_case it;
    int error = ml_advice_case_init(&it, recording, device);
    if (error < 0) {
        return error;
    }
    ml_advices *advices = ml_alloc_zeroed(1, sizeof(*advices));
    error = advices == NULL ? ML_ENOMEM : advise(&it, advices);
    if (error == 0) {
        /* For a run that ran out of memory, lab/verdict gives this answer. */
        advices->batch.memory_bytes = UINT64_MAX;
        if (it.failed == ML_NO_EVENT) {
            error = ml_advice_fit_batch(&it, memory_bytes, &advices->batch);
        }
    }
    if (error == 0) {
        error = ml_advice_find_parts(&it, &advices->parts, &advices->part_count);
    }
    ml_advice_case_fini(&it);
    if (error < 0) {
        ml_advices_free(advices);
        return error;
    }
    *out = advices;
    return 0;
}

void
ml_advices_free(ml_advices *advices)
{
    if (advices == NULL) {
        return;
    }
    for (size_t i = 0; i < advices->count; i++) {
        ml_advice_fini(&advices->list[i]);
    }
    ml_free(advices->list);
    ml_free(advices->parts);
    ml_free(advices);
}

const char *
ml_advice_text(unsigned kind)
{
    static const char *const texts[] = {ML_ADVICES(ML_LISTED_TEXT)};
    return kind < ML_ADVICE_COUNT ? texts[kind] : "";
}
