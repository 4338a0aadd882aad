/* Replays one device.  See replay.h; replay_start.c finds the start. */
#include "ledger/replay/replay.h"

#include "base/base.h"
#include "ledger/replay/compare.h"
#include "ledger/replay/replay_start.h"

/* A state is kept behind a multiple of so many events, and so many for each byte that it
 * has: 4 bytes an event at most.  Of all states together there are so many bytes: beyond them
 * every other one is dropped, and half as many are kept from then on. */
#define STATE_EVENTS 4096
#define STATE_BYTES_PER_EVENT 4
#define STATE_BYTES_MOST ((size_t)64 << 20)

struct ml_replay {
    ml_replay_start *own;         /* owned; NULL: the start is shared */
    const ml_replay_start *start; /* borrowed */
    ml_ledger *ledger;            /* owned */
    size_t position;
    ml_event_cursor cursor;
    ml_event event;
    uint64_t misfits;
    uint64_t mismatched_addresses;
    bool fits; /* whether the last event fitted */
};

/* ---- Going forward ---- */

const ml_event *
ml_replay_peek(ml_replay *replay)
{
    return replay->position < replay->start->trace->event_count
               ? ml_event_cursor_at(&replay->cursor, replay->position)
               : NULL;
}

const ml_event *
ml_replay_next(ml_replay *replay)
{
    const ml_event *told = ml_replay_peek(replay);
    if (told == NULL) {
        return NULL;
    }
    ml_ledger_expect(replay->ledger, told,
                     ml_event_cursor_left(&replay->cursor, replay->position,
                                          replay->start->trace->event_count));
    replay->event = *told;
    replay->position++;
    replay->fits = ml_ledger_follow(replay->ledger, &replay->event) == ML_LEDGER_FITS;
    if (!replay->fits) {
        replay->misfits++;
        replay->mismatched_addresses += replay->event.action == ML_ACTION_ALLOC;
    }
    return &replay->event;
}

/* Puts the memory before the first event into the ledger. */
static int
seed(ml_replay *replay)
{
    ml_ledger_clear(replay->ledger, &replay->start->rules);
    size_t next = 0;
    size_t range_count =
        replay->start->rules.has_segments ? replay->start->range_count : 0;
    for (size_t i = 0; i <= range_count; i++) {
        /* Blocks before this range are in no range, and neither are those after the
         * last. */
        uint64_t low = UINT64_MAX;
        uint64_t high = 0;
        if (i < range_count) {
            const ml_segment *segment = &replay->start->ranges[i];
            low = segment->addr;
            high = segment->addr + segment->total;
        }
        for (; next < replay->start->block_count &&
               replay->start->blocks[next].addr < low;
             next++) {
            int error =
                ml_ledger_seed_stray(replay->ledger, &replay->start->blocks[next]);
            if (error == ML_EFULL) {
                return ML_ENOMEM;
            }
        }
        if (i < range_count) {
            int error =
                ml_ledger_seed_segment(replay->ledger, &replay->start->ranges[i]);
            if (error == ML_EFULL) {
                return ML_ENOMEM;
            }
        }
        for (; next < replay->start->block_count &&
               replay->start->blocks[next].addr < high;
             next++) {
            int error =
                ml_ledger_seed_block(replay->ledger, &replay->start->blocks[next]);
            if (error == ML_EFULL) {
                return ML_ENOMEM;
            }
        }
    }
    return 0;
}

/* The last kept state at or before POSITION; NULL: none. */
static const ml_replay_state *
state_before(const ml_replay_start *start, size_t position)
{
    size_t low;
    ML_SEARCH(low, start->state_count, start->states[low].position <= position);
    return low != 0 ? &start->states[low - 1] : NULL;
}

int
ml_replay_go_to(ml_replay *replay, size_t position)
{
    const ml_replay_state *state = state_before(replay->start, position);
    bool back = position < replay->position;
    if (state != NULL && (back || state->position > replay->position)) {
        ml_ledger_load(replay->ledger, state->image);
        replay->position = state->position;
        replay->misfits = state->misfits;
        replay->mismatched_addresses = state->mismatched_addresses;
    }
    else if (back) {
        int error = seed(replay);
        if (error < 0) {
            return error;
        }
        replay->position = 0;
        replay->misfits = 0;
        replay->mismatched_addresses = 0;
    }
    while (replay->position < position && ml_replay_next(replay) != NULL) {
    }
    return 0;
}

static void
drop_every_other(ml_replay_start *start)
{
    size_t kept = 0;
    start->state_bytes = 0;
    for (size_t i = 0; i < start->state_count; i++) {
        ml_replay_state state = start->states[i];
        if (i % 2 == 0) {
            ml_free(state.image);
            continue;
        }
        start->state_bytes += state.bytes;
        start->states[kept++] = state;
    }
    start->state_count = kept;
    start->state_halves++;
}

