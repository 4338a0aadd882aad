/* The codec of one memory event.  See pack.h; docs/FORMAT.md specifies the bytes.
 *
 * A record begins with a tag, the low four bits of its first byte.  A tag up to
 * ML_ACTION_OTHER is an event of that action: 24 bits of codes, the tag among them, say
 * how each field was written, and the fields follow, whole bytes, least first.  A field
 * is stored as a whole word, which the next one overlaps, and not by a loop over bytes.
 *
 * What changes with the phase of a program rather than from event to event (thread,
 * stream, pool, ...) is the context, a record of its own before the event that needs
 * it.  So is what few events have: the number of the node that is made next where one
 * runs, and how long a block was not used. */
#include "file/codec/pack.h"

#include <stdbool.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "fields are stored as words, least byte first");
_Static_assert(ML_ACTION_COUNT <= 10, "tags from 10 on are not actions");

/* The event before, but completed: only its time differs. */
#define TAG_COMPLETED 10u
#define TAG_CONTEXT 11u
#define TAG_NEXT 12u
#define TAG_UNUSED 13u
#define TAG_OTHER 15u

/* Places of the codes in the three bytes of an event. */
#define TIME_AT 4
#define ADDR_AT 6
#define SIZE_AT 9
#define STACK_AT 12
#define ORIGIN_AT 14
#define BLOCK_AT 16
#define SEQUENCE_AT 19
#define NODE_AT 22
#define CODES_BYTES 3u

/* Bytes of a field by its code.  Where a second table follows, the value is counted in
 * units of 2^shift. */
static const uint8_t time_bytes[4] = {2, 3, 4, 8};
static const uint8_t completed_time_bytes[4] = {0, 1, 2, 8};
/* Distance to the address before; 0: none; 7: the address itself. */
static const uint8_t addr_bytes[8] = {0, 2, 3, 4, 3, 5, 6, 8};
static const uint8_t addr_shift[8] = {0, 9, 9, 9, 6, 6, 0, 0};
/* 0: as before. */
static const uint8_t size_bytes[8] = {0, 1, 2, 1, 2, 4, 3, 8};
static const uint8_t size_shift[8] = {0, 0, 0, 9, 9, 0, 9, 0};
/* 0: as in the last event of the class. */
static const uint8_t stack_bytes[4] = {0, 2, 3, 4};
/* 0: the size rounded; 1: zero; 2: the size; 7: itself; else what it has over the
 * rounded size, in units of 512 bytes. */
static const uint8_t block_bytes[8] = {0, 0, 0, 1, 2, 3, 4, 8};
/* 0: as before; 1: UINT64_MAX; 5: itself; else the distance. */
static const uint8_t sequence_bytes[8] = {0, 0, 1, 2, 4, 8, 0, 0};
/* Distance to the number before; 3: the number itself. */
static const uint8_t next_bytes[4] = {0, 1, 2, 8};
#define NEXT_CODE_AT 4
#define NEXT_THREAD 0x40u /* another thread than before follows the number */
#define NEXT_ALL 0x7fu
/* 0: as before; 1: none. */
static const uint8_t node_bytes[4] = {0, 0, 2, 4};

/* Bits of the second byte of a context: which fields follow, in this order.  The first
 * byte has the class of the flags above its tag. */
#define CONTEXT_FLAGS 0x01u
#define CONTEXT_THREAD 0x02u
#define CONTEXT_AUTOGRAD 0x04u
#define CONTEXT_STREAM 0x08u
#define CONTEXT_POOL 0x10u
#define CONTEXT_METADATA 0x20u
/* The stream before the last change is back: two that take turns cost little. */
#define CONTEXT_STREAM_BACK 0x40u
/* As CONTEXT_THREAD, in four bytes: programs that start threads without end get there. */
#define CONTEXT_THREAD_WIDE 0x80u

/* ---- What both sides derive ---- */

static inline unsigned
class_of(unsigned action)
{
    return ml_action_frees(action) ? 1u : 0u;
}

/* The block of SIZE requested bytes by the allocator's default rules.  Any function would
 * do as long as both sides use it. */
