/* Reads the records of memory events.  See pack.h; pack_codes.h has the layout. */
#include "file/codec/pack_codes.h"

#include <stdbool.h>
#include <string.h>

/* A field of BYTES, which must be available. */
static inline uint64_t
get(const uint8_t **at, const uint8_t *end, unsigned bytes)
{
    uint64_t value = 0;
    if (end - *at >= 8) {
        memcpy(&value, *at, sizeof(value));
        value = bytes == 8 ? value : value & ((UINT64_C(1) << 8 * bytes) - 1);
    }
    else {
        memcpy(&value, *at, bytes);
    }
    *at += bytes;
    return value;
}

#define STREAMS (ML_PACK_CONTEXT_STREAM | ML_PACK_CONTEXT_STREAM_BACK)
#define THREADS (ML_PACK_CONTEXT_THREAD | ML_PACK_CONTEXT_THREAD_WIDE)

static int
get_context(ml_pack *state, const uint8_t **at, const uint8_t *end)
{
    const uint8_t *from = *at;
    if (end - from < 2 || from[0] >> 4 > 1 || from[1] == 0 ||
        (from[1] & STREAMS) == STREAMS || (from[1] & THREADS) == THREADS) {
        return ML_EFORMAT;
    }
    unsigned class = from[0] >> 4;
    unsigned mask = from[1];
    ptrdiff_t bytes = 2 + ((mask & ML_PACK_CONTEXT_FLAGS) != 0 ? 1 : 0) +
                      ((mask & ML_PACK_CONTEXT_THREAD) != 0 ? 2 : 0) +
                      ((mask & ML_PACK_CONTEXT_THREAD_WIDE) != 0 ? 4 : 0) +
                      ((mask & ML_PACK_CONTEXT_AUTOGRAD) != 0 ? 2 : 0) +
                      ((mask & ML_PACK_CONTEXT_STREAM) != 0 ? 8 : 0) +
                      ((mask & ML_PACK_CONTEXT_POOL) != 0 ? 8 : 0) +
                      ((mask & ML_PACK_CONTEXT_METADATA) != 0 ? 4 : 0);
    if (end - from < bytes) {
        return ML_EFORMAT;
    }
    from += 2;
    if ((mask & ML_PACK_CONTEXT_FLAGS) != 0) {
        state->flags[class] = (uint8_t)get(&from, end, 1);
    }
    if ((mask & THREADS) != 0) {
        state->thread = (uint32_t)get(
            &from, end, (mask & ML_PACK_CONTEXT_THREAD_WIDE) != 0 ? 4 : 2);
    }
    if ((mask & ML_PACK_CONTEXT_AUTOGRAD) != 0) {
        state->autograd_thread = (uint16_t)get(&from, end, 2);
    }
    if ((mask & STREAMS) != 0) {
        uint64_t stream = (mask & ML_PACK_CONTEXT_STREAM_BACK) != 0
                              ? state->stream_before
                              : get(&from, end, 8);
        state->stream_before = state->stream;
        state->stream = stream;
    }
    if ((mask & ML_PACK_CONTEXT_POOL) != 0) {
        state->pool[0] = (uint32_t)get(&from, end, 4);
        state->pool[1] = (uint32_t)get(&from, end, 4);
    }
    if ((mask & ML_PACK_CONTEXT_METADATA) != 0) {
        state->metadata = (uint32_t)get(&from, end, 4);
    }
    *at = from;
    return 0;
}

static int
get_next(ml_pack *state, const uint8_t **at, const uint8_t *end)
{
    const uint8_t *from = *at;
    unsigned code = from[0] >> ML_PACK_NEXT_CODE_AT & 3u;
    bool thread = (from[0] & ML_PACK_NEXT_THREAD) != 0;
    if ((from[0] & ~ML_PACK_NEXT_ALL) != 0 ||
        end - from < 1 + (ptrdiff_t)ml_pack_next_bytes[code] + (thread ? 2 : 0)) {
        return ML_EFORMAT;
    }
    from++;
    uint64_t field = get(&from, end, ml_pack_next_bytes[code]);
    state->next = code == 3 ? field : state->next + ml_pack_unfold_sign(field, 0);
    if (thread) {
        state->next_thread = (uint16_t)get(&from, end, 2);
    }
    *at = from;
    return 0;
}

/* Reads an event's sparse columns, by number; columns unknown to this reader are
 * skipped, and counted. */
static int
get_sparse(ml_pack *state, const uint8_t **at, const uint8_t *end,
           uint32_t sparse[ML_SPARSE_COLUMN_COUNT])
{
    const uint8_t *from = *at;
    unsigned page = 0;
    memset(sparse, 0, ML_SPARSE_COLUMN_COUNT * sizeof(*sparse));
    while (from < end && (*from & 15u) == ML_PACK_TAG_SPARSE) {
        unsigned code = from[0] >> 4 & 3u;
        unsigned number = page + (from[0] >> 6);
        if (end - from < 2 + (ptrdiff_t)code) {
            return ML_EFORMAT;
        }
        from++;
        uint32_t value = (uint32_t)get(&from, end, code + 1);
        if (value == 0 && code == 1) {
            page += ML_PACK_SPARSE_PAGE;
            continue;
        }
        if (number < ML_SPARSE_COLUMN_COUNT) {
            sparse[number] = value;
        }
        else {
            state->skipped++;
        }
        page = 0;
    }
    *at = from;
    return 0;
}

