/* A replay of one device.  See replay.h.
 *
 * Undoing goes backwards over the events with two sets: the segments, in a ledger of
 * their own that is told the opposite of each event, and the blocks in use.  A completed
 * free puts a block back whose size may be unknown; it is inferred at the end, when its
 * neighbours are known.  A rest of up to 1 MiB behind a block of the large pool is its
 * slack, because no free block as small as that can be there.  Behind a larger rest the
 * block may still have slack; then what is allocated next in that rest shows where the
 * block ends, because free neighbours are always merged: every allocation is at the
 * start of a free block, so the block in use before it ends there. */
#include "ledger/replay/replay.h"

#include <string.h>

#include "base/base.h"
#include "ledger/replay/compare.h"

/* A request above max_split_size takes a free block whole if the rest is below this. */
#define MAX_NON_SPLIT_ROUNDING (UINT64_C(20) << 20)

struct ml_replay {
    const ml_device_trace *trace; /* borrowed */
    ml_allocator_rules rules;
    ml_ledger *ledger; /* owned */
    size_t position;
    ml_event event;
    uint64_t misfits;
    uint64_t mismatched_addresses;

    /* Before the first event; owned, each sorted by address. */
    ml_segment *ranges;
    size_t range_count;
    size_t range_capacity;
    ml_block *blocks;
    size_t block_count;
    size_t block_capacity;
    uint64_t *doubts; /* owned; of each block, the bytes by which it could be larger; 0
                         where its size is settled */
};

/* Of a block whose size is inferred but which cannot be larger. */
#define INFERRED UINT64_MAX

/* The first mapped range that ends after ADDR. */
static size_t
find_range(const ml_replay *replay, uint64_t addr)
{
    size_t low;
    ML_SEARCH(low, replay->range_count,
              replay->ranges[low].addr + replay->ranges[low].total <= addr);
    return low;
}

/* ---- Undoing ---- */

/* Adds a block in use of SIZE bytes, 0 if that is to be inferred. */
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
load_end(const ml_replay *replay, ml_ledger *past, ml_blocks *live)
{
    const ml_device_trace *trace = replay->trace;
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
    ml_replay *replay = context;
    void *items = replay->ranges;
    int error = ml_grow(&items, &replay->range_capacity, replay->range_count + 1,
                        sizeof(ml_segment));
    if (error < 0) {
        return error;
    }
    replay->ranges = items;
    replay->ranges[replay->range_count++] = *segment;
    return 0;
}

static int
keep_block(void *context, const ml_block *block, uint64_t birth)
{
    ml_replay *replay = context;
    (void)birth;
    void *items = replay->blocks;
    int error = ml_grow(&items, &replay->block_capacity, replay->block_count + 1,
                        sizeof(ml_block));
    if (error < 0) {
        return error;
    }
    replay->blocks = items;
    replay->blocks[replay->block_count++] = *block;
    return 0;
}

/* Gives initial block I of unknown size its own. */
static void
infer_size(ml_replay *replay, size_t i)
{
    ml_block *block = &replay->blocks[i];
    uint64_t tight = ml_allocator_round(&replay->rules, block->requested);
    block->size = tight;
    size_t at = find_range(replay, block->addr);
    if (!replay->rules.has_segments || at == replay->range_count ||
        replay->ranges[at].addr > block->addr) {
        return;
    }
    const ml_segment *segment = &replay->ranges[at];
    uint64_t end = segment->addr + segment->total;
    if (i + 1 < replay->block_count && replay->blocks[i + 1].addr < end) {
        end = replay->blocks[i + 1].addr;
    }
    uint64_t room = end - block->addr;
    if (tight > room) {
        block->size = room;
        return;
    }
    /* With the setting on, an older segment is split finely too. */
    if (tight <= ML_SMALL_BLOCK_BYTES || segment->expandable ||
        replay->rules.expandable_segments) {
        return;
    }
    uint64_t gap = room - tight;
    uint64_t most = tight < replay->rules.max_split_bytes ? ML_SMALL_BLOCK_BYTES
                                                          : MAX_NON_SPLIT_ROUNDING;
    if (gap <= most) {
        block->size = room;
        replay->doubts[i] = most == ML_SMALL_BLOCK_BYTES ? 0 : INFERRED;
    }
    else {
        replay->doubts[i] = most;
    }
}

