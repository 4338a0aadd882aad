/* Autograd graphs that hold activations in vain: no backward pass ran them, or a pass
 * retained them.
 *
 * If the nodes of a forward ran and the pass freed nothing of it, the graph was retained.
 * Without a graph a block would be freed after its last use; advice_graph_estimate.c has the
 * recordings that do not know it.
 *
 * A variable of the forward may hold a block longer, which no recording shows while the graph
 * holds it, too.  So a second trial has such blocks until the call of the model is over: where
 * that saves less, the saving is told as the most there can be.
 *
 * Where a later pass runs a part of a retained graph again, as that of a generator after its
 * discriminator's, the part was needed, and only the rest was held in vain.
 *
 * A list that keeps one value of each step is no graph, though it may keep everything
 * that a pass would free. */
#include "lab/advice/advice_rules.h"

#include "analysis/answers/stages.h"
#include "base/base.h"
#include "lab/advice/advice_edits.h"
#include "lab/advice/graph_passes.h"

/* A saving is told as it is if at least this many tenths of it are certain. */
#define CERTAIN_TENTHS 9

/* Whether DEMAND, which is live at the end, is held in vain: not used for two steps, or retained
 * for a later pass that did not need it. */
static bool
is_left(const ml_graph_passes *f, size_t demand)
{
    const ml_events *events = &f->it->trace->events;
    size_t born = f->it->workload->demands[demand].born;
    uint64_t sequence = ml_events_sequence(events, born);
    const ml_graph_pass *by =
        sequence == 0 ? NULL
                      : ml_graph_pass_of(f, ml_events_autograd_thread(events, born),
                                         sequence - 1);
    return ml_demand_left(f->it, demand) || (by != NULL && by->shared != 0);
}

/* Whether DEMAND, of a forward or its input, outlived every pass that was done with
 * it. */
static bool
is_held(const ml_graph_passes *f, size_t demand)
{
    const ml_advice_case *it = f->it;
    const ml_demand *of = &it->workload->demands[demand];
    uint8_t category = ml_explained_of(it, demand)->verdict.category;
    bool input = category == ML_CATEGORY_INPUT || category == ML_CATEGORY_OTHER;
    if ((ml_explained_of(it, demand)->cause.phase != ML_PHASE_FORWARD && !input) ||
        ml_explained_of(it, demand)->cause.recomputed || of->last_used == ML_NO_EVENT) {
        return false;
    }
    if (of->freed == ML_NO_EVENT) {
        return is_left(f, demand);
    }
    return of->last_used < of->freed &&
           !ml_events_is_backward(&it->trace->events, of->freed);
}

/* ML_ADVICE_COUNT: no graph is known to hold DEMAND.  This includes an input that no pass used,
 * unless it grows with a graph: the program itself may hold it; what a variable is known to hold;
 * and a forward of which there is a pass at other times: without a graph that could not be.  A
 * graph lasts until the call of the model is over: LASTS is of ml_graph_calls_last. */
static enum ml_advice_kind
judge(const ml_graph_passes *f, size_t demand, const size_t *lasts, uint32_t *frame)
{
    const ml_advice_case *it = f->it;
    const ml_demand *of = &it->workload->demands[demand];
    /* A backward pass would have followed. */
    if (ml_demand_awaits_pass(it, demand) ||
        ml_stage_is_evaluation(it->stages[of->born]) ||
        ml_held_variable_of(&it->variables, of) != NULL ||
        ml_growth_has(it->growth, &ml_explained_of(it, demand)->cause)) {
        return ML_ADVICE_COUNT;
    }
    const ml_events *events = &it->trace->events;
    uint16_t thread = ml_events_autograd_thread(events, of->born);
    bool input = ml_explained_of(it, demand)->cause.phase != ML_PHASE_FORWARD;
    if (thread == 0 || ml_events_is_backward(events, of->born) || !is_held(f, demand)) {
        return ML_ADVICE_COUNT;
    }
    uint64_t sequence = ml_events_sequence(events, of->born);
    if (!input && sequence <= f->threads[thread].first) {
        return ML_ADVICE_COUNT;
    }
    const ml_graph_pass *by = input ? ml_graph_pass_at(f, of->last_used)
                                    : ml_graph_pass_of(f, thread, sequence - 1);
    if (by != NULL) {
        *frame = by->frame;
        return by->freed == 0 ? ml_graph_kept_by(by) : ML_ADVICE_COUNT;
    }
    if (input) {
        /* Of a graph that steps leave, the line is that of its end, not of the input. */
        const ml_growing *graph =
            ml_growth_find(it->growth, &ml_explained_of(it, demand)->cause);
        *frame = graph != NULL ? graph->cause.frame : 0;
        return graph != NULL ? ML_ADVICE_GRAPH_UNUSED : ML_ADVICE_COUNT;
    }
    *frame = ml_graph_untrained_line(f, demand);
    return f->trained[of->stack] || of->freed < lasts[demand] ? ML_ADVICE_COUNT
                                                              : ML_ADVICE_GRAPH_UNUSED;
}

