/* The codec: every event comes back as it was, whatever its values; hostile bytes are
 * refused; a trace like a training step's is small. */
#include <stdbool.h>
#include <stdlib.h>

#include "file/codec/pack.h"
#include "test.h"

static uint64_t random_state;

static uint64_t
random_u64(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * UINT64_C(0x2545f4914f6cdd1d);
}

static uint64_t
random_below(uint64_t limit)
{
    return random_u64() % limit;
}

/* Values at which a code ends and the next one begins, and their neighbours. */
static uint64_t
hostile_u64(void)
{
    uint64_t value = UINT64_C(1) << random_below(64);
    switch (random_below(8)) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX - random_below(3);
    case 2:
        return random_u64();
    case 3:
        return random_u64() >> random_below(64);
    case 4:
        return value << 9 | random_below(512);
    case 5:
        return (value + random_below(3) - 1) << 6;
    case 6:
        return (value + random_below(3) - 1) << 9;
    default:
        return value + random_below(3) - 1;
    }
}

static int
same_event(const ml_event *a, const ml_event *b)
{
    return a->addr == b->addr && a->size == b->size && a->time == b->time &&
           a->block_bytes == b->block_bytes && a->stream == b->stream &&
           a->sequence == b->sequence && a->stack == b->stack &&
           a->origin_stack == b->origin_stack && a->pool[0] == b->pool[0] &&
           a->pool[1] == b->pool[1] && a->metadata == b->metadata &&
           a->node == b->node && a->thread == b->thread &&
           a->autograd_thread == b->autograd_thread && a->next == b->next &&
           a->next_thread == b->next_thread && a->action == b->action &&
#define XX(member, number, text) a->member == b->member &&
           ML_SPARSE_COLUMNS(XX)
#undef XX
                   a->flags == b->flags;
}

/* The next event of a run in which each field changes or not, near or far. */
static ml_event
hostile_event(const ml_event *before)
{
    ml_event event = *before;
    uint64_t changed = random_u64() & random_u64();
    if (random_below(8) == 0) {
        changed = UINT64_MAX;
    }
#define CHANGE(bit, field, type) \
    if ((changed >> (bit)&1) != 0) { \
        uint64_t near = before->field + (random_u64() >> (1 + random_below(63))) - \
                        (random_u64() >> (1 + random_below(63))); \
        event.field = (type)(random_below(2) == 0 ? hostile_u64() : near); \
    }
    CHANGE(0, addr, uint64_t)
    CHANGE(1, size, uint64_t)
    CHANGE(2, time, uint64_t)
    CHANGE(3, block_bytes, uint64_t)
    CHANGE(4, stream, uint64_t)
    CHANGE(5, sequence, uint64_t)
    CHANGE(6, stack, uint32_t)
    CHANGE(7, origin_stack, uint32_t)
    CHANGE(8, pool[0], uint32_t)
    CHANGE(9, pool[1], uint32_t)
    CHANGE(10, metadata, uint32_t)
    CHANGE(11, node, uint32_t)
    CHANGE(12, thread, uint32_t)
    CHANGE(13, autograd_thread, uint16_t)
    CHANGE(14, flags, uint8_t)
    CHANGE(15, next, uint64_t)
    CHANGE(16, next_thread, uint16_t)
    if ((changed >> 17 & 1) != 0) {
        event.next = 0;
        event.next_thread = 0;
    }
#define XX(member, number, text) \
    event.member = 0; \
    CHANGE(18 + (number), member, uint32_t)
    ML_SPARSE_COLUMNS(XX)
#undef XX
#undef CHANGE
    event.action = (uint8_t)random_below(ML_ACTION_COUNT);
    if (random_below(4) == 0) {
        event.block_bytes = event.size < 512 ? 512 : (event.size + 511) / 512 * 512;
    }
    if (before->action == ML_ACTION_FREE_REQUESTED && random_below(2) == 0) {
        event = *before;
        event.action = ML_ACTION_FREE_COMPLETED;
        event.time += hostile_u64() >> random_below(64);
        if (random_below(8) == 0) {
            event.stream++;
        }
    }
    return event;
}

#define RUN_EVENTS 64

