/* Follows the block structure of one device.  See ledger.h.  blocks.c has the
 * structure, ledger_seed.c its beginning. */
#include "ledger/ledger_parts.h"

#include <string.h>

#include "base/base.h"

/* ---- Rules ---- */

static const ml_allocator_rules default_rules = {.max_split_bytes = UINT64_MAX,
                                                 .has_segments = 1};

/* ml_allocator_round by LEDGER's rules. */
static inline uint64_t
round_size(const ml_ledger *ledger, uint64_t requested)
{
    const uint64_t rest = ML_MINIMUM_BLOCK_BYTES - 1;
    if (ledger->plain && requested - 1 < UINT64_MAX / 4) {
        return (requested + rest) & ~rest;
    }
    return ml_allocator_round(&ledger->rules, requested);
}

static uint64_t
round_by(const void *rules, uint64_t requested)
{
    return ml_allocator_round(rules, requested);
}

/* The rule of splitting, docs/ALLOCATOR.md.  A private pool with segments that are not
 * expandable, while the setting is on, has an allocator of its own; the setting does
 * not apply to it. */
static bool
splits(const ml_allocator_rules *rules, const ml_block_node *node, uint64_t bytes,
       const ml_event *event)
{
    uint64_t rest = node->size - bytes;
    bool private_pool = (event->flags & ML_EVENT_POOL_KNOWN) != 0 &&
                        (event->pool[0] != 0 || event->pool[1] != 0);
    bool expandable = node->expandable || (rules->expandable_segments && !private_pool);
    if (bytes <= ML_SMALL_BLOCK_BYTES || expandable) {
        return rest >= ML_MINIMUM_BLOCK_BYTES;
    }
    return bytes < rules->max_split_bytes && rest > ML_SMALL_BLOCK_BYTES;
}

/* ---- Totals ---- */

static bool
take_reset(ml_ledger *ledger)
{
    bool reset = atomic_load_explicit(&ledger->reset, memory_order_relaxed);
    if (reset) {
        ledger->peak = ledger->blocks.totals;
    }
    return reset;
}

/* ---- Events ---- */

static void
report_block(ml_event *event, const ml_block_node *node)
{
    event->block_bytes = node->size;
    event->flags |= ML_EVENT_BLOCK_KNOWN;
}

static inline __attribute__((always_inline)) void
use_block(ml_ledger *ledger, uint32_t index, ml_event *event)
{
    ml_block_node *node = &ledger->blocks.nodes[index];
    node->requested = event->size;
    node->birth = ledger->events;
    node->stack = event->stack;
    ml_blocks_use(&ledger->blocks, node, ML_BLOCK_ALLOCATED);
    report_block(event, node);
}

/* A block without a segment leaves. */
static ML_RARE void
drop_bare(ml_blocks *blocks, uint32_t index)
{
    ml_blocks_uncount(blocks, &blocks->nodes[index]);
    blocks->totals.reserved = blocks->totals.allocated;
    ml_blocks_drop(blocks, index);
}

static ML_RARE int
apply_alloc_bare(ml_ledger *ledger, ml_event *event)
{
    ml_blocks *blocks = &ledger->blocks;
    bool known = (event->flags & ML_EVENT_BLOCK_KNOWN) != 0;
    int problem = ML_LEDGER_FITS;
    uint32_t index = ml_blocks_find(blocks, event->addr);
    ml_ledger_name(ledger, index);
    if (index != 0) {
        drop_bare(blocks, index);
        problem = ML_LEDGER_ALLOC_TAKEN;
    }
    index =
        ml_blocks_add(blocks, event->addr, known ? event->block_bytes : event->size);
    if (index == 0) {
        return ML_LEDGER_TABLE_FULL;
    }
    use_block(ledger, index, event);
    blocks->totals.reserved = blocks->totals.allocated;
    return problem;
}

