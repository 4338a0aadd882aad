/* Finds the memory of a device before a recording's first event.  See replay_start.h.
 *
 * It undoes the events from the last to the first, with two sets: the segments, in a
 * ledger of their own that gets the opposite of each event; and the blocks in use.  An
 * undone free restores a block whose size may be unknown.  The size is inferred at the
 * end, when its neighbours are known.
 *
 * A rest of up to 1 MiB after a block of the large pool is its slack, because such a
 * small free block cannot exist there.  Before a larger rest, the block may still have
 * slack.  Then the next allocation in that rest shows the block's end: free neighbours
 * are always merged, and every allocation is at the start of a free block. */
#include "ledger/replay/replay_start.h"

#include "base/base.h"
#include "ledger/ledger.h"

/* A request above max_split_size takes a free block whole if the rest is below this. */
#define MAX_NON_SPLIT_ROUNDING (UINT64_C(20) << 20)

/* The first mapped range that ends after ADDR. */
static size_t
find_range(const ml_replay_start *start, uint64_t addr)
{
    size_t low;
    ML_SEARCH(low, start->range_count,
              start->ranges[low].addr + start->ranges[low].total <= addr);
    return low;
}

/* ---- Undoing ---- */

/* Adds a block in use of SIZE bytes; 0: to be inferred. */
static int
revive(ml_blocks *live, const ml_event *event, uint8_t state)
{
    bool known = (event->flags & ML_EVENT_BLOCK_KNOWN) != 0;
    uint32_t index = ml_blocks_add(live, event->addr, known ? event->block_bytes : 0);
    if (index == 0) {
        return ML_ENOMEM;
    }
    ml_block_node *node = &live->nodes[index];
    node->requested = event->size;
    node->stack = event->origin_stack;
    node->state = state;
    return 0;
}

static int
undo_event(ml_ledger *past, ml_blocks *live, const ml_event *event)
{
    uint32_t index;
    if (ml_ledger_undo(past, event) == ML_LEDGER_TABLE_FULL) {
        return ML_ENOMEM;
    }
    switch (event->action) {
    case ML_ACTION_ALLOC:
        index = ml_blocks_find(live, event->addr);
        if (index != 0) {
            ml_blocks_drop(live, index);
        }
        return 0;
    case ML_ACTION_FREE_COMPLETED:
        index = ml_blocks_find(live, event->addr);
        return index != 0 ? 0 : revive(live, event, ML_BLOCK_PENDING_FREE);
    case ML_ACTION_FREE_REQUESTED:
        index = ml_blocks_find(live, event->addr);
        if (index == 0) {
            return revive(live, event, ML_BLOCK_ALLOCATED);
        }
        live->nodes[index].state = ML_BLOCK_ALLOCATED;
        return 0;
    default:
        return 0;
    }
}

static int
load_end(const ml_replay_start *start, ml_ledger *past, ml_blocks *live)
{
    const ml_device_trace *trace = start->trace;
    for (size_t i = 0; i < trace->segment_count; i++) {
        if (ml_ledger_seed_segment(past, &trace->segments[i]) == ML_EFULL) {
            return ML_ENOMEM;
        }
    }
    for (size_t i = 0; i < trace->block_count; i++) {
        const ml_block *block = &trace->blocks[i];
        if (block->state == ML_BLOCK_INACTIVE ||
            ml_blocks_find(live, block->addr) != 0) {
            continue;
        }
        uint32_t index = ml_blocks_add(live, block->addr, block->size);
        if (index == 0) {
            return ML_ENOMEM;
        }
        live->nodes[index].requested = block->requested;
        live->nodes[index].stack = block->stack;
        live->nodes[index].state = block->state;
    }
    return 0;
}

static int
keep_segment(void *context, const ml_segment *segment)
{
    ml_replay_start *start = context;
    void *items = start->ranges;
    int error = ml_grow(&items, &start->range_capacity, start->range_count + 1,
                        sizeof(ml_segment));
    if (error < 0) {
        return error;
    }
    start->ranges = items;
    start->ranges[start->range_count++] = *segment;
    return 0;
}