static int
propose_all(const ml_graph_passes *f, ml_proposals *out, ml_graph_proposed *to)
{
    size_t *lasts = ml_graph_calls_last(f);
    int error = lasts == NULL ? ML_ENOMEM : 0;
    for (size_t i = f->it->workload->before_count;
         error == 0 && i < f->it->workload->count; i++) {
        ml_graph_held held = {.demand = i,
                              .until = f->it->workload->demands[i].last_used};
        held.kind = judge(f, i, lasts, &held.frame);
        if (held.kind != ML_ADVICE_COUNT) {
            error = ml_graph_propose(f, &held, out, to);
        }
    }
    ml_free(lasts);
    return error;
}

/* ---- What a pass makes for nodes that a later one runs again ---- */

/* Whether a pass made DEMAND for such a node.  *LATER: and it is there when the later one begins,
 * so its loss may train what they share. */
static bool
is_made_for_shared(const ml_graph_passes *f, size_t demand, bool *later)
{
    const ml_demand *of = &f->it->workload->demands[demand];
    const ml_events *events = &f->it->trace->events;
    if (!ml_events_is_backward(events, of->born)) {
        return false;
    }
    const ml_graph_pass *by = ml_graph_pass_at(f, of->born);
    bool is = by != NULL && ml_events_sequence(events, of->born) < by->shared &&
              !ml_demand_is_kept_workspace(f->it, demand);
    *later = is && of->freed > by->again;
    return is;
}

/* Without the graph of what they share, the first pass makes nothing for it. */
static int
leave_shared(const ml_graph_passes *f, ml_advice *advice)
{
    const ml_workload *workload = f->it->workload;
    bool any = false, later = false;
    for (size_t i = workload->before_count; i < workload->count; i++) {
        any |= is_made_for_shared(f, i, &later) && later;
    }
    int error = 0;
    for (size_t i = workload->before_count; i < workload->count && !any && error == 0;
         i++) {
        if (is_made_for_shared(f, i, &later)) {
            error =
                ml_advice_edit(advice, (ml_edit){.kind = ML_EDIT_RESIZE, .demand = i});
        }
    }
    return error;
}

/* ---- The least ---- */

static uint64_t
saved_by(const ml_advice_case *it, const ml_trial_result *result)
{
    uint64_t before = it->before.peak.allocated;
    uint64_t after = result->peak.allocated;
    return before > after ? before - after : 0;
}

/* Adds to LONGER the edits of ADVICE, each until the call of the model is over. */
static int
hold_longer(const ml_graph_passes *f, const ml_advice *advice, ml_advice *longer)
{
    size_t *ends = ml_graph_calls_end(f);
    int error = ends == NULL ? ML_ENOMEM : 0;
    for (size_t i = 0; i < advice->edit_count && error == 0; i++) {
        ml_edit edit = advice->edits[i];
        edit.until = ends[edit.demand] > edit.until ? ends[edit.demand] : edit.until;
        if (edit.until < f->it->workload->demands[edit.demand].freed) {
            error = ml_advice_edit(longer, edit);
        }
    }
    ml_free(ends);
    return error;
}

/* Tries ADVICE, and it again with blocks that last as long as a variable may hold them. */
static int
bound(const ml_graph_passes *f, ml_advice *advice)
{
    ml_advice longer = {.kind = advice->kind};
    const ml_advice *one = advice;
    ml_trial_result result;
    int error = hold_longer(f, advice, &longer);
    error = error < 0 ? error : ml_advices_try(f->it, &one, 1, &advice->alone);
    advice->tried = error == 0;
    one = &longer;
    error = error < 0 ? error : ml_advices_try(f->it, &one, 1, &result);
    if (error == 0 && saved_by(f->it, &result) <
                          saved_by(f->it, &advice->alone) / 10 * CERTAIN_TENTHS) {
        advice->most = true;
        advice->exact = false;
    }
    ml_advice_fini(&longer);
    return error;
}

int
ml_advise_graph(const ml_advice_case *it, ml_proposals *out)
{
    ml_graph_passes f;
    ml_graph_proposed to = {0};
    int error = ml_graph_passes_find(&f, it);
    if (error == 0) {
        error = ml_advice_knows_uses(it) ? propose_all(&f, out, &to)
                                         : ml_graph_estimate(&f, out, &to);
    }
    size_t shared = to.at[ML_ADVICE_GRAPH_SHARED];
    if (error == 0 && shared != 0) {
        error = leave_shared(&f, &out->list[shared - 1]);
    }
    size_t unused = to.at[ML_ADVICE_GRAPH_UNUSED];
    if (error == 0 && unused != 0) {
        error = bound(&f, &out->list[unused - 1]);
    }
    ml_graph_passes_fini(&f);
    return error;
}