static inline uint64_t
rounded(uint64_t size)
{
    return size < 512 ? 512 : (size + 511) & ~UINT64_C(511);
}

/* Distances as magnitude and, in the lowest bit, sign: small ones of both are short. */
static inline uint64_t
fold_sign(uint64_t distance, unsigned shift)
{
    bool negative = distance >> 63 != 0;
    uint64_t magnitude = negative ? 0 - distance : distance;
    return (magnitude >> shift) << 1 | negative;
}

static inline uint64_t
unfold_sign(uint64_t folded, unsigned shift)
{
    uint64_t magnitude = (folded >> 1) << shift;
    return (folded & 1) != 0 ? 0 - magnitude : magnitude;
}

/* ---- Writing ---- */

static inline uint8_t *
put(uint8_t *to, uint64_t value, unsigned bytes)
{
    memcpy(to, &value, sizeof(value));
    return to + bytes;
}

/* Each of these writes a field that is not as its code 0 says, and returns its code where
 * it belongs among the codes. */

static inline uint32_t
put_addr(uint8_t **to, uint64_t addr, uint64_t before)
{
    uint64_t distance = addr - before;
    unsigned code = 7;
    uint64_t field = addr;
    uint64_t units = fold_sign(distance, 9);
    if ((distance & 511) == 0 && units >> 32 == 0) {
        code = 1u + (units >> 16 != 0) + (units >> 24 != 0);
        field = units;
    }
    else if ((distance & 63) == 0 && fold_sign(distance, 6) >> 40 == 0) {
        field = fold_sign(distance, 6);
        code = 4u + (field >> 24 != 0);
    }
    else if (fold_sign(distance, 0) >> 48 == 0 && units >> 39 == 0) {
        field = fold_sign(distance, 0);
        code = 6;
    }
    *to = put(*to, field, addr_bytes[code]);
    return code << ADDR_AT;
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
    *to = put(*to, size >> size_shift[code], size_bytes[code]);
    return code << SIZE_AT;
}

static inline uint32_t
put_stack(uint8_t **to, uint32_t stack, unsigned place)
{
    unsigned code = 1u + (stack >> 16 != 0) + (stack >> 24 != 0);
    *to = put(*to, stack, code + 1);
    return code << place;
}

static inline uint32_t
put_block(uint8_t **to, uint64_t block, uint64_t size)
{
    uint64_t over = block - rounded(size);
    uint64_t field = over >> 9;
    unsigned code = block == 0 ? 1 : block == size ? 2 : 7;
    if (code == 7 && (over & 511) == 0 && field >> 32 == 0) {
        code = 3u + (field >> 8 != 0) + (field >> 16 != 0) + (field >> 24 != 0);
    }
    *to = put(*to, code == 7 ? block : field, block_bytes[code]);
    return code << BLOCK_AT;
}

static inline uint32_t
put_sequence(uint8_t **to, uint64_t sequence, uint64_t before)
{
    if (sequence == UINT64_MAX) {
        return 1u << SEQUENCE_AT;
    }
    uint64_t field = fold_sign(sequence - before, 0);
    unsigned code = 2u + (field >> 8 != 0) + (field >> 16 != 0);
    /* A distance of 2^63 loses its highest bit. */
    if (field >> 32 != 0 || sequence - before == UINT64_C(1) << 63) {
        field = sequence;
        code = 5;
    }
    *to = put(*to, field, sequence_bytes[code]);
    return code << SEQUENCE_AT;
}

static inline bool
same_context(const ml_pack *state, const ml_event *event, unsigned class)
{
    return event->flags == state->flags[class] && event->thread == state->thread &&
           event->autograd_thread == state->autograd_thread &&
           event->stream == state->stream && event->pool[0] == state->pool[0] &&
           event->pool[1] == state->pool[1] && event->metadata == state->metadata;
}