/* Packs and reads back one run of SEED; the bytes it took, or 0 where it differs. */
static size_t
round_trip(uint64_t seed, uint8_t *bytes)
{
    ml_event events[RUN_EVENTS];
    ml_event before = {.addr = 0};
    ml_pack writer = {.time = 0};
    ml_pack reader = {.time = 0};
    uint8_t *to = bytes;
    random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < RUN_EVENTS; i++) {
        events[i] = hostile_event(&before);
        before = events[i];
        size_t length = ml_pack_event(&writer, &events[i], to);
        if (length == 0 || length > ML_PACK_ROOM - 8) {
            return 0;
        }
        to += length;
    }
    const uint8_t *at = bytes;
    ml_packed_other other;
    for (size_t i = 0; i < RUN_EVENTS; i++) {
        ml_event event;
        if (ml_unpack(&reader, &at, to, &event, &other) != ML_PACKED_EVENT ||
            !same_event(&event, &events[i])) {
            return 0;
        }
    }
    ml_event event;
    return ml_unpack(&reader, &at, to, &event, &other) == ML_PACKED_END
               ? (size_t)(to - bytes)
               : 0;
}

static uint8_t packed[RUN_EVENTS * ML_PACK_ROOM];

static void
test_every_event_comes_back(void)
{
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        if (round_trip(seed, packed) == 0) {
            CHECK_FAIL("a run of events does not come back, seed %llu",
                       (unsigned long long)seed);
        }
    }
}

static void
test_limits_by_name(void)
{
    static const uint64_t values[] = {0,
                                      1,
                                      INT64_MAX,
                                      UINT64_C(1) << 63,
                                      (UINT64_C(1) << 63) + 512,
                                      UINT64_MAX,
                                      UINT64_MAX - 511,
                                      UINT64_MAX - 512};
    enum {
        COUNT = sizeof(values) / sizeof(values[0])
    };
    for (size_t i = 0; i < COUNT * COUNT; i++) {
        uint64_t a = values[i / COUNT], b = values[i % COUNT];
        ml_event events[2] = {{.addr = a, .size = a, .time = a, .block_bytes = b},
                              {.addr = b, .size = b, .time = b, .block_bytes = a}};
        events[0].sequence = a;
        events[1].sequence = b;
        events[1].stack = UINT32_MAX;
        ml_pack writer = {.time = 0};
        ml_pack reader = {.time = 0};
        size_t first = ml_pack_event(&writer, &events[0], packed);
        size_t second = ml_pack_event(&writer, &events[1], packed + first);
        const uint8_t *at = packed;
        ml_event event;
        ml_packed_other other;
        for (size_t j = 0; j < 2; j++) {
            CHECK_INT(ml_unpack(&reader, &at, packed + first + second, &event, &other),
                      ML_PACKED_EVENT);
            CHECK(same_event(&event, &events[j]));
        }
    }
}

/* An action of the future. */
static void
test_what_is_not_kept(void)
{
    ml_event event = {.addr = 1, .action = 200, .flags = 0xff};
    ml_event back;
    ml_pack writer = {.time = 0};
    ml_pack reader = {.time = 0};
    size_t length = ml_pack_event(&writer, &event, packed);
    const uint8_t *at = packed;
    ml_packed_other other;
    CHECK_INT(ml_unpack(&reader, &at, packed + length, &back, &other), ML_PACKED_EVENT);
    CHECK_INT(back.action, ML_ACTION_OTHER);
    CHECK_INT(back.flags, 0xff);
}

/* A copy that ends where memory does, so that the sanitizer sees a byte read too many. */
static int
read_all(const uint8_t *bytes, size_t length, size_t *events)
{
    uint8_t *copy = malloc(length + 1);
    if (copy == NULL) {
        return ML_ENOMEM;
    }
    uint8_t *start = copy + 1;
    memcpy(start, bytes, length);
    ml_pack reader = {.time = 0};
    const uint8_t *at = start;
    ml_event event;
    ml_packed_other other;
    int result;
    *events = 0;
    while ((result = ml_unpack(&reader, &at, start + length, &event, &other)) > 0) {
        *events += result == ML_PACKED_EVENT;
    }
    free(copy);
    return result;
}

