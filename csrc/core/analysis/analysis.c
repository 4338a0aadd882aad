/* Makes the base of every answer about a device.  See analysis.h. */
#include "analysis/analysis.h"

#include <stdatomic.h>

#include "analysis/attribution/prior_blocks.h"
#include "base/base.h"
#include "ledger/blocks.h"

/* Of all devices of one recording; each is NULL until it is requested. */
typedef struct analyses {
    ml_attached attached;
    _Atomic(ml_causes *) causes;
    size_t device_count;
    _Atomic(ml_analysis *) devices[];
} analyses;

/* ---- Life ---- */

static void
free_analysis(ml_analysis *analysis)
{
    if (analysis != NULL) {
        ml_attached *growth = atomic_load(&analysis->growth);
        if (growth != NULL) {
            growth->free(growth);
        }
        ml_categories_free(analysis->categories);
        ml_lifetimes_fini(&analysis->lifetimes);
        ml_replay_start_free(analysis->start);
        ml_free(atomic_load(&analysis->verdicts));
        ml_free(analysis);
    }
}

static void
free_analyses(ml_attached *attached)
{
    analyses *all = (analyses *)attached;
    for (size_t d = 0; d < all->device_count; d++) {
        free_analysis(atomic_load(&all->devices[d]));
    }
    ml_causes_free(atomic_load(&all->causes));
    ml_free(all);
}

/* Those of RECORDING; NULL without memory. */
static analyses *
analyses_of(const ml_recording *recording)
{
    ml_recording *place = (ml_recording *)(uintptr_t)recording;
    ml_attached *there = atomic_load(&place->attached);
    if (there != NULL) {
        return (analyses *)there;
    }
    analyses *made = ml_alloc_zeroed(1, sizeof(*made) + recording->device_count *
                                                            sizeof(made->devices[0]));
    if (made == NULL) {
        return NULL;
    }
    made->attached.free = free_analyses;
    made->device_count = recording->device_count;
    if (!atomic_compare_exchange_strong(&place->attached, &there, &made->attached)) {
        ml_free(made);
        return (analyses *)there;
    }
    return made;
}

int
ml_analysis_causes(const ml_recording *recording, const ml_causes **out)
{
    analyses *all = analyses_of(recording);
    if (all == NULL) {
        return ML_ENOMEM;
    }
    ml_causes *there = atomic_load(&all->causes);
    if (there == NULL) {
        ml_causes *made;
        int error = ml_causes_new(recording, &made);
        if (error < 0) {
            return error;
        }
        if (atomic_compare_exchange_strong(&all->causes, &there, made)) {
            there = made;
        }
        else {
            ml_causes_free(made);
        }
    }
    *out = there;
    return 0;
}

/* ---- One device ---- */

static void
raise_totals(ml_totals *peaks, const ml_totals *now)
{
#define XX(name) peaks->name = peaks->name < now->name ? now->name : peaks->name;
    ML_TOTALS(XX)
#undef XX
}

/* Walks once over the events. */
static int
walk_events(ml_analysis *a, ml_replay *replay)
{
    ml_lifetimes_work *work = NULL;
    int result = ml_lifetimes_begin(&a->lifetimes, a->trace, replay, &work);
    if (result < 0) {
        return result;
    }
    const ml_totals *now = ml_replay_totals(replay);
    uint64_t most = now->allocated;
    a->peaks = *now;
    while ((result = ml_lifetimes_next(work)) == 1) {
        if (now->allocated > most) {
            most = now->allocated;
            a->peak = ml_replay_position(replay);
        }
        raise_totals(&a->peaks, now);
        ml_replay_keep(replay, a->start);
    }
    ml_lifetimes_end(work);
    a->fit = ml_replay_check(replay);
    return result;
}

static int
fill_analysis(ml_analysis *a)
{
    ml_replay *replay = NULL;
    int error = ml_replay_start_new(a->recording, a->device, &a->start);
    if (error == 0) {
        error = ml_replay_from(a->start, &replay);
    }
    if (error == 0) {
        error = walk_events(a, replay);
    }
    ml_replay_free(replay);
    if (error == 0) {
        error = ml_analysis_causes(a->recording, &a->causes);
    }
    if (error == 0) {
        error = ml_categories_new(a->causes, a->recording, a->device, &a->lifetimes,
                                  &a->categories);
    }
    return error;
}

int
ml_analysis_of(const ml_recording *recording, size_t device, const ml_analysis **out)
{
    if (device >= recording->device_count) {
        return ML_EINVALID;
    }
    analyses *all = analyses_of(recording);
    if (all == NULL) {
        return ML_ENOMEM;
    }
    ml_analysis *there = atomic_load(&all->devices[device]);
    if (there == NULL) {
        ml_analysis *made = ml_alloc_zeroed(1, sizeof(*made));
        if (made == NULL) {
            return ML_ENOMEM;
        }
        made->recording = recording;
        made->trace = &recording->devices[device];
        made->device = device;
        int error = fill_analysis(made);
        if (error < 0) {
            free_analysis(made);
            return error;
        }
        if (atomic_compare_exchange_strong(&all->devices[device], &there, made)) {
            there = made;
        }
        else {
            free_analysis(made);
        }
    }
    *out = there;
    return 0;
}

