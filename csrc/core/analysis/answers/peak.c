/* The peak: finding the instant, its blocks and their categories.  See peak.h. */
#include "analysis/answers/peak.h"

#include <string.h>

#include "analysis/answers/peak_groups.h"
#include "base/base.h"

/* A position that no recording has: look for the peak. */
#define ANY_POSITION UINT64_MAX
typedef struct work {
    ml_peak *peak;
    const ml_recording *recording;
    const ml_device_trace *trace;
    size_t block_capacity;
    size_t device;
    uint32_t *stacks; /* of the allocation of each of peak->blocks */
    size_t stack_capacity;
} work;

/* ---- The instant ---- */

static void
raise(ml_totals *peak, const ml_totals *current)
{
#define XX(name) peak->name = peak->name < current->name ? current->name : peak->name;
    ML_TOTALS(XX)
#undef XX
}

static void
find_instant(ml_peak *peak, ml_replay *replay, bool given)
{
    uint64_t most = ml_replay_totals(replay)->allocated;
    peak->window_peaks = *ml_replay_totals(replay);
    while (ml_replay_next(replay) != NULL) {
        const ml_totals *now = ml_replay_totals(replay);
        if (now->allocated > most && !given) {
            most = now->allocated;
            peak->position = ml_replay_position(replay);
        }
        raise(&peak->window_peaks, now);
    }
    peak->replay = ml_replay_check(replay);
}

static int
go_to(ml_replay *replay, uint64_t position)
{
    int error = ml_replay_rewind(replay);
    while (error == 0 && ml_replay_position(replay) < position) {
        ml_replay_next(replay);
    }
    return error;
}

/* ---- The memory there ---- */

static int
visit_segment(void *context, const ml_segment *segment)
{
    work *w = context;
    (void)segment;
    w->peak->overhead.segments++;
    return 0;
}

static int
visit_block(void *context, const ml_block *block, uint64_t birth)
{
    work *w = context;
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
        /* Where events do not fit the allocator's rules, neither may these. */
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

static int
explain(work *w, const ml_explainer *explainer)
{
    ml_peak *peak = w->peak;
    for (size_t i = 0; i < peak->block_count; i++) {
        ml_peak_block *block = &peak->blocks[i];
        uint64_t birth = block->event < 0 ? ML_BEFORE_EVENTS : (uint64_t)block->event;
        ml_explained it = ml_explain(explainer, block->addr, birth, w->stacks[i]);
        block->cause = it.cause;
        block->verdict = it.verdict;
    }
    if (peak->position != 0) {
        peak->step =
            ml_causes_of(explainer->causes, w->device, (size_t)peak->position - 1).step;
    }
    return ml_peak_group(peak, w->recording);
}

static int
explain_alone(work *w)
{
    ml_causes *causes = NULL;
    ml_categories *categories = NULL;
    ml_lives lives = {0};
    int error = ml_causes_new(w->recording, &causes);
    if (error == 0) {
        error = ml_categories_new(causes, w->recording, w->device, &categories);
    }
    if (error == 0) {
        error = ml_lives_init(&lives, w->recording, w->device);
    }
    if (error == 0) {
        ml_explainer explainer = {w->trace, w->device, causes, categories, &lives};
        error = explain(w, &explainer);
    }
    ml_lives_fini(&lives);
    ml_categories_free(categories);
    ml_causes_free(causes);
    return error;
}

/* ---- The whole ---- */

/* EXPLAINER of NULL: by its own. */
static int
fill(work *w, ml_replay *replay, uint64_t position, const ml_explainer *explainer)
{
    ml_peak *peak = w->peak;
    bool given = position != ANY_POSITION;
    peak->position = given ? position : 0;
    find_instant(peak, replay, given);
    peak->known_peaks = peak->window_peaks;
    raise(&peak->known_peaks, &w->trace->peak);
    peak->earlier = w->trace->peak.allocated > peak->window_peaks.allocated;
    int error = go_to(replay, peak->position);
    if (error < 0) {
        return error;
    }
    peak->totals = *ml_replay_totals(replay);
    if (w->trace->event_count != 0) {
        size_t event = peak->position == 0 ? 0 : (size_t)peak->position - 1;
        peak->time = w->trace->events[event].time;
    }
    ml_ledger_visitor visitor = {w, visit_segment, visit_block};
    error = ml_ledger_visit(ml_replay_ledger(replay), &visitor);
    if (error < 0) {
        return error;
    }
    fill_overhead(peak);
    return explainer != NULL ? explain(w, explainer) : explain_alone(w);
}

static int
make(const ml_recording *recording, size_t device, uint64_t position, ml_replay *replay,
     const ml_explainer *explainer, ml_peak **out)
{
    work w = {.recording = recording,
              .trace = &recording->devices[device],
              .device = device,
              .peak = ml_alloc_zeroed(1, sizeof(ml_peak))};
    int error = w.peak == NULL ? ML_ENOMEM : fill(&w, replay, position, explainer);
    ml_free(w.stacks);
    if (error < 0) {
        ml_peak_free(w.peak);
        return error;
    }
    *out = w.peak;
    return 0;
}

static int
make_alone(const ml_recording *recording, size_t device, uint64_t position,
           ml_peak **out)
{
    ml_replay *replay;
    int error = ml_replay_new(recording, device, &replay);
    if (error < 0) {
        return error;
    }
    error = make(recording, device, position, replay, NULL, out);
    ml_replay_free(replay);
    return error;
}

int
ml_peak_new(const ml_recording *recording, size_t device, ml_peak **out)
{
    return make_alone(recording, device, ANY_POSITION, out);
}

int
ml_peak_new_by(const ml_recording *recording, ml_replay *replay,
               const ml_explainer *explainer, ml_peak **out)
{
    int error = ml_replay_rewind(replay);
    return error < 0 ? error
                     : make(recording, explainer->device, ANY_POSITION, replay,
                            explainer, out);
}

int
ml_peak_new_at(const ml_recording *recording, size_t device, uint64_t position,
               ml_peak **out)
{
    if (device >= recording->device_count ||
        position > recording->devices[device].event_count) {
        return ML_EINVALID;
    }
    return make_alone(recording, device, position, out);
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
        ml_free(peak->stacks);
        ml_free(peak->modules);
        ml_free(peak);
    }
}
