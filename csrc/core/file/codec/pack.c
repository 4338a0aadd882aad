/* Writes the record of a memory event.  See pack.h; pack_codes.h has the layout. */
#include "file/codec/pack_codes.h"

#include <stdbool.h>
#include <string.h>

#include "base/base.h"

static inline uint8_t *
put_packed(uint8_t *to, uint64_t value, unsigned bytes)
{
    memcpy(to, &value, sizeof(value));
    return to + bytes;
}

/* Each writes a field that differs from its code 0, and returns its code, shifted to
 * its place. */

static inline uint32_t
put_addr(uint8_t **to, uint64_t addr, uint64_t before)
{
    uint64_t distance = addr - before;
    unsigned code = 7;
    uint64_t field = addr;
    uint64_t units = ml_pack_fold_sign(distance, 9);
    if ((distance & 511) == 0 && units >> 32 == 0) {
        code = 1u + (units >> 16 != 0) + (units >> 24 != 0);
        field = units;
    }
    else if ((distance & 63) == 0 && ml_pack_fold_sign(distance, 6) >> 40 == 0) {
        field = ml_pack_fold_sign(distance, 6);
        code = 4u + (field >> 24 != 0);
    }
    else if (ml_pack_fold_sign(distance, 0) >> 48 == 0 && units >> 39 == 0) {
        field = ml_pack_fold_sign(distance, 0);
        code = 6;
    }
    *to = put_packed(*to, field, ml_pack_addr_bytes[code]);
    return code << ML_PACK_ADDR_AT;
}

static inline uint32_t
put_size(uint8_t **to, uint64_t size)
{
    unsigned code;
    if ((size & 511) == 0 && size >> 33 == 0) {
        code = size >> 17 == 0 ? 3 : size >> 25 == 0 ? 4 : 6;
    }
    else {
        code = size >> 8 == 0 ? 1 : size >> 16 == 0 ? 2 : size >> 32 == 0 ? 5 : 7;
    }
    *to = put_packed(*to, size >> ml_pack_size_shift[code], ml_pack_size_bytes[code]);
    return code << ML_PACK_SIZE_AT;
}

static inline uint32_t
put_stack(uint8_t **to, uint32_t stack, unsigned place)
{
    unsigned code = 1u + (stack >> 16 != 0) + (stack >> 24 != 0);
    *to = put_packed(*to, stack, code + 1);
    return code << place;
}

static inline uint32_t
put_block(uint8_t **to, uint64_t block, uint64_t size)
{
    uint64_t over = block - ml_pack_rounded(size);
    uint64_t field = over >> 9;
    unsigned code = block == 0 ? 1 : block == size ? 2 : 7;
    if (code == 7 && (over & 511) == 0 && field >> 32 == 0) {
        code = 3u + (field >> 8 != 0) + (field >> 16 != 0) + (field >> 24 != 0);
    }
    *to = put_packed(*to, code == 7 ? block : field, ml_pack_block_bytes[code]);
    return code << ML_PACK_BLOCK_AT;
}

static inline uint32_t
put_sequence(uint8_t **to, uint64_t sequence, uint64_t before)
{
    if (sequence == UINT64_MAX) {
        return 1u << ML_PACK_SEQUENCE_AT;
    }
    uint64_t field = ml_pack_fold_sign(sequence - before, 0);
    unsigned code = 2u + (field >> 8 != 0) + (field >> 16 != 0);
    /* A distance of 2^63 loses its highest bit. */
    if (field >> 32 != 0 || sequence - before == UINT64_C(1) << 63) {
        field = sequence;
        code = 5;
    }
    *to = put_packed(*to, field, ml_pack_sequence_bytes[code]);
    return code << ML_PACK_SEQUENCE_AT;
}

static inline bool
same_context(const ml_pack *state, const ml_event *event, unsigned class)
{
    return event->flags == state->flags[class] && event->thread == state->thread &&
           event->autograd_thread == state->autograd_thread &&
           event->stream == state->stream && event->pool[0] == state->pool[0] &&
           event->pool[1] == state->pool[1] && event->metadata == state->metadata;
}