static int
infer_sizes(ml_replay *replay)
{
    replay->doubts = ml_alloc_zeroed(replay->block_count + 1, sizeof(uint64_t));
    if (replay->doubts == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < replay->block_count; i++) {
        if (replay->blocks[i].size == 0) {
            infer_size(replay, i);
        }
    }
    return 0;
}

/* An allocation at ADDR follows: the block in use before it ends there. */
static void
settle_size(ml_replay *replay, uint64_t addr)
{
    ml_ledger_place place;
    if (!ml_ledger_locate(replay->ledger, addr, &place)) {
        return;
    }
    bool inside = place.block.state != ML_BLOCK_INACTIVE;
    const ml_block *before = inside ? &place.block : &place.before;
    uint64_t birth = inside ? place.birth : place.before_birth;
    if (before->size == 0 || before->state == ML_BLOCK_INACTIVE ||
        birth != ML_BEFORE_EVENTS || before->addr >= addr) {
        return;
    }
    size_t i = ml_find_address(replay->blocks, sizeof(*replay->blocks),
                               replay->block_count, before->addr);
    uint64_t size = addr - before->addr;
    if (replay->doubts[i] != 0 && size >= before->requested) {
        replay->blocks[i].size = size;
        replay->doubts[i] = 0;
    }
}

static int
settle_sizes(ml_replay *replay)
{
    bool doubt = false;
    for (size_t i = 0; i < replay->block_count && !doubt; i++) {
        doubt = replay->doubts[i] != 0;
    }
    if (!doubt) {
        return 0;
    }
    for (size_t i = 0; i < replay->trace->event_count; i++) {
        if (replay->trace->events[i].action == ML_ACTION_ALLOC) {
            settle_size(replay, replay->trace->events[i].addr);
        }
        ml_replay_next(replay);
    }
    for (size_t i = 0; i < replay->block_count; i++) {
        if (replay->doubts[i] == INFERRED) {
            replay->doubts[i] = 0;
        }
    }
    return ml_replay_rewind(replay);
}

static int
undo_all(ml_replay *replay, ml_ledger *past, ml_blocks *live)
{
    const ml_device_trace *trace = replay->trace;
    int error = load_end(replay, past, live);
    for (size_t i = trace->event_count; i > 0 && error == 0; i--) {
        error = undo_event(past, live, &trace->events[i - 1]);
    }
    if (error == 0) {
        ml_ledger_visitor visitor = {.context = replay, .segment = keep_segment};
        error = ml_ledger_visit(past, &visitor);
    }
    if (error == 0) {
        ml_ledger_visitor visitor = {.context = replay, .block = keep_block};
        error = ml_blocks_visit(live, false, &visitor);
    }
    return error == 0 ? infer_sizes(replay) : error;
}

static int
undo(ml_replay *replay)
{
    const ml_device_trace *trace = replay->trace;
    ml_ledger *past;
    ml_blocks live;
    /* Unmapping the middle of a run makes two of it. */
    int error = ml_ledger_new(&past, &replay->rules,
                              trace->segment_count + 2 * trace->event_count + 2);
    if (error < 0) {
        return error;
    }
    error = ml_blocks_init(&live, trace->block_count + trace->event_count + 1);
    if (error == 0) {
        error = undo_all(replay, past, &live);
        ml_blocks_fini(&live);
    }
    ml_ledger_free(past);
    return error;
}

/* ---- Going forward ---- */