void
ml_replay_keep(const ml_replay *replay, ml_replay_start *start)
{
    if (replay->position % STATE_EVENTS != 0) {
        return;
    }
    size_t last =
        start->state_count != 0 ? start->states[start->state_count - 1].position : 0;
    size_t since = (replay->position - last) >> start->state_halves;
    size_t bytes = ml_ledger_image_bytes(replay->ledger);
    if (replay->position < last || since == 0 ||
        since < bytes / STATE_BYTES_PER_EVENT) {
        return;
    }
    void *states = start->states;
    if (ml_grow(&states, &start->state_capacity, start->state_count + 1,
                sizeof(ml_replay_state)) < 0) {
        return;
    }
    start->states = states;
    ml_replay_state state = {.position = replay->position,
                             .misfits = replay->misfits,
                             .mismatched_addresses = replay->mismatched_addresses,
                             .image = ml_ledger_save(replay->ledger),
                             .bytes = bytes};
    if (state.image != NULL) {
        start->states[start->state_count++] = state;
        start->state_bytes += bytes;
    }
    if (start->state_bytes > STATE_BYTES_MOST) {
        drop_every_other(start);
    }
}

int
ml_replay_from(const ml_replay_start *start, ml_replay **out)
{
    ml_replay *replay = ml_alloc_zeroed(1, sizeof(*replay));
    if (replay == NULL) {
        return ML_ENOMEM;
    }
    replay->start = start;
    ml_event_cursor_init(&replay->cursor, &start->trace->events,
                         ML_EVENT_MEMORY | ML_EVENT_BIT(time));
    /* An allocation adds two blocks at most, itself and the rest of its segment. */
    int error = ml_ledger_new(
        &replay->ledger, &start->rules,
        2 * (start->block_count + start->range_count + start->trace->event_count) + 1);
    if (error == 0) {
        error = seed(replay);
    }
    if (error < 0) {
        ml_replay_free(replay);
        return error;
    }
    *out = replay;
    return 0;
}

/* ---- The start ---- */

/* An allocation at ADDR follows, so the block in use before it ends there. */
static void
settle_size(const ml_replay *replay, ml_replay_start *start, uint64_t addr)
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
    size_t i = ml_find_address(start->blocks, sizeof(*start->blocks),
                               start->block_count, before->addr);
    uint64_t size = addr - before->addr;
    if (start->doubts[i] != 0 && size >= before->requested) {
        start->blocks[i].size = size;
        start->doubts[i] = 0;
    }
}

static int
settle_sizes(ml_replay_start *start)
{
    bool doubt = false;
    for (size_t i = 0; i < start->block_count && !doubt; i++) {
        doubt = start->doubts[i] != 0;
    }
    ml_replay *replay = NULL;
    int error = doubt ? ml_replay_from(start, &replay) : 0;
    if (replay == NULL) {
        return error;
    }
    for (size_t i = 0; i < start->trace->event_count; i++) {
        if (ml_events_action(&start->trace->events, i) == ML_ACTION_ALLOC) {
            settle_size(replay, start, ml_events_addr(&start->trace->events, i));
        }
        ml_replay_next(replay);
    }
    for (size_t i = 0; i < start->block_count; i++) {
        if (start->doubts[i] == ML_SIZE_INFERRED) {
            start->doubts[i] = 0;
        }
    }
    ml_replay_free(replay);
    return 0;
}

int
ml_replay_start_new(const ml_recording *recording, size_t device, ml_replay_start **out)
{
    if (device >= recording->device_count) {
        return ML_EINVALID;
    }
    ml_replay_start *start;
    int error = ml_replay_undo(recording, device, &start);
    if (error < 0) {
        return error;
    }
    error = settle_sizes(start);
    if (error < 0) {
        ml_replay_start_free(start);
        return error;
    }
    *out = start;
    return 0;
}

/* ---- Life ---- */

int
ml_replay_new(const ml_recording *recording, size_t device, ml_replay **out)
{
    ml_replay_start *start;
    int error = ml_replay_start_new(recording, device, &start);
    if (error < 0) {
        return error;
    }
    error = ml_replay_from(start, out);
    if (error < 0) {
        ml_replay_start_free(start);
        return error;
    }
    (*out)->own = start;
    return 0;
}

void
ml_replay_free(ml_replay *replay)
{
    if (replay != NULL) {
        ml_ledger_free(replay->ledger);
        ml_replay_start_free(replay->own);
        ml_free(replay);
    }
}

/* ---- Where it stands ---- */

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

bool
ml_replay_has_segments(const ml_replay *replay)
{
    return replay->start->rules.has_segments != 0;
}

bool
ml_replay_fits(const ml_replay *replay)
{
    return replay->fits;
}

size_t
ml_replay_position(const ml_replay *replay)
{
    return replay->position;
}

/* ---- Comparing ---- */

ml_replay_result
ml_replay_check(const ml_replay *replay)
{
    const ml_device_trace *trace = replay->start->trace;
    ml_replay_result result = {.events = replay->position,
                               .misfits = replay->misfits,
                               .mismatched_addresses = replay->mismatched_addresses,
                               .compared = trace->segment_count != 0};
    for (size_t i = 0; i < replay->start->block_count; i++) {
        result.uncertain_blocks += replay->start->doubts[i] != 0;
        result.uncertain_bytes += replay->start->doubts[i];
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