static ML_RARE uint8_t *
put_context(ml_pack *state, const ml_event *event, unsigned class, uint8_t *to)
{
    unsigned mask = 0;
    uint8_t *head = to;
    to += 2;
    if (event->flags != state->flags[class]) {
        mask |= ML_PACK_CONTEXT_FLAGS;
        state->flags[class] = event->flags;
        *to++ = event->flags;
    }
    if (event->thread != state->thread) {
        bool wide = event->thread >> 16 != 0;
        mask |= wide ? ML_PACK_CONTEXT_THREAD_WIDE : ML_PACK_CONTEXT_THREAD;
        state->thread = event->thread;
        to = put_packed(to, event->thread, wide ? 4 : 2);
    }
    if (event->autograd_thread != state->autograd_thread) {
        mask |= ML_PACK_CONTEXT_AUTOGRAD;
        state->autograd_thread = event->autograd_thread;
        to = put_packed(to, event->autograd_thread, 2);
    }
    if (event->stream != state->stream) {
        bool back = event->stream == state->stream_before;
        mask |= back ? ML_PACK_CONTEXT_STREAM_BACK : ML_PACK_CONTEXT_STREAM;
        to = put_packed(to, event->stream, back ? 0 : 8);
        state->stream_before = state->stream;
        state->stream = event->stream;
    }
    if (event->pool[0] != state->pool[0] || event->pool[1] != state->pool[1]) {
        mask |= ML_PACK_CONTEXT_POOL;
        memcpy(state->pool, event->pool, sizeof(state->pool));
        memcpy(to, event->pool, sizeof(event->pool));
        to += 8;
    }
    if (event->metadata != state->metadata) {
        mask |= ML_PACK_CONTEXT_METADATA;
        state->metadata = event->metadata;
        to = put_packed(to, event->metadata, 4);
    }
    head[0] = (uint8_t)(ML_PACK_TAG_CONTEXT | class << 4);
    head[1] = (uint8_t)mask;
    return to;
}

static ML_RARE uint8_t *
put_next(ml_pack *state, const ml_event *event, uint8_t *to)
{
    uint8_t *head = to++;
    uint64_t field = ml_pack_fold_sign(event->next - state->next, 0);
    unsigned code = field == 0 ? 0 : field >> 8 == 0 ? 1 : field >> 16 == 0 ? 2 : 3;
    if (event->next - state->next == UINT64_C(1) << 63) {
        code = 3; /* the distance loses its highest bit */
    }
    to = put_packed(to, code == 3 ? event->next : field, ml_pack_next_bytes[code]);
    state->next = event->next;
    *head = (uint8_t)(ML_PACK_TAG_NEXT | code << ML_PACK_NEXT_CODE_AT);
    if (event->next_thread != state->next_thread) {
        *head |= ML_PACK_NEXT_THREAD;
        state->next_thread = event->next_thread;
        to = put_packed(to, event->next_thread, 2);
    }
    return to;
}

static uint8_t *
put_sparse(unsigned number, uint32_t value, uint8_t *to)
{
    for (; number >= ML_PACK_SPARSE_PAGE; number -= ML_PACK_SPARSE_PAGE) {
        *to = (uint8_t)(ML_PACK_TAG_SPARSE | 1u << 4);
        to = put_packed(to + 1, 0, 2);
    }
    unsigned code = 0u + (value >> 8 != 0) + (value >> 16 != 0) + (value >> 24 != 0);
    *to = (uint8_t)(ML_PACK_TAG_SPARSE | code << 4 | number << 6);
    return put_packed(to + 1, value, code + 1);
}

static ML_RARE uint8_t *
put_sparse_columns(const ml_event *event, uint8_t *to)
{
    unsigned above = 0; /* bit i: a column of a higher page with these low bits */
#define XX(member, number, text) \
    if (number >= ML_PACK_SPARSE_PAGE && event->member != 0) { \
        to = put_sparse(number, event->member, to); \
        above |= 1u << number % ML_PACK_SPARSE_PAGE; \
    }
    ML_SPARSE_COLUMNS(XX)
#undef XX
#define XX(member, number, text) \
    if (number < ML_PACK_SPARSE_PAGE && \
        (event->member != 0 || (above >> number % ML_PACK_SPARSE_PAGE & 1u) != 0)) { \
        to = put_sparse(number, event->member, to); \
    }
    ML_SPARSE_COLUMNS(XX)
#undef XX
    return to;
}

