/* Runs a trial.  See trial.h.
 *
 * The number of a demand leads to its address in the model, so frees find their blocks
 * wherever the model places them.  A free that waits for other streams completes where
 * the recording completed it, or earlier if the model synchronizes all streams. */
#include "lab/whatif/trial.h"

#include <stdlib.h>

#include "base/base.h"
#include "lab/whatif/trial_driver.h"
#include "ledger/replay/compare.h"

/* Above any device's memory, and the largest request that the model accepts. */
#define REQUEST_MAX (UINT64_C(1) << 60)

typedef struct trial {
    const ml_workload *workload;
    const ml_trial_options *options;
    ml_schedule own; /* if the options have none */
    const ml_schedule *schedule;
    ml_trial_driver driver;
    ml_allocator *allocator;
    const ml_allocator_stats *figures;
    uint64_t *placed;  /* owned; by demand, its address in the model; 0: not live */
    uint32_t *pending; /* demands whose frees wait or waited */
    size_t pending_count;
    size_t pending_capacity;
    uint64_t waits; /* synchronizations of all streams by the model so far */
    ml_trial_result result;
    bool ended;
} trial;

/* ---- Figures ---- */

static void
follow_peaks(trial *t, size_t event)
{
    const ml_allocator_stats *figures = t->figures;
    ml_trial_result *result = &t->result;
    if (figures->peak.allocated > result->peak.allocated) {
        result->peak_event = event;
    }
    if (figures->peak.reserved > result->peak.reserved) {
        result->too_much =
            t->options->enough != 0 && figures->peak.reserved > t->options->enough;
        t->ended = t->ended || result->too_much;
        result->reserved_peak_event = event;
        result->at_reserved_peak = figures->current;
        result->inactive_split = figures->inactive_split;
    }
    result->peak = figures->peak;
}

/* When the model synchronizes all streams, it completes pending frees. */
static void
follow_waits(trial *t)
{
    uint64_t waits = t->figures->counters.of[ML_SOURCE_COUNTER_num_sync_all_streams];
    if (waits == t->waits) {
        return;
    }
    t->waits = waits;
    for (size_t i = 0; i < t->pending_count; i++) {
        t->placed[t->pending[i]] = 0;
    }
    t->pending_count = 0;
}

static void
run_out(trial *t, size_t event, uint64_t bytes)
{
    if (t->result.ooms++ == 0) {
        t->result.oom_event = event;
        t->result.oom_bytes = bytes;
        t->result.oom_reserved = t->figures->current.reserved;
    }
}

/* ---- Steps ---- */

/* Requests BYTES for demand ITEM or for none; 0, ML_ALLOCATOR_OOM or ML_E*. */
static int
ask(trial *t, size_t event, uint64_t bytes, uint64_t stream, const uint32_t pool[2],
    uint64_t *addr)
{
    *addr = 0;
    int result = ml_allocator_pool_use(t->allocator, pool);
    if (result == 0) {
        result = bytes > REQUEST_MAX
                     ? ML_ALLOCATOR_OOM
                     : ml_allocator_malloc(t->allocator, bytes, stream, pool, addr);
    }
    if (result == ML_ALLOCATOR_OOM) {
        run_out(t, event, bytes);
    }
    if (result >= 0) {
        follow_peaks(t, event);
        follow_waits(t);
    }
    return t->driver.error < 0 ? t->driver.error : result;
}

static bool
is_enough(const trial *t)
{
    uint64_t enough = t->options->enough_mismatches;
    uint64_t most = t->options->most_demands;
    bool mismatches_enough =
        enough != 0 &&
        t->result.mismatched_addresses + t->driver.mismatched_segments >= enough;
    return mismatches_enough || (most != 0 && t->result.demands >= most);
}

static int
step_alloc(trial *t, const ml_step *step)
{
    const ml_demand *demand = &t->workload->demands[step->item];
    const ml_stream_pool *to = &t->workload->stream_pools.list[demand->stream_pool];
    uint64_t *placed = &t->placed[step->item];
    t->result.demands++;
    ml_trial_driver_begin(&t->driver, step->event, false);
    int result = ask(t, step->event, demand->bytes, to->stream, to->pool, placed);
    if (t->options->recorded_addresses) {
        t->result.mismatched_addresses += *placed != demand->addr;
        ml_trial_driver_end(&t->driver);
        t->result.cut = is_enough(t);
        t->ended |= t->result.cut;
    }
    if (result == ML_ALLOCATOR_OOM) {
        t->ended = !t->options->go_on;
        result = 0;
    }
    return result;
}

/* Adds demand ITEM, whose free waits. */
static int
add_pending(trial *t, size_t item)
{
    void *items = t->pending;
    int error =
        ml_grow(&items, &t->pending_capacity, t->pending_count + 1, sizeof(uint32_t));
    if (error == 0) {
        t->pending = items;
        t->pending[t->pending_count++] = (uint32_t)item;
    }
    return error;
}