int
ml_replay_rewind(ml_replay *replay)
{
    ml_ledger_clear(replay->ledger, &replay->rules);
    replay->position = 0;
    replay->misfits = 0;
    replay->mismatched_addresses = 0;
    size_t next = 0;
    size_t range_count = replay->rules.has_segments ? replay->range_count : 0;
    for (size_t i = 0; i <= range_count; i++) {
        /* Blocks before this range are in none, as are those after the last. */
        uint64_t low = UINT64_MAX;
        uint64_t high = 0;
        if (i < range_count) {
            const ml_segment *segment = &replay->ranges[i];
            low = segment->addr;
            high = segment->addr + segment->total;
        }
        for (; next < replay->block_count && replay->blocks[next].addr < low; next++) {
            int error = ml_ledger_seed_stray(replay->ledger, &replay->blocks[next]);
            if (error == ML_EFULL) {
                return ML_ENOMEM;
            }
        }
        if (i < range_count) {
            int error = ml_ledger_seed_segment(replay->ledger, &replay->ranges[i]);
            if (error == ML_EFULL) {
                return ML_ENOMEM;
            }
        }
        for (; next < replay->block_count && replay->blocks[next].addr < high; next++) {
            int error = ml_ledger_seed_block(replay->ledger, &replay->blocks[next]);
            if (error == ML_EFULL) {
                return ML_ENOMEM;
            }
        }
    }
    return 0;
}

int
ml_replay_new(const ml_recording *recording, size_t device, ml_replay **out)
{
    if (device >= recording->device_count) {
        return ML_EINVALID;
    }
    ml_replay *replay = ml_alloc_zeroed(1, sizeof(*replay));
    if (replay == NULL) {
        return ML_ENOMEM;
    }
    replay->trace = &recording->devices[device];
    replay->rules = recording->rules;
    int error = undo(replay);
    if (error == 0) {
        /* An allocation adds two blocks at most, itself and the rest of its segment. */
        error = ml_ledger_new(&replay->ledger, &replay->rules,
                              2 * (replay->block_count + replay->range_count +
                                   replay->trace->event_count) +
                                  1);
    }
    if (error == 0) {
        error = ml_replay_rewind(replay);
    }
    if (error == 0) {
        error = settle_sizes(replay);
    }
    if (error < 0) {
        ml_replay_free(replay);
        return error;
    }
    *out = replay;
    return 0;
}

void
ml_replay_free(ml_replay *replay)
{
    if (replay != NULL) {
        ml_ledger_free(replay->ledger);
        ml_free(replay->ranges);
        ml_free(replay->blocks);
        ml_free(replay->doubts);
        ml_free(replay);
    }
}

const ml_event *
ml_replay_next(ml_replay *replay)
{
    if (replay->position == replay->trace->event_count) {
        return NULL;
    }
    replay->event = replay->trace->events[replay->position++];
    if (ml_ledger_apply(replay->ledger, &replay->event) != ML_LEDGER_FITS) {
        replay->misfits++;
        replay->mismatched_addresses += replay->event.action == ML_ACTION_ALLOC;
    }
    return &replay->event;
}

const ml_ledger *
ml_replay_ledger(const ml_replay *replay)
{
    return replay->ledger;
}

const ml_totals *
ml_replay_totals(const ml_replay *replay)
{
    return ml_ledger_current(replay->ledger);
}

size_t
ml_replay_position(const ml_replay *replay)
{
    return replay->position;
}

const ml_block *
ml_replay_initial(const ml_replay *replay, size_t *count)
{
    *count = replay->block_count;
    return replay->blocks;
}

/* ---- Comparing ---- */

ml_replay_result
ml_replay_check(const ml_replay *replay)
{
    const ml_device_trace *trace = replay->trace;
    ml_replay_result result = {.events = replay->position,
                               .misfits = replay->misfits,
                               .mismatched_addresses = replay->mismatched_addresses,
                               .compared = trace->segment_count != 0};
    for (size_t i = 0; i < replay->block_count; i++) {
        result.uncertain_blocks += replay->doubts[i] != 0;
        result.uncertain_bytes += replay->doubts[i];
    }
    if (result.compared) {
        ml_comparison c = {.trace = trace};
        ml_ledger_visitor visitor = {&c, ml_compare_segment, ml_compare_block};
        ml_ledger_visit(replay->ledger, &visitor);
        ml_compare_end(&c);
        result.mismatched_segments = c.mismatched_segments;
        result.mismatched_blocks = c.mismatched_blocks;
    }
    return result;
}