static int
get_state(ml_pack *state, const uint8_t **at, const uint8_t *end)
{
    ml_pack read = *state;
    if (end - *at < (ptrdiff_t)ML_PACK_STATE_BYTES || **at != ML_PACK_TAG_STATE) {
        return ML_EFORMAT;
    }
    memcpy(&read, *at + 1, ML_PACK_STATE_BYTES - 1);
    if (read.action >= ML_ACTION_COUNT || read.sequence_max > 1) {
        return ML_EFORMAT;
    }
    *state = read;
    *at += ML_PACK_STATE_BYTES;
    return 0;
}

static void
show_event(const ml_pack *state, ml_event *event)
{
    unsigned class = ml_pack_class_of(state->action);
    *event = (ml_event){
        .addr = state->addr,
        .size = state->size,
        .time = state->time,
        .block_bytes = state->block_bytes,
        .stream = state->stream,
        .sequence = state->sequence_max != 0 ? UINT64_MAX : state->sequence,
        .stack = state->stack[class],
        .origin_stack = state->origin_stack[class],
        .pool = {state->pool[0], state->pool[1]},
        .metadata = state->metadata,
        .node = state->node,
        .thread = state->thread,
        .autograd_thread = state->autograd_thread,
        .action = state->action,
        .flags = state->flags[class],
    };
}

static int
get_completed(ml_pack *state, const uint8_t **at, const uint8_t *end)
{
    unsigned code = **at >> 4;
    if (code > 3 || end - *at < 1 + (ptrdiff_t)ml_pack_completed_time_bytes[code] ||
        state->action != ML_ACTION_FREE_REQUESTED) {
        return ML_EFORMAT;
    }
    (*at)++;
    state->time += get(at, end, ml_pack_completed_time_bytes[code]);
    state->action = ML_ACTION_FREE_COMPLETED;
    return 0;
}

static uint64_t
block_of(unsigned code, uint64_t field, uint64_t size)
{
    return code == 0   ? ml_pack_rounded(size)
           : code == 1 ? 0
           : code == 2 ? size
           : code == 7 ? field
                       : ml_pack_rounded(size) + (field << 9);
}

static void
get_sequence(ml_pack *state, unsigned code, uint64_t field)
{
    state->sequence_max = code == 1;
    if (code == 5) {
        state->sequence = field;
    }
    else if (code > 1) {
        state->sequence += ml_pack_unfold_sign(field, 0);
    }
}

/* All but the low BYTES of a word are cut off. */
static const uint64_t low_bytes[9] = {
    0, 0xff, 0xffff, 0xffffff, 0xffffffff, 0xffffffffff, 0xffffffffffff, 0, UINT64_MAX};

/* As get, where a whole word can be read. */
static inline uint64_t
take_bytes(const uint8_t **at, unsigned bytes)
{
    uint64_t value;
    memcpy(&value, *at, sizeof(value));
    *at += bytes;
    return value & low_bytes[bytes];
}

/* No event is longer, with the word that its last field is read by. */
#define EVENT_ROOM 64

/* Its fields from AT on, by CODES. */
static const uint8_t *
take_event(ml_pack *state, unsigned codes, const uint8_t *at)
{
    unsigned action = codes & 15u;
    unsigned class = ml_pack_class_of(action);
    unsigned addr = codes >> ML_PACK_ADDR_AT & 7u, size = codes >> ML_PACK_SIZE_AT & 7u;
    unsigned stack = codes >> ML_PACK_STACK_AT & 3u;
    unsigned origin = codes >> ML_PACK_ORIGIN_AT & 3u;
    unsigned block = codes >> ML_PACK_BLOCK_AT & 7u;
    unsigned sequence = codes >> ML_PACK_SEQUENCE_AT & 7u;
    unsigned node = codes >> ML_PACK_NODE_AT & 3u;
    state->action = (uint8_t)action;
    state->time += take_bytes(&at, ml_pack_time_bytes[codes >> ML_PACK_TIME_AT & 3u]);
    uint64_t field = take_bytes(&at, ml_pack_addr_bytes[addr]);
    state->addr =
        addr == 7 ? field
                  : state->addr + ml_pack_unfold_sign(field, ml_pack_addr_shift[addr]);
    if (size != 0) {
        state->size = take_bytes(&at, ml_pack_size_bytes[size])
                      << ml_pack_size_shift[size];
    }
    if (stack != 0) {
        state->stack[class] = (uint32_t)take_bytes(&at, ml_pack_stack_bytes[stack]);
    }
    if (origin != 0) {
        state->origin_stack[class] =
            (uint32_t)take_bytes(&at, ml_pack_stack_bytes[origin]);
    }
    field = take_bytes(&at, ml_pack_block_bytes[block]);
    state->block_bytes = block_of(block, field, state->size);
    if (sequence != 0) {
        get_sequence(state, sequence,
                     take_bytes(&at, ml_pack_sequence_bytes[sequence]));
    }
    else {
        state->sequence_max = 0;
    }
    if (node != 0) {
        state->node = (uint32_t)take_bytes(&at, ml_pack_node_bytes[node]);
    }
    return at;
}