static void
test_cut_and_broken_bytes_are_refused(void)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        size_t length = round_trip(seed, packed);
        size_t events = 0, whole = 0;
        for (size_t cut = 0; cut <= length; cut++) {
            int result = read_all(packed, cut, &events);
            /* At the end of a record reading ends well: as often as there are records. */
            CHECK(result == 0 || result == ML_EFORMAT);
            whole += result == 0;
        }
        CHECK_INT(whole, RUN_EVENTS + 1);
        CHECK_INT(events, RUN_EVENTS);
        random_state = seed;
        for (int i = 0; i < 2000; i++) {
            uint8_t broken[sizeof(packed)];
            memcpy(broken, packed, length);
            for (int j = 0; j < 4; j++) {
                broken[random_below(length)] = (uint8_t)random_u64();
            }
            int result = read_all(broken, length, &events);
            CHECK(result == 0 || result == ML_EFORMAT);
        }
    }
}

/* A reader that begins anywhere in a run, behind the state of there, reads the rest of it. */
static void
test_a_run_is_read_from_a_state_on(void)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        ml_event events[RUN_EVENTS];
        ml_event before = {.addr = 0};
        ml_pack writer = {.time = 0};
        /* A reader of another run until then. */
        ml_pack reader = {.time = seed, .node = 7, .flags = {1, 2}};
        const uint8_t *at = packed;
        uint8_t *to = packed;
        random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
        size_t from = random_below(RUN_EVENTS);
        for (size_t i = 0; i < RUN_EVENTS; i++) {
            before = events[i] = hostile_event(&before);
            if (i == from) {
                to = packed;
                ml_pack_state(&writer, to);
                to += ML_PACK_STATE_BYTES;
            }
            to += ml_pack_event(&writer, &events[i], to);
        }
        ml_event event;
        ml_packed_other other;
        for (size_t i = from; i < RUN_EVENTS; i++) {
            CHECK_INT(ml_unpack(&reader, &at, to, &event, &other), ML_PACKED_EVENT);
            CHECK(same_event(&event, &events[i]));
        }
        CHECK_INT(ml_unpack(&reader, &at, to, &event, &other), ML_PACKED_END);
    }
}

static void
test_states_that_make_no_sense_are_refused(void)
{
    const ml_pack state = {.time = 1, .action = ML_ACTION_OTHER, .sequence_max = 1};
    size_t events;
    ml_pack_state(&state, packed);
    CHECK_INT(read_all(packed, ML_PACK_STATE_BYTES, &events), 0);
    for (size_t cut = 1; cut < ML_PACK_STATE_BYTES; cut++) {
        CHECK_INT(read_all(packed, cut, &events), ML_EFORMAT);
    }
    packed[0] |= 0x10;
    CHECK_INT(read_all(packed, ML_PACK_STATE_BYTES, &events), ML_EFORMAT);
    ml_pack_state(&state, packed);
    packed[ML_PACK_STATE_BYTES - 2] = ML_ACTION_COUNT;
    CHECK_INT(read_all(packed, ML_PACK_STATE_BYTES, &events), ML_EFORMAT);
    ml_pack_state(&state, packed);
    packed[ML_PACK_STATE_BYTES - 1] = 2;
    CHECK_INT(read_all(packed, ML_PACK_STATE_BYTES, &events), ML_EFORMAT);
    /* Nothing is taken of what is refused, and a state alone is no event. */
    ml_pack reader = {.time = 0};
    ml_event event;
    ml_packed_other other;
    const uint8_t *at = packed;
    CHECK_INT(ml_unpack(&reader, &at, packed + ML_PACK_STATE_BYTES, &event, &other),
              ML_EFORMAT);
    CHECK_PTR(at, packed);
    CHECK_UINT(reader.time, 0);
    ml_pack_state(&state, packed);
    CHECK_INT(ml_unpack(&reader, &at, packed + ML_PACK_STATE_BYTES, &event, &other),
              ML_PACKED_END);
    CHECK_PTR(at, packed + ML_PACK_STATE_BYTES);
    CHECK_UINT(reader.time, 1);
    /* None stands between an event and its context. */
    uint8_t *to = packed;
    ml_event far = {.thread = 9};
    ml_pack writer = {.time = 0};
    size_t whole = ml_pack_event(&writer, &far, to);
    uint8_t record[ML_PACK_ROOM];
    memcpy(record, packed, whole);
    memcpy(to, record, 4);
    ml_pack_state(&state, to + 4);
    memcpy(to + 4 + ML_PACK_STATE_BYTES, record + 4, whole - 4);
    CHECK_INT(read_all(packed, whole + ML_PACK_STATE_BYTES, &events), ML_EFORMAT);
    CHECK_UINT(events, 0);
}