/* Whether EVENT is the free that STATE's event requested, completed. */
static inline bool
completes(const ml_pack *state, const ml_event *event)
{
    if (event->action != ML_ACTION_FREE_COMPLETED ||
        state->action != ML_ACTION_FREE_REQUESTED) {
        return false;
    }
    uint64_t sequence = state->sequence_max != 0 ? UINT64_MAX : state->sequence;
    return event->addr == state->addr && event->size == state->size &&
           event->block_bytes == state->block_bytes &&
           event->stack == state->stack[1] &&
           event->origin_stack == state->origin_stack[1] &&
           event->sequence == sequence && event->node == state->node;
}

static uint8_t *
put_completed(ml_pack *state, const ml_event *event, uint8_t *to)
{
    uint64_t passed = event->time - state->time;
    unsigned code = passed == 0 ? 0 : passed >> 8 == 0 ? 1 : passed >> 16 == 0 ? 2 : 3;
    *to = (uint8_t)(ML_PACK_TAG_COMPLETED | code << 4);
    state->time = event->time;
    state->action = ML_ACTION_FREE_COMPLETED;
    return put_packed(to + 1, passed, ml_pack_completed_time_bytes[code]);
}

static inline uint8_t *
put_event(ml_pack *state, const ml_event *event, unsigned action, unsigned class,
          uint8_t *to)
{
    uint8_t *head = to;
    uint32_t codes = action;
    to += ML_PACK_CODES_BYTES;
    uint64_t passed = event->time - state->time;
    unsigned time =
        passed >> 16 == 0 ? 0 : 1u + (passed >> 24 != 0) + (passed >> 32 != 0);
    codes |= time << ML_PACK_TIME_AT;
    to = put_packed(to, passed, ml_pack_time_bytes[time]);
    state->time = event->time;
    if (event->addr != state->addr) {
        codes |= put_addr(&to, event->addr, state->addr);
        state->addr = event->addr;
    }
    if (event->size != state->size) {
        codes |= put_size(&to, event->size);
        state->size = event->size;
    }
    if (event->stack != state->stack[class]) {
        codes |= put_stack(&to, event->stack, ML_PACK_STACK_AT);
        state->stack[class] = event->stack;
    }
    if (event->origin_stack != state->origin_stack[class]) {
        codes |= put_stack(&to, event->origin_stack, ML_PACK_ORIGIN_AT);
        state->origin_stack[class] = event->origin_stack;
    }
    if (event->block_bytes != ml_pack_rounded(event->size)) {
        codes |= put_block(&to, event->block_bytes, event->size);
    }
    state->block_bytes = event->block_bytes;
    state->sequence_max = 0;
    if (event->sequence != state->sequence) {
        codes |= put_sequence(&to, event->sequence, state->sequence);
        state->sequence_max = event->sequence == UINT64_MAX;
        state->sequence = state->sequence_max ? state->sequence : event->sequence;
    }
    if (event->node != state->node) {
        unsigned node = event->node == 0 ? 1 : event->node >> 16 == 0 ? 2 : 3;
        codes |= node << ML_PACK_NODE_AT;
        to = put_packed(to, event->node, ml_pack_node_bytes[node]);
        state->node = event->node;
    }
    state->action = (uint8_t)action;
    memcpy(head, &codes, ML_PACK_CODES_BYTES);
    return to;
}

size_t
ml_pack_event(ml_pack *state, const ml_event *event, uint8_t *to)
{
    const uint8_t *start = to;
    unsigned action =
        event->action < ML_ACTION_OTHER ? event->action : (unsigned)ML_ACTION_OTHER;
    unsigned class = ml_pack_class_of(action);
    if (!same_context(state, event, class)) {
        to = put_context(state, event, class, to);
    }
    if (event->next_thread != 0 || event->next != 0) {
        to = put_next(state, event, to);
    }
#define XX(member, number, text) | event->member
    if ((0 ML_SPARSE_COLUMNS(XX)) != 0) {
        to = put_sparse_columns(event, to);
    }
#undef XX
    to = completes(state, event) ? put_completed(state, event, to)
                                 : put_event(state, event, action, class, to);
    return (size_t)(to - start);
}

void
ml_pack_state(const ml_pack *state, uint8_t *to)
{
    to[0] = ML_PACK_TAG_STATE;
    memcpy(to + 1, state, ML_PACK_STATE_BYTES - 1);
}

void
ml_pack_other(unsigned kind, uint32_t length, uint8_t *to)
{
    to[0] = (uint8_t)(ML_PACK_TAG_OTHER | kind << 4);
    memcpy(to + 1, &length, sizeof(length));
}