/* A free block for EVENT's allocation where the ledger knows none; 0: full. */
static ML_RARE uint32_t
make_block(ml_ledger *ledger, const ml_event *event, uint64_t bytes, int *problem)
{
    ml_blocks *blocks = &ledger->blocks;
    if (ml_blocks_span_holding(blocks, event->addr) != 0) {
        *problem = ML_LEDGER_ALLOC_TAKEN;
        uint32_t index =
            ml_blocks_make_room(blocks, event->addr, bytes, round_by, &ledger->rules);
        /* The segment made for the old block vanished with it. */
        if (index != 0 || ml_blocks_span_holding(blocks, event->addr) != 0) {
            return index;
        }
    }
    else {
        *problem = ML_LEDGER_ALLOC_UNKNOWN;
    }
    /* Better known facts stay. */
    uint32_t above = ml_blocks_span_above(blocks, event->addr);
    if (above != 0 && blocks->spans[above].addr - event->addr < bytes) {
        bytes = blocks->spans[above].addr - event->addr;
    }
    ml_block_span made_up = {.addr = event->addr,
                             .total = bytes,
                             .stream = event->stream,
                             .pool = {event->pool[0], event->pool[1]},
                             .small = bytes <= ML_SMALL_BLOCK_BYTES,
                             .pool_known = (event->flags & ML_EVENT_POOL_KNOWN) != 0,
                             .made_up = 1};
    uint32_t span = ml_blocks_add_span(blocks, &made_up);
    return span == 0 ? 0 : blocks->spans[span].head;
}

static int
apply_alloc(ml_ledger *ledger, ml_event *event)
{
    ml_blocks *blocks = &ledger->blocks;
    bool known = (event->flags & ML_EVENT_BLOCK_KNOWN) != 0 && event->block_bytes != 0;
    uint64_t bytes = known ? event->block_bytes : round_size(ledger, event->size);
    if (bytes == 0 || event->addr > UINT64_MAX - bytes) {
        return ML_LEDGER_ALLOC_UNKNOWN;
    }
    int problem = ML_LEDGER_FITS;
    uint32_t index = ml_blocks_find(blocks, event->addr);
    ml_ledger_name(ledger, index);
    const ml_block_node *node = &blocks->nodes[index];
    if (index == 0 || node->state != ML_BLOCK_INACTIVE) {
        index = make_block(ledger, event, bytes, &problem);
    }
    else if (node->size < event->size) {
        problem = ML_LEDGER_ALLOC_SMALL;
        index =
            ml_blocks_make_room(blocks, event->addr, bytes, round_by, &ledger->rules);
    }
    if (index == 0) {
        return ML_LEDGER_TABLE_FULL;
    }
    node = &blocks->nodes[index];
    if (node->size < bytes) {
        /* The settings in force differed from the rules. */
        bytes = node->size;
        problem = problem != ML_LEDGER_FITS ? problem : ML_LEDGER_ALLOC_SMALL;
    }
    if (node->size > bytes && (known || splits(&ledger->rules, node, bytes, event)) &&
        ml_blocks_split(blocks, index, bytes) == 0) {
        problem = ML_LEDGER_TABLE_FULL;
    }
    use_block(ledger, index, event);
    return problem;
}

static int
apply_free(ml_ledger *ledger, ml_event *event)
{
    ml_blocks *blocks = &ledger->blocks;
    bool completed = event->action == ML_ACTION_FREE_COMPLETED;
    /* A free mostly completes at once. */
    uint32_t index = ledger->requested;
    ml_block_node *node = &blocks->nodes[index];
    if (!completed || node->addr != event->addr ||
        node->state != ML_BLOCK_PENDING_FREE) {
        index = ml_blocks_find(blocks, event->addr);
        node = &blocks->nodes[index];
    }
    ledger->requested = index;
    ml_ledger_name(ledger, index);
    if (index == 0 || node->state == ML_BLOCK_INACTIVE ||
        (node->state == ML_BLOCK_PENDING_FREE && !completed)) {
        return ML_LEDGER_FREE_UNKNOWN;
    }
    report_block(event, node);
    event->origin_stack = node->stack;
    int problem = ML_LEDGER_FITS;
    if (!completed) {
        /* Mostly the next event joins these. */
        __builtin_prefetch(&blocks->nodes[node->next], 1);
        __builtin_prefetch(&blocks->nodes[node->prev], 1);
    }
    if (node->state == ML_BLOCK_ALLOCATED) {
        ml_blocks_pend(blocks, node);
        problem = completed ? ML_LEDGER_FREE_UNREQUESTED : ML_LEDGER_FITS;
    }
    if (!ledger->rules.has_segments) {
        blocks->totals.reserved = blocks->totals.allocated;
    }
    if (completed && ledger->rules.has_segments) {
        ml_blocks_release(blocks, index);
    }
    else if (completed) {
        drop_bare(blocks, index);
    }
    return problem;
}