static int
step_request(trial *t, size_t item)
{
    int error = add_pending(t, item);
    return error == 0 ? ml_allocator_free_deferred(t->allocator, t->placed[item])
                      : error;
}

static int
step_complete(trial *t, uint32_t item)
{
    /* The block joins the pending list; pending blocks have no address. */
    uint64_t addr = t->placed[item];
    t->placed[item] = 0;
    return ml_allocator_complete(t->allocator, addr);
}

/* The program gave memory back. */
static int
step_empty(trial *t, const ml_mark *mark)
{
    ml_trial_driver_begin(&t->driver, mark->end, false);
    if (mark->kind == ML_MARK_EMPTY_CACHE) {
        int result = ml_allocator_empty_cache(t->allocator);
        follow_waits(t);
        return result;
    }
    int result = ml_allocator_pool_empty(t->allocator, mark->pool);
    /* This waited for streams, but not for this trial's pending frees. */
    t->waits = t->figures->counters.of[ML_SOURCE_COUNTER_num_sync_all_streams];
    return result;
}

/* A request failed in the recording.  What followed it is unknown, so its block is
 * freed at once. */
static int
step_failure(trial *t, const ml_mark *mark)
{
    uint64_t addr;
    ml_trial_driver_begin(&t->driver, mark->event, true);
    t->result.at_failure = t->figures->current.allocated;
    int result = ask(t, mark->event, mark->bytes, mark->stream, mark->pool, &addr);
    if (result == 0) {
        return ml_allocator_free(t->allocator, addr);
    }
    return result == ML_ALLOCATOR_OOM ? 0 : result;
}

static int
step_mark(trial *t, const ml_mark *mark)
{
    if (mark->kind == ML_MARK_POOL_DONE) {
        int result = ml_allocator_pool_release(t->allocator, mark->pool);
        return result == ML_EINVALID ? 0 : result; /* already done */
    }
    int result =
        mark->kind == ML_MARK_OOM ? step_failure(t, mark) : step_empty(t, mark);
    if (t->options->recorded_addresses) {
        ml_trial_driver_end(&t->driver);
    }
    return result;
}

static int
take_step(trial *t, const ml_step *step)
{
    int result = 0;
    switch ((enum ml_step_kind)step->kind) {
    case ML_STEP_ALLOC:
        return step_alloc(t, step);
    case ML_STEP_FREE:
        if (t->placed[step->item] != 0) {
            result = ml_allocator_free(t->allocator, t->placed[step->item]);
            t->placed[step->item] = 0;
        }
        return result;
    case ML_STEP_REQUEST:
        return t->placed[step->item] != 0 ? step_request(t, step->item) : 0;
    case ML_STEP_COMPLETE:
        return t->placed[step->item] != 0 ? step_complete(t, step->item) : 0;
    case ML_STEP_MARK:
        return step_mark(t, &t->workload->marks[step->item]);
    }
    return ML_EINVALID;
}

/* ---- The start ---- */

static ml_block
free_block(uint64_t from, uint64_t to)
{
    return (ml_block){.addr = from, .size = to - from, .state = ML_BLOCK_INACTIVE};
}

/* Seeds the recorded SEGMENT, with demands from *NEXT on; BLOCKS is scratch room. */
static int
seed_segment(trial *t, const ml_segment *segment, size_t *next, ml_block *blocks)
{
    const ml_workload *workload = t->workload;
    uint64_t at = segment->addr;
    uint64_t end = segment->addr + segment->total;
    size_t count = 0;
    for (; *next < workload->before_count && workload->demands[*next].addr < end;
         ++*next) {
        const ml_demand *demand = &workload->demands[*next];
        if (demand->bytes == 0 || demand->addr < at) {
            continue;
        }
        if (demand->addr > at) {
            blocks[count++] = free_block(at, demand->addr);
        }
        blocks[count++] = (ml_block){.addr = demand->addr,
                                     .size = demand->block_bytes,
                                     .requested = demand->bytes,
                                     .state = workload->before_states[*next]};
        t->placed[*next] = demand->addr;
        if (workload->before_states[*next] == ML_BLOCK_PENDING_FREE) {
            int error = add_pending(t, *next);
            if (error < 0) {
                return error;
            }
        }
        at = demand->addr + demand->block_bytes;
    }
    if (at < end) {
        blocks[count++] = free_block(at, end);
    }
    return ml_allocator_seed_segment(t->allocator, segment, blocks, count, 0, 0);
}