static int
get_event(ml_pack *state, const uint8_t **at, const uint8_t *end)
{
    if (end - *at < (ptrdiff_t)ML_PACK_CODES_BYTES) {
        return ML_EFORMAT;
    }
    unsigned codes = (unsigned)get(at, end, ML_PACK_CODES_BYTES);
    size_t left = (size_t)(end - *at);
    unsigned sequence = codes >> ML_PACK_SEQUENCE_AT & 7u;
    if (sequence > 5) {
        return ML_EFORMAT;
    }
    if (left >= EVENT_ROOM) {
        *at = take_event(state, codes, *at);
        return 0;
    }
    uint8_t last[EVENT_ROOM + sizeof(uint64_t)] = {0};
    memcpy(last, *at, left);
    unsigned bytes = 0u + ml_pack_time_bytes[codes >> ML_PACK_TIME_AT & 3u] +
                     ml_pack_addr_bytes[codes >> ML_PACK_ADDR_AT & 7u] +
                     ml_pack_size_bytes[codes >> ML_PACK_SIZE_AT & 7u] +
                     ml_pack_stack_bytes[codes >> ML_PACK_STACK_AT & 3u] +
                     ml_pack_stack_bytes[codes >> ML_PACK_ORIGIN_AT & 3u] +
                     ml_pack_block_bytes[codes >> ML_PACK_BLOCK_AT & 7u] +
                     ml_pack_sequence_bytes[sequence] +
                     ml_pack_node_bytes[codes >> ML_PACK_NODE_AT & 3u];
    if (left < bytes) {
        return ML_EFORMAT;
    }
    take_event(state, codes, last);
    *at += bytes;
    return 0;
}

static int
get_other(const uint8_t **at, const uint8_t *end, ml_packed_other *other)
{
    const uint8_t *from = *at;
    if (end - from < (ptrdiff_t)ML_PACK_OTHER_HEADER) {
        return ML_EFORMAT;
    }
    uint32_t length;
    memcpy(&length, from + 1, sizeof(length));
    if ((uint64_t)(end - from) - ML_PACK_OTHER_HEADER < length) {
        return ML_EFORMAT;
    }
    *other = (ml_packed_other){from + ML_PACK_OTHER_HEADER, length, from[0] >> 4};
    *at = from + ML_PACK_OTHER_HEADER + length;
    return ML_PACKED_OTHER;
}

int
ml_unpack(ml_pack *state, const uint8_t **at, const uint8_t *end, ml_event *event,
          ml_packed_other *other)
{
    const uint8_t *from = *at;
    while (from < end && (*from & 15u) == ML_PACK_TAG_STATE) {
        if (get_state(state, &from, end) < 0) {
            return ML_EFORMAT;
        }
    }
    const uint8_t *start = from;
    /* These come right before their event, so committed bytes never end with one. */
    if (from < end && (*from & 15u) == ML_PACK_TAG_CONTEXT &&
        get_context(state, &from, end) < 0) {
        return ML_EFORMAT;
    }
    bool next = from < end && (*from & 15u) == ML_PACK_TAG_NEXT;
    if (next && get_next(state, &from, end) < 0) {
        return ML_EFORMAT;
    }
    uint32_t sparse[ML_SPARSE_COLUMN_COUNT];
    bool any_sparse = from < end && (*from & 15u) == ML_PACK_TAG_SPARSE;
    if (any_sparse && get_sparse(state, &from, end, sparse) < 0) {
        return ML_EFORMAT;
    }
    bool begun = from != start;
    if (from >= end) {
        *at = begun ? *at : from;
        return begun ? ML_EFORMAT : ML_PACKED_END;
    }
    unsigned tag = *from & 15u;
    int result = ML_EFORMAT;
    if (tag == ML_PACK_TAG_OTHER && !begun) {
        result = get_other(&from, end, other);
        *at = result < 0 ? *at : from;
        return result;
    }
    if (tag == ML_PACK_TAG_COMPLETED) {
        result = get_completed(state, &from, end);
    }
    else if (tag < ML_ACTION_COUNT) {
        result = get_event(state, &from, end);
    }
    if (result < 0) {
        return ML_EFORMAT;
    }
    show_event(state, event);
    if (next) {
        event->next = state->next;
        event->next_thread = state->next_thread;
    }
    if (any_sparse) {
#define XX(member, number, text) event->member = sparse[number];
        ML_SPARSE_COLUMNS(XX)
#undef XX
    }
    *at = from;
    return ML_PACKED_EVENT;
}