/* A thread's number takes the room that it needs, and comes back whole. */
static void
test_numbers_of_threads(void)
{
    static const struct {
        uint32_t thread;
        size_t more; /* bytes than an event of the thread before */
    } cases[] = {{1, 4}, {65535, 4}, {65536, 6}, {65537, 6}, {UINT32_MAX, 6}, {1, 4}};
    ml_pack writer = {.time = 0};
    ml_pack reader = {.time = 0};
    uint8_t *to = packed;
    const uint8_t *at = packed;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ml_event event = {.thread = cases[i].thread, .block_bytes = 512};
        size_t changed = ml_pack_event(&writer, &event, to);
        size_t same = ml_pack_event(&writer, &event, to + changed);
        CHECK_UINT(changed - same, cases[i].more);
        to += changed + same;
        for (int k = 0; k < 2; k++) {
            ml_event back = {0};
            ml_packed_other other;
            CHECK_INT(ml_unpack(&reader, &at, to, &back, &other), ML_PACKED_EVENT);
            CHECK_UINT(back.thread, cases[i].thread);
        }
    }
    /* Both widths at once make no sense. */
    ml_event event = {.thread = 70000};
    size_t length = ml_pack_event(&writer, &event, packed);
    packed[1] |= 2;
    size_t events;
    CHECK_INT(read_all(packed, length, &events), ML_EFORMAT);
}

/* Of a sparse column that comes twice the last one counts, and the others stay. */
static void
test_repeated_sparse_columns(void)
{
    ml_event event = {.addr = 512,
                      .unused = 300,
                      .compiled = 0x04030201,
                      .action = ML_ACTION_FREE_REQUESTED};
    ml_event without = event;
    without.compiled = 0;
    uint8_t bytes[2 * ML_PACK_ROOM] = {13 | 3 << 6, 7, 13 | 3 << 4 | 3 << 6, 1, 2,
                                       3,           4};
    ml_pack writer = {.time = 0};
    ml_pack reader = {.time = 0};
    size_t length = 7 + ml_pack_event(&writer, &without, bytes + 7);
    const uint8_t *at = bytes;
    ml_event back;
    ml_packed_other other;
    CHECK_INT(ml_unpack(&reader, &at, bytes + length, &back, &other), ML_PACKED_EVENT);
    CHECK(same_event(&back, &event));
    CHECK_PTR(at, bytes + length);
    size_t events;
    CHECK_INT(read_all(bytes, 2, &events), ML_EFORMAT); /* of no event */
    CHECK_INT(read_all(bytes + 2, 4, &events), ML_EFORMAT);
}

/* Two columns that this version lacks, numbers 5 and 10: it reads its own columns right,
 * and so do readers that know of no number above 3, for which the last value counts. */
static void
test_unknown_sparse_columns(void)
{
    ml_event event = {
        .addr = 512, .unused = 300, .other = 9, .action = ML_ACTION_FREE_REQUESTED};
    uint8_t bytes[2 * ML_PACK_ROOM] = {13 | 1 << 4, 0,  0, 13 | 1 << 6, 77, /* 5 */
                                       13 | 1 << 4, 0,  0, 13 | 1 << 4, 0,  0,
                                       13 | 2 << 6, 66, /* 10 */
                                       13 | 1 << 6, 0}; /* 1 */
    ml_pack writer = {.time = 0};
    ml_pack reader = {.time = 0};
    size_t length = 15 + ml_pack_event(&writer, &event, bytes + 15);
    const uint8_t *at = bytes;
    ml_event back;
    ml_packed_other other;
    CHECK_INT(ml_unpack(&reader, &at, bytes + length, &back, &other), ML_PACKED_EVENT);
    CHECK(same_event(&back, &event));
    CHECK_PTR(at, bytes + length);
    CHECK_INT(reader.skipped, 2);
}