/* Whether two mapped runs are parts of one reservation if they touch. */
static bool
same_owner(const ml_block_span *a, const ml_block_span *b)
{
    bool pools = a->small_unknown || b->small_unknown || a->small == b->small;
    if (a->expandable != b->expandable || !pools || a->stream != b->stream) {
        return false;
    }
    return !a->pool_known || !b->pool_known ||
           (a->pool[0] == b->pool[0] && a->pool[1] == b->pool[1]);
}

static bool
bad_range(const ml_event *event)
{
    return event->size == 0 || event->addr > UINT64_MAX - event->size;
}

static int
apply_segment_new(ml_ledger *ledger, const ml_event *event, bool small_unknown)
{
    ml_blocks *blocks = &ledger->blocks;
    if (bad_range(event)) {
        return ML_LEDGER_SEGMENT_UNKNOWN;
    }
    uint64_t end = event->addr + event->size;
    bool taken = ml_blocks_clear_range(blocks, event->addr, end).bytes != 0;
    ml_block_span like = {.addr = event->addr,
                          .total = event->size,
                          .stream = event->stream,
                          .pool = {event->pool[0], event->pool[1]},
                          .stack = event->stack,
                          .small = event->size <= ML_SMALL_SEGMENT_BYTES,
                          .expandable = event->action == ML_ACTION_SEGMENT_MAP,
                          .pool_known = (event->flags & ML_EVENT_POOL_KNOWN) != 0,
                          .small_unknown = small_unknown};
    uint32_t added = ml_blocks_add_span(blocks, &like);
    if (added == 0) {
        return ML_LEDGER_TABLE_FULL;
    }
    if (like.expandable) {
        uint32_t right = ml_blocks_span_above(blocks, event->addr);
        uint32_t left =
            event->addr == 0 ? 0 : ml_blocks_span_holding(blocks, event->addr - 1);
        right = blocks->spans[right].addr == end ? right : 0;
        right = right != 0 && same_owner(&blocks->spans[right], &like) ? right : 0;
        left = left != 0 && same_owner(&blocks->spans[left], &like) ? left : 0;
        if (right != 0) {
            ml_blocks_join_spans(blocks, added, right);
        }
        if (left != 0) {
            ml_blocks_join_spans(blocks, left, added);
        }
    }
    return taken ? ML_LEDGER_SEGMENT_TAKEN : ML_LEDGER_FITS;
}

static int
apply_segment_gone(ml_ledger *ledger, ml_event *event)
{
    ml_blocks *blocks = &ledger->blocks;
    uint32_t index = bad_range(event) ? 0 : ml_blocks_span_holding(blocks, event->addr);
    if (index == 0) {
        return ML_LEDGER_SEGMENT_UNKNOWN;
    }
    const ml_block_span *span = &blocks->spans[index];
    bool fits = event->action == ML_ACTION_SEGMENT_UNMAP
                    ? span->expandable
                    : span->addr == event->addr && span->total == event->size;
    event->origin_stack = span->stack;
    if (fits && !span->expandable &&
        blocks->nodes[span->head].state == ML_BLOCK_INACTIVE &&
        span->head == span->tail) {
        ml_blocks_drop_span(blocks, index);
        return ML_LEDGER_FITS;
    }
    ml_cleared cleared =
        ml_blocks_clear_range(blocks, event->addr, event->addr + event->size);
    if (cleared.full) {
        return ML_LEDGER_TABLE_FULL;
    }
    if (cleared.in_use != 0) {
        return ML_LEDGER_SEGMENT_IN_USE;
    }
    return fits && cleared.bytes == event->size ? ML_LEDGER_FITS
                                                : ML_LEDGER_SEGMENT_UNKNOWN;
}

/* Events of no block. */
static ML_RARE int
apply_segment(ml_ledger *ledger, ml_event *event)
{
    bool has_segments = ledger->rules.has_segments != 0;
    switch (event->action) {
    case ML_ACTION_SEGMENT_ALLOC:
    case ML_ACTION_SEGMENT_MAP:
        return has_segments ? apply_segment_new(ledger, event, false) : ML_LEDGER_FITS;
    case ML_ACTION_SEGMENT_FREE:
    case ML_ACTION_SEGMENT_UNMAP:
        return has_segments ? apply_segment_gone(ledger, event) : ML_LEDGER_FITS;
    default:
        return ML_LEDGER_FITS;
    }
}