int
ml_analysis_replay(const ml_analysis *analysis, size_t position, ml_replay **out)
{
    ml_replay *replay;
    int error = ml_replay_from(analysis->start, &replay);
    if (error < 0) {
        return error;
    }
    error = ml_replay_go_to(replay, position);
    if (error < 0) {
        ml_replay_free(replay);
        return error;
    }
    *out = replay;
    return 0;
}

/* ---- What blocks are ---- */

/* The life of a block without events. */
static const ml_lifetime untold = {.earlier = UINT64_MAX,
                                   .requested = ML_NEVER,
                                   .end = ML_NEVER,
                                   .tag = ML_CATEGORY_COUNT};

/* The life of the block whose first row is INDEX, as one row; in *WHOLE if others
 * follow. */
static const ml_lifetime *
whole_life(const ml_analysis *analysis, size_t index, ml_lifetime *whole)
{
    const ml_lifetime *first = &analysis->lifetimes.rows[index];
    if (first->rest == 0) {
        return first;
    }
    *whole = *ml_lifetime_last(&analysis->lifetimes, first);
    whole->bytes = first->bytes;
    whole->start = first->start;
    return whole;
}

static ml_verdict
judge(const ml_analysis *analysis, const ml_lifetime *life,
      const ml_prior_block *prior_block, const ml_cause *cause)
{
    return prior_block != NULL && life->tag == ML_CATEGORY_COUNT
               ? prior_block->verdict
               : ml_categories_judge(analysis->categories, life, cause);
}

/* PRIOR_BLOCK, STACK: facts about a block from before the first event; NULL: none. */
static ml_explained
explain(const ml_analysis *analysis, const ml_lifetime *life,
        const ml_prior_block *prior_block, uint32_t stack)
{
    ml_explained it = {.name = life->name};
    if (prior_block != NULL) {
        it.cause = prior_block->cause;
        it.cause.stack = stack;
    }
    else {
        it.cause = life->birth == 0 ? ml_causes_before(analysis->causes, stack)
                                    : ml_causes_of(analysis->causes, analysis->device,
                                                   life->birth - 1);
    }
    it.verdict = judge(analysis, life, prior_block, &it.cause);
    ml_cause_name_owner(&it.cause, life, &it.verdict);
    return it;
}

ml_explained
ml_explain(const ml_analysis *analysis, uint64_t addr, uint64_t birth, uint32_t stack)
{
    const ml_lifetimes *lifetimes = &analysis->lifetimes;
    bool before = birth == ML_BEFORE_EVENTS;
    size_t index = before ? ml_lifetimes_earlier(lifetimes, addr)
                          : ml_lifetimes_row(lifetimes, birth);
    ml_lifetime whole;
    const ml_lifetime *life =
        index == SIZE_MAX ? &untold : whole_life(analysis, index, &whole);
    return explain(analysis, life,
                   before ? ml_prior_block_at(analysis->trace, addr) : NULL, stack);
}

ml_explained
ml_explain_row(const ml_analysis *analysis, size_t index)
{
    const ml_lifetime *row = &analysis->lifetimes.rows[index];
    if (row->birth != 0 && row->start == row->birth) { /* the first of its block */
        ml_lifetime whole;
        return explain(analysis, whole_life(analysis, index, &whole), NULL, 0);
    }
    ml_earlier_block of = ml_lifetimes_request(&analysis->lifetimes, index);
    return ml_explain(analysis, of.addr,
                      row->birth == 0 ? ML_BEFORE_EVENTS : row->birth - 1, of.stack);
}

static ml_verdict
judge_row(const ml_analysis *analysis, size_t index)
{
    ml_lifetime whole;
    const ml_lifetime *life = whole_life(analysis, index, &whole);
    if (life->birth == 0) {
        uint64_t addr = ml_lifetimes_request(&analysis->lifetimes, index).addr;
        ml_cause cause = {.phase = ML_PHASE_BEFORE_RECORDING};
        return judge(analysis, life, ml_prior_block_at(analysis->trace, addr), &cause);
    }
    ml_cause cause = ml_causes_of(analysis->causes, analysis->device, life->birth - 1);
    return judge(analysis, life, NULL, &cause);
}

int
ml_analysis_judge(const ml_analysis *analysis)
{
    ml_analysis *place = (ml_analysis *)(uintptr_t)analysis;
    ml_verdict *there = atomic_load(&place->verdicts);
    if (there != NULL) {
        return 0;
    }
    const ml_lifetimes *lifetimes = &analysis->lifetimes;
    ml_verdict *made = ml_alloc_zeroed(lifetimes->count + 1, sizeof(*made));
    if (made == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < lifetimes->count; i++) {
        made[i] = judge_row(analysis, i);
    }
    if (!atomic_compare_exchange_strong(&place->verdicts, &there, made)) {
        ml_free(made);
    }
    return 0;
}

unsigned
ml_analysis_category(const ml_analysis *analysis, size_t index)
{
    return atomic_load(&analysis->verdicts)[index].category;
}
