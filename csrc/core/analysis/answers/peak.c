/* Makes the peak: its blocks and their categories.  See peak.h. */
#include "analysis/answers/peak.h"

#include <string.h>

#include "analysis/answers/growth.h"
#include "analysis/answers/inner_lines.h"
#include "analysis/answers/peak_groups.h"
#include "base/base.h"

typedef struct peak_work {
    ml_peak *peak;
    const ml_analysis *analysis;
    size_t block_capacity;
    uint32_t *stacks; /* of the allocation of each of peak->blocks */
    size_t stack_capacity;
} peak_work;

static void
raise(ml_totals *peak, const ml_totals *current)
{
#define XX(name) peak->name = peak->name < current->name ? current->name : peak->name;
    ML_TOTALS(XX)
#undef XX
}

/* ---- The memory there ---- */

static int
visit_segment(void *context, const ml_segment *segment)
{
    peak_work *w = context;
    (void)segment;
    w->peak->overhead.segments++;
    return 0;
}

static int
visit_block(void *context, const ml_block *block, uint64_t birth)
{
    peak_work *w = context;
    ml_peak *peak = w->peak;
    if (block->state == ML_BLOCK_INACTIVE) {
        ml_peak_overhead *overhead = &peak->overhead;
        overhead->free_blocks++;
        if (overhead->largest_free < block->size) {
            overhead->largest_free = block->size;
        }
    }
    if (block->state != ML_BLOCK_ALLOCATED) {
        return 0;
    }
    void *blocks = peak->blocks;
    int error = ml_grow(&blocks, &w->block_capacity, peak->block_count + 1,
                        sizeof(ml_peak_block));
    if (error < 0) {
        return error;
    }
    peak->blocks = blocks;
    void *stacks = w->stacks;
    error =
        ml_grow(&stacks, &w->stack_capacity, peak->block_count + 1, sizeof(uint32_t));
    if (error < 0) {
        return error;
    }
    w->stacks = stacks;
    w->stacks[peak->block_count] = block->stack;
    peak->blocks[peak->block_count++] = (ml_peak_block){
        .addr = block->addr,
        .size = block->size,
        .requested = block->requested,
        .event = birth == ML_BEFORE_EVENTS ? -1 : (int64_t)birth,
    };
    return 0;
}

static void
fill_overhead(ml_peak *peak)
{
    ml_peak_overhead *overhead = &peak->overhead;
    const ml_totals *totals = &peak->totals;
    if (totals->reserved > totals->active) {
        overhead->inactive = totals->reserved - totals->active;
        /* If events contradict the allocator's rules, these may too. */
        uint64_t rest = overhead->inactive > overhead->largest_free
                            ? overhead->inactive - overhead->largest_free
                            : 0;
        overhead->fragmentation = (double)rest / (double)overhead->inactive;
    }
    if (totals->active > totals->requested) {
        overhead->slack = totals->active - totals->requested;
    }
}

/* ---- What each block is ---- */

/* Memory kept in a list grows: that is a better reason than that it was kept. */
static int
tell_growth(const peak_work *w)
{
    const ml_growth *growth;
    int error = 0;
    for (size_t i = 0; error == 0 && i < w->peak->block_count; i++) {
        ml_peak_block *block = &w->peak->blocks[i];
        if (block->verdict.why != ML_WHY_SEVERAL) {
            continue;
        }
        error = ml_growth_of(w->analysis, &growth);
        if (error == 0) {
            ml_growth_tell(growth, &block->cause, &block->verdict);
        }
    }
    return error;
}

static int
explain(const peak_work *w)
{
    const ml_analysis *analysis = w->analysis;
    ml_peak *peak = w->peak;
    for (size_t i = 0; i < peak->block_count; i++) {
        ml_peak_block *block = &peak->blocks[i];
        uint64_t birth = block->event < 0 ? ML_BEFORE_EVENTS : (uint64_t)block->event;
        ml_explained it = ml_explain(analysis, block->addr, birth, w->stacks[i]);
        block->cause = it.cause;
        block->verdict = it.verdict;
    }
    if (peak->position != 0) {
        peak->step = ml_causes_step(analysis->causes, analysis->device,
                                    (size_t)peak->position - 1);
    }
    int error = tell_growth(w);
    if (error == 0) {
        error = ml_peak_group(peak, analysis->recording);
    }
    return error < 0 ? error : ml_inner_lines_find(peak, analysis->recording);
}

/* ---- The whole ---- */

static int
fill_peak(peak_work *w, const ml_replay *replay)
{
    const ml_device_trace *trace = w->analysis->trace;
    ml_peak *peak = w->peak;
    peak->replay = w->analysis->fit;
    peak->window_peaks = w->analysis->peaks;
    peak->known_peaks = peak->window_peaks;
    raise(&peak->known_peaks, &trace->peak);
    peak->earlier = trace->peak.allocated > peak->window_peaks.allocated;
    peak->totals = *ml_replay_totals(replay);
    if (trace->event_count != 0) {
        size_t event = peak->position == 0 ? 0 : (size_t)peak->position - 1;
        peak->time = ml_events_time(&trace->events, event);
    }
    ml_ledger_visitor visitor = {w, visit_segment, visit_block};
    int error = ml_ledger_visit(ml_replay_ledger(replay), &visitor);
    if (error < 0) {
        return error;
    }
    fill_overhead(peak);
    return explain(w);
}

static int
make(const ml_analysis *analysis, uint64_t position, ml_peak **out)
{
    ml_replay *replay = NULL;
    peak_work w = {.analysis = analysis, .peak = ml_alloc_zeroed(1, sizeof(ml_peak))};
    int error = w.peak == NULL
                    ? ML_ENOMEM
                    : ml_analysis_replay(analysis, (size_t)position, &replay);
    if (error == 0) {
        w.peak->position = position;
        error = fill_peak(&w, replay);
    }
    ml_replay_free(replay);
    ml_free(w.stacks);
    if (error < 0) {
        ml_peak_free(w.peak);
        return error;
    }
    *out = w.peak;
    return 0;
}

int
ml_peak_new(const ml_recording *recording, size_t device, ml_peak **out)
{
    const ml_analysis *analysis;
    int error = ml_analysis_of(recording, device, &analysis);
    return error < 0 ? error : make(analysis, analysis->peak, out);
}

int
ml_peak_new_at(const ml_recording *recording, size_t device, uint64_t position,
               ml_peak **out)
{
    if (device >= recording->device_count ||
        position > recording->devices[device].event_count) {
        return ML_EINVALID;
    }
    const ml_analysis *analysis;
    int error = ml_analysis_of(recording, device, &analysis);
    return error < 0 ? error : make(analysis, position, out);
}

void
ml_peak_free(ml_peak *peak)
{
    if (peak != NULL) {
        ml_free(peak->blocks);
        for (size_t i = 0; peak->lines != NULL && i < peak->line_count; i++) {
            ml_free(peak->lines[i].module);
        }
        ml_free(peak->lines);
        for (size_t i = 0; i < peak->inner_count; i++) {
            ml_free(peak->inner[i].module);
        }
        ml_free(peak->inner);
        ml_free(peak->stacks);
        ml_free(peak->modules);
        ml_free(peak);
    }
}