static uint8_t *
put_context(ml_pack *state, const ml_event *event, unsigned class, uint8_t *to)
{
    unsigned mask = 0;
    uint8_t *head = to;
    to += 2;
    if (event->flags != state->flags[class]) {
        mask |= CONTEXT_FLAGS;
        state->flags[class] = event->flags;
        *to++ = event->flags;
    }
    if (event->thread != state->thread) {
        bool wide = event->thread >> 16 != 0;
        mask |= wide ? CONTEXT_THREAD_WIDE : CONTEXT_THREAD;
        state->thread = event->thread;
        to = put(to, event->thread, wide ? 4 : 2);
    }
    if (event->autograd_thread != state->autograd_thread) {
        mask |= CONTEXT_AUTOGRAD;
        state->autograd_thread = event->autograd_thread;
        to = put(to, event->autograd_thread, 2);
    }
    if (event->stream != state->stream) {
        bool back = event->stream == state->stream_before;
        mask |= back ? CONTEXT_STREAM_BACK : CONTEXT_STREAM;
        to = put(to, event->stream, back ? 0 : 8);
        state->stream_before = state->stream;
        state->stream = event->stream;
    }
    if (event->pool[0] != state->pool[0] || event->pool[1] != state->pool[1]) {
        mask |= CONTEXT_POOL;
        memcpy(state->pool, event->pool, sizeof(state->pool));
        memcpy(to, event->pool, sizeof(event->pool));
        to += 8;
    }
    if (event->metadata != state->metadata) {
        mask |= CONTEXT_METADATA;
        state->metadata = event->metadata;
        to = put(to, event->metadata, 4);
    }
    head[0] = (uint8_t)(TAG_CONTEXT | class << 4);
    head[1] = (uint8_t)mask;
    return to;
}

static uint8_t *
put_next(ml_pack *state, const ml_event *event, uint8_t *to)
{
    uint8_t *head = to++;
    uint64_t field = fold_sign(event->next - state->next, 0);
    unsigned code = field == 0 ? 0 : field >> 8 == 0 ? 1 : field >> 16 == 0 ? 2 : 3;
    if (event->next - state->next == UINT64_C(1) << 63) {
        code = 3; /* the distance loses its highest bit */
    }
    to = put(to, code == 3 ? event->next : field, next_bytes[code]);
    state->next = event->next;
    *head = (uint8_t)(TAG_NEXT | code << NEXT_CODE_AT);
    if (event->next_thread != state->next_thread) {
        *head |= NEXT_THREAD;
        state->next_thread = event->next_thread;
        to = put(to, event->next_thread, 2);
    }
    return to;
}

static uint8_t *
put_unused(const ml_event *event, uint8_t *to)
{
    unsigned code = 0u + (event->unused >> 8 != 0) + (event->unused >> 16 != 0) +
                    (event->unused >> 24 != 0);
    *to = (uint8_t)(TAG_UNUSED | code << 4);
    return put(to + 1, event->unused, code + 1);
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
    *to = (uint8_t)(TAG_COMPLETED | code << 4);
    state->time = event->time;
    state->action = ML_ACTION_FREE_COMPLETED;
    return put(to + 1, passed, completed_time_bytes[code]);
}

static inline uint8_t *
put_event(ml_pack *state, const ml_event *event, unsigned action, unsigned class,
          uint8_t *to)
{
    uint8_t *head = to;
    uint32_t codes = action;
    to += CODES_BYTES;
    uint64_t passed = event->time - state->time;
    unsigned time =
        passed >> 16 == 0 ? 0 : 1u + (passed >> 24 != 0) + (passed >> 32 != 0);
    codes |= time << TIME_AT;
    to = put(to, passed, time_bytes[time]);
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
        codes |= put_stack(&to, event->stack, STACK_AT);
        state->stack[class] = event->stack;
    }
    if (event->origin_stack != state->origin_stack[class]) {
        codes |= put_stack(&to, event->origin_stack, ORIGIN_AT);
        state->origin_stack[class] = event->origin_stack;
    }
    if (event->block_bytes != rounded(event->size)) {
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
        codes |= node << NODE_AT;
        to = put(to, event->node, node_bytes[node]);
        state->node = event->node;
    }
    state->action = (uint8_t)action;
    memcpy(head, &codes, CODES_BYTES);
    return to;
}