static int
seed(trial *t)
{
    const ml_workload *workload = t->workload;
    ml_block *blocks =
        ml_alloc_zeroed(2 * workload->before_count + 1, sizeof(ml_block));
    if (blocks == NULL) {
        return ML_ENOMEM;
    }
    size_t next = 0;
    int error = 0;
    for (size_t i = 0; i < workload->segment_count && error == 0; i++) {
        error = ml_trial_driver_seed(&t->driver, &workload->segments[i]);
        if (error == 1) {
            error = seed_segment(t, &workload->segments[i], &next, blocks);
        }
        else if (error == 0) {
            error = ML_EINVALID;
        }
    }
    ml_free(blocks);
    /* The recording contradicts the allocator's rules. */
    return error == ML_EINVALID ? ML_EFORMAT : error;
}

/* Requests the starting memory anew. */
static int
ask_start(trial *t)
{
    const ml_workload *workload = t->workload;
    for (size_t i = 0; i < workload->before_count && !t->ended; i++) {
        const ml_demand *demand = &workload->demands[i];
        if (demand->bytes == 0) {
            continue;
        }
        const ml_stream_pool *to = &workload->stream_pools.list[demand->stream_pool];
        int result =
            ask(t, ML_NO_EVENT, demand->bytes, to->stream, to->pool, &t->placed[i]);
        if (result == 0 && workload->before_states[i] == ML_BLOCK_PENDING_FREE) {
            result = step_request(t, i);
        }
        if (result < 0) {
            return result;
        }
        t->ended = result == ML_ALLOCATOR_OOM && !t->options->go_on;
    }
    return 0;
}

/* Whether the trial begins with the recorded segments. */
static bool
begins_as_recorded(const trial *t)
{
    const ml_trial_options *options = t->options;
    double memory = (double)options->memory_bytes;
    double allowed = options->settings.memory_fraction * (double)options->device_bytes;
    if (options->settings.limited && allowed < memory) {
        memory = allowed;
    }
    double used = 0;
    for (size_t i = 0; i < t->workload->segment_count; i++) {
        used += (double)t->workload->segments[i].total;
    }
    return options->recorded_addresses || (options->recorded_start && used <= memory);
}

static int
start(trial *t, const ml_workload *workload, const ml_trial_options *options)
{
    *t = (trial){.workload = workload, .options = options};
    t->result.peak_event = ML_NO_EVENT;
    t->result.reserved_peak_event = ML_NO_EVENT;
    t->result.oom_event = ML_NO_EVENT;
    t->schedule = options->schedule;
    if (t->schedule == NULL || t->schedule->workload != workload) {
        int failed = ml_schedule_init(&t->own, workload);
        if (failed < 0) {
            return failed;
        }
        t->schedule = &t->own;
    }
    int error = 0;
    t->placed = ml_alloc_zeroed(workload->count + 1, sizeof(uint64_t));
    error = t->placed == NULL ? ML_ENOMEM
                              : ml_trial_driver_init(&t->driver, workload, options);
    if (error == 0) {
        ml_allocator_driver table = ml_trial_driver_table(&t->driver);
        error = ml_allocator_new(&options->settings, &table, options->device_bytes,
                                 &t->allocator);
    }
    if (error == 0) {
        t->figures = ml_allocator_get_stats(t->allocator);
        error = begins_as_recorded(t) ? seed(t) : ask_start(t);
    }
    if (error == 0) {
        follow_peaks(t, ML_NO_EVENT);
    }
    return error;
}

static void
finish(trial *t)
{
    if (t->allocator != NULL) {
        ml_allocator_delete(t->allocator);
    }
    ml_trial_driver_fini(&t->driver);
    ml_schedule_fini(&t->own);
    ml_free(t->placed);
    ml_free(t->pending);
}

/* ---- The whole ---- */

/* Runs until EVENT has had its effect. */
static int
go(trial *t, size_t event)
{
    int error = 0;
    size_t last = 0;
    ml_schedule_walk walk = {.schedule = t->schedule};
    ml_step step;
    while (error == 0 && !t->ended && ml_schedule_next(&walk, &step) &&
           step.event <= event) {
        last = step.event;
        error = take_step(t, &step);
    }
    t->result.events = t->ended ? last + 1 : t->workload->trace->event_count;
    return error;
}

/* Whether the trial at recorded addresses did nothing that another driver would not let it
 * do at its own.  Blocks ordered by their making may have any address. */
static bool
takes_any_addresses(const trial *t)
{
    const ml_trial_options *options = t->options;
    return options->recorded_addresses && options->settings.order != ML_ORDER_ADDRESS &&
           !options->settings.expandable_segments &&
           options->memory_bytes == UINT64_MAX && t->workload->before_count == 0 &&
           t->workload->segment_count == 0 && !t->driver.denied &&
           t->figures->peak.reserved / ML_PLACEMENT_GRANULE < ML_TRIAL_SEGMENTS_MAX;
}

