/* Cache that is reserved and unused: settings that free it, and lines whose blocks keep
 * segments.
 *
 * A segment returns to the device only as a whole.  Blocks of a line that are spread
 * over otherwise free segments keep all of these.  Made together, as early as the first
 * of them, they would share segments. */
#include "lab/advice/advice_edits.h"
#include "lab/advice/advice_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "lab/whatif/tune.h"

/* Blocks keep a segment if at least this part of it is free. */
#define FREE_PART 8

/* A block at the reserved peak that keeps a segment. */
typedef struct keeper {
    uint32_t frame; /* 0: the program cannot move the block */
    size_t demand;
    uint64_t bytes;
    uint64_t free; /* bytes of its segment */
    size_t segment;
} keeper;

typedef struct keepers {
    const ml_advice_case *it;
    keeper *list; /* owned */
    size_t count;
    size_t capacity;
    size_t first; /* of the current segment */
    size_t segment;
    ml_segment now;
} keepers;

/* Drops the current segment if too little of it is free. */
static void
settle_segment(keepers *k)
{
    uint64_t used = 0;
    for (size_t i = k->first; i < k->count; i++) {
        used += k->list[i].bytes;
    }
    if (k->now.expandable || k->now.total - used < k->now.total / FREE_PART) {
        k->count = k->first;
    }
    for (size_t i = k->first; i < k->count; i++) {
        k->list[i].free = k->now.total - used;
    }
    k->first = k->count;
}

static int
visit_segment(void *context, const ml_segment *segment)
{
    keepers *k = context;
    settle_segment(k);
    k->now = *segment;
    k->segment++;
    return 0;
}

/* Whether the program could make the block earlier.  torch and modules decide when they
 * make theirs. */
static bool
is_programs_own(const ml_explained *of)
{
    uint8_t category = of->verdict.category;
    bool kind = category == ML_CATEGORY_UNKNOWN || category == ML_CATEGORY_INPUT ||
                category == ML_CATEGORY_OTHER || category == ML_CATEGORY_BUFFER ||
                category == ML_CATEGORY_TEMPORARY;
    return kind && of->cause.frame != 0 && of->cause.phase != ML_PHASE_OPTIMIZER &&
           of->cause.phase != ML_PHASE_BACKWARD &&
           (of->cause.phase != ML_PHASE_FORWARD || of->cause.module == 0);
}

static int
visit_block(void *context, const ml_block *block, uint64_t demand)
{
    keepers *k = context;
    if (block->state != ML_BLOCK_ALLOCATED) {
        return 0;
    }
    void *list = k->list;
    if (ml_grow(&list, &k->capacity, k->count + 1, sizeof(keeper)) < 0) {
        return ML_ENOMEM;
    }
    k->list = list;
    const ml_explained *of = ml_explained_of(k->it, demand);
    k->list[k->count++] = (keeper){.frame = is_programs_own(of) ? of->cause.frame : 0,
                                   .demand = (size_t)demand,
                                   .bytes = block->size,
                                   .segment = k->segment};
    return 0;
}

static int
compare_keepers(const void *a, const void *b)
{
    const keeper *x = a;
    const keeper *y = b;
    if (x->frame != y->frame) {
        return x->frame < y->frame ? -1 : 1;
    }
    return x->demand < y->demand ? -1 : x->demand > y->demand;
}

/* The blocks from FIRST up to END are of one line, in the order of their births. */
static int
propose_line(const keepers *k, size_t first, size_t end, ml_proposals *out)
{
    const ml_demand *demands = k->it->workload->demands;
    const keeper *list = k->list;
    if (end - first < 2) {
        return 0;
    }
    ml_advice *advice = ml_proposals_add(out, ML_ADVICE_FRAGMENTATION);
    if (advice == NULL) {
        return ML_ENOMEM;
    }
    advice->frame = list[first].frame;
    size_t begin = ML_NO_EVENT;
    size_t last = SIZE_MAX;
    int error = 0;
    for (size_t i = first; error == 0 && i < end; i++) {
        const ml_demand *demand = &demands[list[i].demand];
        if (demand->born == ML_NO_EVENT) {
            continue;
        }
        begin = begin == ML_NO_EVENT ? demand->born : begin;
        /* Blocks of a line in one segment count its free bytes once. */
        advice->bytes += list[i].segment != last ? list[i].free : 0;
        advice->count += list[i].segment != last;
        advice->blocks++;
        last = list[i].segment;
        ml_edit edit = {.kind = ML_EDIT_BEGIN, .demand = list[i].demand, .from = begin};
        error = ml_advice_edit(advice, edit);
        if (error == 0) {
            error = ml_advice_add_module(
                advice, k->it->recording,
                ml_explained_of(k->it, list[i].demand)->cause.module);
        }
    }
    return error;
}

static int
propose_lines(const ml_advice_case *it, ml_proposals *out)
{
    keepers k = {.it = it};
    ml_ledger_visitor visitor = {&k, visit_segment, visit_block};
    int error = ml_trial_visit(it->workload, &it->options,
                               it->before.reserved_peak_event, &visitor);
    if (error == 0 && k.segment != 0) {
        settle_segment(&k);
    }
    if (k.count != 0) {
        qsort(k.list, k.count, sizeof(keeper), compare_keepers);
    }
    for (size_t i = 0; error == 0 && i < k.count;) {
        size_t first = i;
        while (i < k.count && k.list[i].frame == k.list[first].frame) {
            i++;
        }
        error = k.list[first].frame != 0 ? propose_line(&k, first, i, out) : 0;
    }
    ml_free(k.list);
    return error;
}

/* Whether the trial of TUNED, with OPTIONS, is the one that the advice alone would be. */
static bool
is_alone(const ml_advice_case *it, const ml_tuned *tuned,
         const ml_trial_options *options)
{
    ml_trial_options alone = it->options;
    const ml_trial_result *result = &tuned->result;
    return ml_advice_set_conf(&alone.settings, tuned->conf) == 0 && result->ooms == 0 &&
           !result->too_much && !options->recorded_addresses &&
           memcmp(&alone.settings, &options->settings, sizeof(alone.settings)) == 0 &&
           alone.device_bytes == options->device_bytes &&
           alone.memory_bytes == options->memory_bytes &&
           alone.placement == options->placement && alone.seed == options->seed;
}

static int
propose_settings(const ml_advice_case *it, ml_proposals *out)
{
    ml_tuned best;
    ml_trial_options options;
    bool helps;
    if (!it->checks) {
        return 0;
    }
    int error = ml_tune_best(it->workload, &it->own, &it->checked, &it->options,
                             &it->before, &best, &options, &helps);
    if (error < 0 || !helps) {
        return error == ML_EFORMAT ? 0 : error;
    }
    const ml_trial_result *before = &it->before;
    ml_advice *advice = ml_proposals_add(out, ML_ADVICE_SETTINGS);
    if (advice == NULL) {
        return ML_ENOMEM;
    }
    snprintf(advice->conf, sizeof(advice->conf), "%s", best.conf);
    advice->tried = is_alone(it, &best, &options);
    advice->alone = best.result;
    advice->bytes = before->at_reserved_peak.reserved - before->at_reserved_peak.active;
    return 0;
}

int
ml_advise_cache(const ml_advice_case *it, ml_proposals *out)
{
    int error = propose_settings(it, out);
    return error < 0 ? error : propose_lines(it, out);
}