/* *RAISED: a peak rose. */
static inline int
apply(ml_ledger *ledger, ml_event *event, bool *raised)
{
    int problem;
    ledger->named = false;
    if (ml_action_frees_block(event->action)) {
        problem = apply_free(ledger, event); /* raises no peak */
    }
    else {
        problem = event->action != ML_ACTION_ALLOC ? apply_segment(ledger, event)
                  : ledger->rules.has_segments     ? apply_alloc(ledger, event)
                                                   : apply_alloc_bare(ledger, event);
        *raised |= ml_ledger_raise_peaks(ledger);
    }
    ledger->events++;
    if (problem != ML_LEDGER_FITS) {
        ledger->inconsistencies++;
        ledger->full += problem == ML_LEDGER_TABLE_FULL;
    }
    return problem;
}

int
ml_ledger_apply(ml_ledger *ledger, ml_event *event)
{
    bool reset = take_reset(ledger);
    bool peaks = reset;
    int problem = apply(ledger, event, &peaks);
    ml_ledger_publish(ledger, peaks, reset);
    return problem;
}

int
ml_ledger_follow(ml_ledger *ledger, ml_event *event)
{
    bool raised = false;
    if (take_reset(ledger)) {
        atomic_store_explicit(&ledger->reset, false, memory_order_relaxed);
    }
    return apply(ledger, event, &raised);
}

/* ---- Going back ---- */

static void
learn_pool(ml_ledger *ledger, uint64_t addr, bool small)
{
    ml_blocks *blocks = &ledger->blocks;
    uint32_t span = ledger->unsure ? ml_blocks_span_holding(blocks, addr) : 0;
    if (span != 0 && blocks->spans[span].small_unknown) {
        ml_blocks_set_small(blocks, span, small);
    }
}

int
ml_ledger_undo(ml_ledger *ledger, const ml_event *event)
{
    if (!ledger->rules.has_segments) {
        return ML_LEDGER_FITS;
    }
    ml_event undone = *event;
    undone.stack = event->origin_stack;
    bool unknown = event->size > ML_SMALL_SEGMENT_BYTES;
    switch (event->action) {
    case ML_ACTION_ALLOC:
    case ML_ACTION_FREE_REQUESTED:
    case ML_ACTION_FREE_COMPLETED:
        learn_pool(ledger, event->addr, event->size <= ML_SMALL_BLOCK_BYTES);
        return ML_LEDGER_FITS;
    case ML_ACTION_SEGMENT_ALLOC:
        undone.action = ML_ACTION_SEGMENT_FREE;
        return apply_segment_gone(ledger, &undone);
    case ML_ACTION_SEGMENT_MAP:
        learn_pool(ledger, event->addr, event->size <= ML_SMALL_SEGMENT_BYTES);
        undone.action = ML_ACTION_SEGMENT_UNMAP;
        return apply_segment_gone(ledger, &undone);
    case ML_ACTION_SEGMENT_FREE:
        undone.action = ML_ACTION_SEGMENT_ALLOC;
        return apply_segment_new(ledger, &undone, false);
    case ML_ACTION_SEGMENT_UNMAP:
        ledger->unsure |= unknown;
        undone.action = ML_ACTION_SEGMENT_MAP;
        return apply_segment_new(ledger, &undone, unknown);
    default:
        return ML_LEDGER_FITS;
    }
}

/* ---- Life ---- */

static void
set_rules(ml_ledger *ledger, const ml_allocator_rules *rules)
{
    ledger->rules = *rules;
    ledger->plain = ml_allocator_rounds_plainly(rules);
    ledger->blocks.oversize = rules->max_split_bytes;
}

int
ml_ledger_new(ml_ledger **out, const ml_allocator_rules *rules, size_t block_limit)
{
    ml_ledger *ledger = ml_alloc_zeroed(1, sizeof(*ledger));
    if (ledger == NULL) {
        return ML_ENOMEM;
    }
    int error = ml_blocks_init(&ledger->blocks, block_limit);
    if (error < 0) {
        ml_free(ledger);
        return error;
    }
    set_rules(ledger, rules == NULL ? &default_rules : rules);
    *out = ledger;
    return 0;
}

void
ml_ledger_free(ml_ledger *ledger)
{
    if (ledger != NULL) {
        ml_blocks_fini(&ledger->blocks);
        ml_free(ledger);
    }
}