static int
sum_up(trial *t)
{
    ml_trial_result *result = &t->result;
    int error = 0;
    result->any_addresses = takes_any_addresses(t);
    result->placed = t->driver.asked;
    result->retries = t->figures->counters.of[ML_SOURCE_COUNTER_num_alloc_retries];
    result->driver_calls = t->driver.calls;
    result->at_end = t->figures->current;
    result->slack = t->figures->slack;
    result->mismatched_segments = t->driver.mismatched_segments;
    result->compared = t->options->recorded_addresses && !result->cut &&
                       t->workload->trace->segment_count != 0;
    if (result->compared) {
        ml_comparison comparison = {.trace = t->workload->trace};
        ml_ledger_visitor visitor = {&comparison, ml_compare_segment, ml_compare_block};
        error = ml_allocator_visit(t->allocator, &visitor);
        ml_compare_end(&comparison);
        result->mismatched_segments += comparison.mismatched_segments;
        result->mismatched_blocks = comparison.mismatched_blocks;
    }
    return error;
}

int
ml_trial_run(const ml_workload *workload, const ml_trial_options *options,
             ml_trial_result *out)
{
    trial t;
    int error = start(&t, workload, options);
    if (error == 0) {
        error = go(&t, SIZE_MAX);
    }
    if (error == 0) {
        ml_trial_driver_begin(&t.driver, workload->trace->event_count, false);
        if (options->recorded_addresses && !t.result.cut) {
            ml_trial_driver_end(&t.driver);
        }
        error = sum_up(&t);
        *out = t.result;
    }
    finish(&t);
    return error;
}

/* ---- Looking at it ---- */

typedef struct born {
    uint64_t addr;
    uint64_t demand;
} born;

typedef struct onlooker {
    const ml_ledger_visitor *visitor;
    born *births; /* by address */
    size_t count;
} onlooker;

static int
look_at_segment(void *context, const ml_segment *segment)
{
    const ml_ledger_visitor *visitor = ((onlooker *)context)->visitor;
    return visitor->segment != NULL ? visitor->segment(visitor->context, segment) : 0;
}

static int
look_at_block(void *context, const ml_block *block, uint64_t birth)
{
    const onlooker *looker = context;
    const ml_ledger_visitor *visitor = looker->visitor;
    birth = ML_BEFORE_EVENTS;
    if (block->state != ML_BLOCK_INACTIVE) {
        size_t i =
            ml_find_address(looker->births, sizeof(born), looker->count, block->addr);
        if (i < looker->count && looker->births[i].addr == block->addr) {
            birth = looker->births[i].demand;
        }
    }
    return visitor->block != NULL ? visitor->block(visitor->context, block, birth) : 0;
}

static int
compare_births(const void *a, const void *b)
{
    uint64_t x = ((const born *)a)->addr;
    uint64_t y = ((const born *)b)->addr;
    return (x > y) - (x < y);
}

static int
look_at_memory(trial *t, const ml_ledger_visitor *visitor)
{
    onlooker looker = {.visitor = visitor};
    looker.births = ml_alloc_zeroed(t->workload->count + 1, sizeof(born));
    if (looker.births == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < t->workload->count; i++) {
        if (t->placed[i] != 0) {
            looker.births[looker.count++] = (born){t->placed[i], i};
        }
    }
    qsort(looker.births, looker.count, sizeof(born), compare_births);
    ml_ledger_visitor through = {&looker, look_at_segment, look_at_block};
    int result = ml_allocator_visit(t->allocator, &through);
    ml_free(looker.births);
    return result;
}

int
ml_trial_visit(const ml_workload *workload, const ml_trial_options *options,
               size_t event, const ml_ledger_visitor *visitor)
{
    trial t;
    int error = start(&t, workload, options);
    if (error == 0 && event != ML_NO_EVENT) {
        error = go(&t, event);
    }
    if (error == 0) {
        error = look_at_memory(&t, visitor);
    }
    finish(&t);
    return error;
}

int
ml_trial_least_memory(const ml_workload *workload, const ml_trial_options *options,
                      uint64_t *out)
{
    ml_trial_options with = *options;
    ml_trial_result result;
    with.memory_bytes = UINT64_MAX;
    with.go_on = false;
    int error = ml_trial_run(workload, &with, &result);
    uint64_t unit = ML_PLACEMENT_GRANULE;
    uint64_t enough = result.peak.reserved / unit;
    uint64_t little = 0;
    while (error == 0 && enough - little > 1) {
        uint64_t middle = little + (enough - little) / 2;
        with.memory_bytes = middle * unit;
        error = ml_trial_run(workload, &with, &result);
        *(result.ooms == 0 ? &enough : &little) = middle;
    }
    *out = enough * unit;
    return error;
}