static int
keep_block(void *context, const ml_block *block, uint64_t birth)
{
    ml_replay_start *start = context;
    (void)birth;
    void *items = start->blocks;
    int error = ml_grow(&items, &start->block_capacity, start->block_count + 1,
                        sizeof(ml_block));
    if (error < 0) {
        return error;
    }
    start->blocks = items;
    start->blocks[start->block_count++] = *block;
    return 0;
}

/* Infers the size of initial block I. */
static void
infer_size(ml_replay_start *start, size_t i)
{
    ml_block *block = &start->blocks[i];
    uint64_t tight = ml_allocator_round(&start->rules, block->requested);
    block->size = tight;
    size_t at = find_range(start, block->addr);
    if (!start->rules.has_segments || at == start->range_count ||
        start->ranges[at].addr > block->addr) {
        return;
    }
    const ml_segment *segment = &start->ranges[at];
    uint64_t end = segment->addr + segment->total;
    if (i + 1 < start->block_count && start->blocks[i + 1].addr < end) {
        end = start->blocks[i + 1].addr;
    }
    uint64_t room = end - block->addr;
    if (tight > room) {
        block->size = room;
        return;
    }
    /* With the setting on, an older segment is split finely too. */
    if (tight <= ML_SMALL_BLOCK_BYTES || segment->expandable ||
        start->rules.expandable_segments) {
        return;
    }
    uint64_t gap = room - tight;
    uint64_t most = tight < start->rules.max_split_bytes ? ML_SMALL_BLOCK_BYTES
                                                         : MAX_NON_SPLIT_ROUNDING;
    if (gap <= most) {
        block->size = room;
        start->doubts[i] = most == ML_SMALL_BLOCK_BYTES ? 0 : ML_SIZE_INFERRED;
    }
    else {
        start->doubts[i] = most;
    }
}

static int
infer_sizes(ml_replay_start *start)
{
    start->doubts = ml_alloc_zeroed(start->block_count + 1, sizeof(uint64_t));
    if (start->doubts == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < start->block_count; i++) {
        if (start->blocks[i].size == 0) {
            infer_size(start, i);
        }
    }
    return 0;
}

static int
undo_all(ml_replay_start *start, ml_ledger *past, ml_blocks *live)
{
    const ml_device_trace *trace = start->trace;
    int error = load_end(start, past, live);
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events, ML_EVENT_MEMORY);
    for (size_t i = trace->event_count; i > 0 && error == 0; i--) {
        error = undo_event(past, live, ml_event_cursor_at(&cursor, i - 1));
    }
    if (error == 0) {
        ml_ledger_visitor visitor = {.context = start, .segment = keep_segment};
        error = ml_ledger_visit(past, &visitor);
    }
    if (error == 0) {
        ml_ledger_visitor visitor = {.context = start, .block = keep_block};
        error = ml_blocks_visit(live, false, &visitor);
    }
    return error == 0 ? infer_sizes(start) : error;
}

static int
undo(ml_replay_start *start)
{
    const ml_device_trace *trace = start->trace;
    ml_ledger *past;
    ml_blocks live;
    /* Unmapping the middle of a run makes two of it. */
    int error = ml_ledger_new(&past, &start->rules,
                              trace->segment_count + 2 * trace->event_count + 2);
    if (error < 0) {
        return error;
    }
    error = ml_blocks_init(&live, trace->block_count + trace->event_count + 1);
    if (error == 0) {
        error = undo_all(start, past, &live);
        ml_blocks_fini(&live);
    }
    ml_ledger_free(past);
    return error;
}

int
ml_replay_undo(const ml_recording *recording, size_t device, ml_replay_start **out)
{
    ml_replay_start *start = ml_alloc_zeroed(1, sizeof(*start));
    if (start == NULL) {
        return ML_ENOMEM;
    }
    start->trace = &recording->devices[device];
    start->rules = recording->rules;
    int error = undo(start);
    if (error < 0) {
        ml_replay_start_free(start);
        return error;
    }
    *out = start;
    return 0;
}

void
ml_replay_start_free(ml_replay_start *start)
{
    if (start == NULL) {
        return;
    }
    for (size_t i = 0; i < start->state_count; i++) {
        ml_free(start->states[i].image);
    }
    ml_free(start->states);
    ml_free(start->ranges);
    ml_free(start->blocks);
    ml_free(start->doubts);
    ml_free(start);
}