void
ml_ledger_clear(ml_ledger *ledger, const ml_allocator_rules *rules)
{
    ml_blocks_clear(&ledger->blocks);
    memset(&ledger->peak, 0, sizeof(ledger->peak));
    ledger->events = 0;
    ledger->inconsistencies = 0;
    ledger->full = 0;
    ledger->seed_rest = 0;
    ledger->requested = 0;
    ledger->named = false;
    ledger->unsure = false;
    if (rules != NULL) {
        set_rules(ledger, rules);
    }
    ml_ledger_publish(ledger, true, true);
}

/* ---- Reading ---- */

const ml_totals *
ml_ledger_current(const ml_ledger *ledger)
{
    return &ledger->blocks.totals;
}

const ml_pool_stats *
ml_ledger_pool_stats(const ml_ledger *ledger)
{
    return ledger->blocks.counting ? &ledger->blocks.counts : NULL;
}

void
ml_ledger_start_counting(ml_ledger *ledger)
{
    if (!ledger->blocks.counting) {
        ml_blocks_start_counting(&ledger->blocks);
    }
}

void
ml_ledger_stop_counting(ml_ledger *ledger)
{
    ledger->blocks.counting = false;
}

ml_ledger_totals
ml_ledger_get_totals(const ml_ledger *ledger)
{
    bool reset = atomic_load_explicit(&ledger->reset, memory_order_relaxed);
    ml_ledger_totals totals = {.current = ledger->blocks.totals,
                               .peak = reset ? ledger->blocks.totals : ledger->peak,
                               .allocations = ledger->blocks.in_use,
                               .segments = ledger->blocks.segments,
                               .events = ledger->events,
                               .inconsistencies = ledger->inconsistencies,
                               .full = ledger->full};
    return totals;
}

void
ml_ledger_read_totals(const ml_ledger *ledger, ml_totals *current, ml_totals *peak)
{
    uint32_t before, after;
    bool reset;
    do {
        before = atomic_load_explicit(&ledger->sequence, memory_order_acquire);
#define XX(name) \
    current->name = \
        atomic_load_explicit(&ledger->shared_current.name, memory_order_relaxed); \
    peak->name = atomic_load_explicit(&ledger->shared_peak.name, memory_order_relaxed);
        ML_TOTALS(XX)
#undef XX
        reset = atomic_load_explicit(&ledger->reset, memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        after = atomic_load_explicit(&ledger->sequence, memory_order_relaxed);
    } while (before != after || (before & 1u) != 0);
    if (reset) {
        *peak = *current;
    }
}

void
ml_ledger_reset_peaks(ml_ledger *ledger)
{
    atomic_store_explicit(&ledger->reset, true, memory_order_relaxed);
}

void
ml_ledger_forked(ml_ledger *ledger)
{
    uint32_t sequence = atomic_load_explicit(&ledger->sequence, memory_order_relaxed);
    if ((sequence & 1u) != 0) {
        atomic_store_explicit(&ledger->sequence, sequence - 1, memory_order_relaxed);
        ml_ledger_publish(ledger, true, false);
    }
}

bool
ml_ledger_locate(const ml_ledger *ledger, uint64_t addr, ml_ledger_place *out)
{
    const ml_blocks *blocks = &ledger->blocks;
    uint32_t index = ml_blocks_find(blocks, addr);
    if (index == 0) {
        index = ml_blocks_holding(blocks, addr);
    }
    if (index == 0) {
        return false;
    }
    const ml_block_node *node = &blocks->nodes[index];
    const ml_block_node *before = &blocks->nodes[node->prev];
    *out = (ml_ledger_place){.block = ml_blocks_show(node), .birth = node->birth};
    if (node->prev != 0) {
        out->before = ml_blocks_show(before);
        out->before_birth = before->birth;
    }
    return true;
}

bool
ml_ledger_named(const ml_ledger *ledger, uint64_t *birth)
{
    *birth = ledger->named_birth;
    return ledger->named;
}

int
ml_ledger_visit(const ml_ledger *ledger, const ml_ledger_visitor *visitor)
{
    return ml_blocks_visit(&ledger->blocks, ledger->rules.has_segments != 0, visitor);
}

const char *
ml_ledger_validate(const ml_ledger *ledger)
{
#define XX(name) \
    if (ledger->peak.name < ledger->blocks.totals.name && \
        !atomic_load(&ledger->reset)) { \
        return "the peak of " #name " bytes is below the current ones"; \
    }
    ML_TOTALS(XX)
#undef XX
    return ml_blocks_validate(&ledger->blocks, ledger->rules.has_segments != 0);
}