static void
test_other_records(void)
{
    ml_pack writer = {.time = 0};
    ml_pack reader = {.time = 0};
    ml_event event = {.addr = 512, .action = ML_ACTION_ALLOC};
    uint8_t *to = packed;
    ml_pack_other(15, 3, to);
    memcpy(to + ML_PACK_OTHER_HEADER, "abc", 3);
    to += ML_PACK_OTHER_HEADER + 3;
    to += ml_pack_event(&writer, &event, to);
    const uint8_t *at = packed;
    ml_packed_other other;
    ml_event back;
    CHECK_INT(ml_unpack(&reader, &at, to, &back, &other), ML_PACKED_OTHER);
    CHECK_INT(other.kind, 15);
    CHECK_TEXT((const char *)other.bytes, other.length, "abc");
    CHECK_INT(ml_unpack(&reader, &at, to, &back, &other), ML_PACKED_EVENT);
    CHECK(same_event(&back, &event));
    at = packed;
    CHECK_INT(ml_unpack(&reader, &at, packed + 7, &back, &other), ML_EFORMAT);
    CHECK_PTR(at, packed);
}

#define LIVE 400

/* One training step after another: blocks of weights' and activations' sizes, each free
 * of an earlier one completed at once, backward on a second thread with nodes, from some
 * hundred stacks.  The mean bytes of an event. */
static double
training_bytes(uint64_t seed)
{
    static uint8_t bytes[ML_PACK_ROOM];
    ml_event live[LIVE];
    ml_pack writer = {.time = 0};
    size_t total = 0, events = 0, count = 0;
    uint64_t time = UINT64_C(1) << 50, sequence = 100000;
    random_state = seed;
    for (int i = 0; i < 100000; i++) {
        bool backward = i / 1000 % 2 != 0;
        time += 2000 + random_below(60000);
        ml_event event = {.time = time,
                          .thread = backward ? 2 : 1,
                          .autograd_thread = 1,
                          .flags = ML_EVENT_BLOCK_KNOWN | ML_EVENT_POOL_KNOWN |
                                   ML_EVENT_CONTEXT};
        sequence += backward ? 0 - random_below(3) : random_below(3);
        event.sequence = backward && random_below(4) == 0 ? UINT64_MAX : sequence;
        event.node = backward ? 1 + (uint32_t)random_below(40) : 0;
        event.flags |= backward ? ML_EVENT_BACKWARD | ML_EVENT_NO_PYTHON : 0;
        event.stack = backward ? 0 : 300 + (uint32_t)random_below(2000);
        if (count < LIVE && random_below(2) == 0) {
            uint64_t size = (random_below(64) + 1) << random_below(18);
            event.addr =
                (UINT64_C(0x7f) << 40) + random_below(UINT64_C(24) << 21) * 512;
            event.size = size * 4;
            event.block_bytes = size * 4 < 512 ? 512 : (size * 4 + 511) / 512 * 512;
            live[count++] = event;
            total += ml_pack_event(&writer, &event, bytes);
            events++;
        }
        else if (count > 0) {
            size_t which = random_below(count);
            event.addr = live[which].addr;
            event.size = live[which].size;
            event.block_bytes = live[which].block_bytes;
            event.origin_stack = live[which].stack;
            live[which] = live[--count];
            event.action = ML_ACTION_FREE_REQUESTED;
            total += ml_pack_event(&writer, &event, bytes);
            event.action = ML_ACTION_FREE_COMPLETED;
            event.time += 400;
            total += ml_pack_event(&writer, &event, bytes);
            events += 2;
        }
    }
    return (double)total / (double)events;
}

static void
test_a_training_step_is_small(void)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        double mean = training_bytes(seed);
        if (mean > 16) {
            CHECK_FAIL("%.2f bytes an event, seed %llu", mean,
                       (unsigned long long)seed);
        }
    }
}

int
main(void)
{
    RUN_LONG_IN_ONE_THREAD(test_every_event_comes_back);
    RUN(test_limits_by_name);
    RUN(test_what_is_not_kept);
    RUN_LONG_IN_ONE_THREAD(test_cut_and_broken_bytes_are_refused);
    RUN(test_a_run_is_read_from_a_state_on);
    RUN(test_states_that_make_no_sense_are_refused);
    RUN(test_numbers_of_threads);
    RUN(test_repeated_sparse_columns);
    RUN(test_unknown_sparse_columns);
    RUN(test_other_records);
    RUN_LONG_IN_ONE_THREAD(test_a_training_step_is_small);
    return TEST_RESULT();
}