size_t
ml_pack_event(ml_pack *state, const ml_event *event, uint8_t *to)
{
    const uint8_t *start = to;
    unsigned action =
        event->action < ML_ACTION_OTHER ? event->action : (unsigned)ML_ACTION_OTHER;
    unsigned class = class_of(action);
    if (!same_context(state, event, class)) {
        to = put_context(state, event, class, to);
    }
    if (event->next_thread != 0 || event->next != 0) {
        to = put_next(state, event, to);
    }
    if (event->unused != 0) {
        to = put_unused(event, to);
    }
    to = completes(state, event) ? put_completed(state, event, to)
                                 : put_event(state, event, action, class, to);
    return (size_t)(to - start);
}

void
ml_pack_other(unsigned kind, uint32_t length, uint8_t *to)
{
    to[0] = (uint8_t)(TAG_OTHER | kind << 4);
    memcpy(to + 1, &length, sizeof(length));
}

/* ---- Reading ---- */

/* A field of BYTES, which are there. */
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

#define STREAMS (CONTEXT_STREAM | CONTEXT_STREAM_BACK)
#define THREADS (CONTEXT_THREAD | CONTEXT_THREAD_WIDE)

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
    ptrdiff_t bytes = 2 + ((mask & CONTEXT_FLAGS) != 0 ? 1 : 0) +
                      ((mask & CONTEXT_THREAD) != 0 ? 2 : 0) +
                      ((mask & CONTEXT_THREAD_WIDE) != 0 ? 4 : 0) +
                      ((mask & CONTEXT_AUTOGRAD) != 0 ? 2 : 0) +
                      ((mask & CONTEXT_STREAM) != 0 ? 8 : 0) +
                      ((mask & CONTEXT_POOL) != 0 ? 8 : 0) +
                      ((mask & CONTEXT_METADATA) != 0 ? 4 : 0);
    if (end - from < bytes) {
        return ML_EFORMAT;
    }
    from += 2;
    if ((mask & CONTEXT_FLAGS) != 0) {
        state->flags[class] = (uint8_t)get(&from, end, 1);
    }
    if ((mask & THREADS) != 0) {
        state->thread =
            (uint32_t)get(&from, end, (mask & CONTEXT_THREAD_WIDE) != 0 ? 4 : 2);
    }
    if ((mask & CONTEXT_AUTOGRAD) != 0) {
        state->autograd_thread = (uint16_t)get(&from, end, 2);
    }
    if ((mask & STREAMS) != 0) {
        uint64_t stream = (mask & CONTEXT_STREAM_BACK) != 0 ? state->stream_before
                                                            : get(&from, end, 8);
        state->stream_before = state->stream;
        state->stream = stream;
    }
    if ((mask & CONTEXT_POOL) != 0) {
        state->pool[0] = (uint32_t)get(&from, end, 4);
        state->pool[1] = (uint32_t)get(&from, end, 4);
    }
    if ((mask & CONTEXT_METADATA) != 0) {
        state->metadata = (uint32_t)get(&from, end, 4);
    }
    *at = from;
    return 0;
}

static int
get_next(ml_pack *state, const uint8_t **at, const uint8_t *end)
{
    const uint8_t *from = *at;
    unsigned code = from[0] >> NEXT_CODE_AT & 3u;
    bool thread = (from[0] & NEXT_THREAD) != 0;
    if ((from[0] & ~NEXT_ALL) != 0 ||
        end - from < 1 + (ptrdiff_t)next_bytes[code] + (thread ? 2 : 0)) {
        return ML_EFORMAT;
    }
    from++;
    uint64_t field = get(&from, end, next_bytes[code]);
    state->next = code == 3 ? field : state->next + unfold_sign(field, 0);
    if (thread) {
        state->next_thread = (uint16_t)get(&from, end, 2);
    }
    *at = from;
    return 0;
}

static int
get_unused(const uint8_t **at, const uint8_t *end, uint32_t *unused)
{
    const uint8_t *from = *at;
    unsigned code = from[0] >> 4;
    if (code > 3 || end - from < 2 + (ptrdiff_t)code) {
        return ML_EFORMAT;
    }
    from++;
    *unused = (uint32_t)get(&from, end, code + 1);
    *at = from;
    return 0;
}

static void
show_event(const ml_pack *state, ml_event *event)
{
    unsigned class = class_of(state->action);
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
    if (code > 3 || end - *at < 1 + (ptrdiff_t)completed_time_bytes[code] ||
        state->action != ML_ACTION_FREE_REQUESTED) {
        return ML_EFORMAT;
    }
    (*at)++;
    state->time += get(at, end, completed_time_bytes[code]);
    state->action = ML_ACTION_FREE_COMPLETED;
    return 0;
}

static uint64_t
block_of(unsigned code, uint64_t field, uint64_t size)
{
    return code == 0   ? rounded(size)
           : code == 1 ? 0
           : code == 2 ? size
           : code == 7 ? field
                       : rounded(size) + (field << 9);
}

static void
get_sequence(ml_pack *state, unsigned code, uint64_t field)
{
    state->sequence_max = code == 1;
    if (code == 5) {
        state->sequence = field;
    }
    else if (code > 1) {
        state->sequence += unfold_sign(field, 0);
    }
}

static int
get_event(ml_pack *state, const uint8_t **at, const uint8_t *end)
{
    const uint8_t *from = *at;
    if (end - from < (ptrdiff_t)CODES_BYTES) {
        return ML_EFORMAT;
    }
    unsigned codes = (unsigned)get(&from, end, CODES_BYTES);
    unsigned action = codes & 15u;
    unsigned class = class_of(action);
    unsigned time = codes >> TIME_AT & 3u, addr = codes >> ADDR_AT & 7u;
    unsigned size = codes >> SIZE_AT & 7u, stack = codes >> STACK_AT & 3u;
    unsigned origin = codes >> ORIGIN_AT & 3u, block = codes >> BLOCK_AT & 7u;
    unsigned sequence = codes >> SEQUENCE_AT & 7u, node = codes >> NODE_AT & 3u;
    ptrdiff_t bytes = time_bytes[time] + addr_bytes[addr] + size_bytes[size] +
                      stack_bytes[stack] + stack_bytes[origin] + block_bytes[block] +
                      sequence_bytes[sequence] + node_bytes[node];
    if (end - from < bytes || sequence > 5) {
        return ML_EFORMAT;
    }
    state->action = (uint8_t)action;
    state->time += get(&from, end, time_bytes[time]);
    uint64_t field = get(&from, end, addr_bytes[addr]);
    state->addr =
        addr == 7 ? field : state->addr + unfold_sign(field, addr_shift[addr]);
    field = get(&from, end, size_bytes[size]);
    state->size = size == 0 ? state->size : field << size_shift[size];
    field = get(&from, end, stack_bytes[stack]);
    state->stack[class] = stack == 0 ? state->stack[class] : (uint32_t)field;
    field = get(&from, end, stack_bytes[origin]);
    state->origin_stack[class] =
        origin == 0 ? state->origin_stack[class] : (uint32_t)field;
    field = get(&from, end, block_bytes[block]);
    state->block_bytes = block_of(block, field, state->size);
    field = get(&from, end, sequence_bytes[sequence]);
    get_sequence(state, sequence, field);
    field = get(&from, end, node_bytes[node]);
    state->node = node == 0 ? state->node : (uint32_t)field;
    *at = from;
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
    /* These come right before their event: what is committed never ends with one. */
    if (from < end && (*from & 15u) == TAG_CONTEXT &&
        get_context(state, &from, end) < 0) {
        return ML_EFORMAT;
    }
    bool next = from < end && (*from & 15u) == TAG_NEXT;
    if (next && get_next(state, &from, end) < 0) {
        return ML_EFORMAT;
    }
    uint32_t unused = 0;
    if (from < end && (*from & 15u) == TAG_UNUSED &&
        get_unused(&from, end, &unused) < 0) {
        return ML_EFORMAT;
    }
    bool begun = from != *at;
    if (from >= end) {
        return begun ? ML_EFORMAT : ML_PACKED_END;
    }
    unsigned tag = *from & 15u;
    int result = ML_EFORMAT;
    if (tag == TAG_OTHER && !begun) {
        return get_other(at, end, other);
    }
    if (tag == TAG_COMPLETED) {
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
    event->unused = unused;
    *at = from;
    return ML_PACKED_EVENT;
}
