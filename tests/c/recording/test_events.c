/* The events of a device, packed: what is read is what was packed. */
#include "recording/events.h"

#include <stdlib.h>

#include "base/base.h"
#include "budget.h"
#include "test.h"

#define COUNT (3 * ML_EVENTS_CHUNK + 17)

static uint64_t state;

static uint64_t
next_random(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ml_hash_u64(state);
}

/* Up to BITS bits, above a base and shifted. */
static uint64_t
random_of(unsigned bits, unsigned shift, uint64_t base)
{
    return base + (bits == 0 ? 0 : next_random() >> (64 - bits) << shift);
}

/* Every member has values of up to BITS bits, as far as its type has room. */
static void
make(ml_event *events, size_t count, unsigned bits)
{
    memset(events, 0, count * sizeof(*events));
    for (size_t i = 0; i < count; i++) {
        unsigned shift = bits < 40 ? 9 : 0;
#define XX(name, member, type) \
    events[i].member = (type)random_of(bits, sizeof(type) == 8 ? shift : 0, \
                                       bits < 60 ? UINT64_C(3) << 50 | 7 : 0);
        ML_EVENT_MEMBERS(XX)
#undef XX
    }
}

static bool
same(const ml_event *a, const ml_event *b)
{
#define XX(name, member, type) \
    if (a->member != b->member) { \
        return false; \
    }
    ML_EVENT_MEMBERS(XX)
#undef XX
    return true;
}

static ml_events
packed(const ml_event *events, size_t count)
{
    ml_events result = {.plain = ml_alloc((count + 1) * sizeof(*events))};
    if (result.plain != NULL) {
        memcpy(result.plain, events, count * sizeof(*events));
        ml_events_pack(&result, count);
    }
    return result;
}

/* The rest of its chunk lies behind event I. */
static bool
left_behind(const ml_event_cursor *cursor, size_t i, size_t count)
{
    size_t end = (i / ML_EVENTS_CHUNK + 1) * ML_EVENTS_CHUNK;
    return ml_event_cursor_left(cursor, i, count) == (end < count ? end : count) - i;
}

/* By index, forwards, backwards, and as an array again. */
static bool
holds(ml_events *events, const ml_event *all, size_t count)
{
    bool right = events->plain == NULL;
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, events, ML_EVENT_ALL);
    for (size_t i = 0; i < count; i++) {
        ml_event event = ml_events_at(events, i);
        right = right && same(&event, &all[i]) &&
                same(ml_event_cursor_at(&cursor, i), &all[i]) &&
                left_behind(&cursor, i, count) &&
                ml_events_addr(events, i) == all[i].addr &&
                ml_events_unused(events, i) == all[i].unused &&
                ml_events_flags(events, i) == all[i].flags;
    }
    for (size_t i = count; i-- > 0;) {
        right = right && same(ml_event_cursor_at(&cursor, i), &all[i]);
    }
    ml_event *copy = ml_events_copy(events, count);
    for (size_t i = 0; i < count; i++) {
        right = right && same(&copy[i], &all[i]);
    }
    ml_free(copy);
    return right;
}

static void
test_every_width(void)
{
    static ml_event all[COUNT];
    for (unsigned bits = 0; bits <= 64; bits++) {
        make(all, COUNT, bits);
        ml_events events = packed(all, COUNT);
        CHECK(holds(&events, all, COUNT));
        ml_events_free(&events);
    }
    for (size_t count = 1; count < 70; count++) {
        make(all, count, (unsigned)count % 65);
        ml_events events = packed(all, count);
        CHECK(holds(&events, all, count));
        ml_events_free(&events);
    }
}

/* What is alike in one chunk is not in the next. */
static void
test_alike_in_turn(void)
{
    static ml_event all[COUNT];
    make(all, COUNT, 0);
    for (size_t i = 0; i < COUNT; i++) {
        all[i].size = i / ML_EVENTS_CHUNK == 1 ? i : 5 + i / ML_EVENTS_CHUNK / 2;
        all[i].stack = i / ML_EVENTS_CHUNK == 2 ? (uint32_t)i : 1;
    }
    ml_events events = packed(all, COUNT);
    CHECK(holds(&events, all, COUNT));
    ml_events_free(&events);
}

static void
test_none(void)
{
    ml_events events = {.plain = ml_alloc_zeroed(1, sizeof(ml_event))};
    CHECK_INT(ml_events_pack(&events, 0), 0);
    CHECK(events.plain == NULL);
    CHECK(ml_events_unpack(&events, 0) != NULL);
    ml_events_free(&events);
    ml_events_free(&events);
}

static void
test_written_one_by_one(void)
{
    static ml_event all[COUNT];
    make(all, COUNT, 13);
    ml_events events = {0};
    static ml_event_writer writer;
    ml_event_writer_init(&writer, &events);
    for (size_t i = 0; i < COUNT; i++) {
        ml_event *next = ml_event_writer_next(&writer);
        CHECK(next != NULL);
        CHECK(ml_event_writer_next(&writer) == next); /* until it is kept */
        *next = all[i];
        ml_event_writer_keep(&writer);
    }
    CHECK_INT(ml_event_writer_flush(&writer), 0);
    CHECK_INT(ml_event_writer_flush(&writer), 0);
    CHECK(holds(&events, all, COUNT));
    ml_events_free(&events);
}

/* SIZE is set in the second chunk, STACK in the last; all else stays. */
static bool
columns_hold(ml_events *events, ml_event *all)
{
    bool right = true;
    for (size_t i = 0; i < COUNT; i += ML_EVENTS_CHUNK) {
        uint64_t values[ML_EVENTS_CHUNK];
        size_t count =
            ml_events_get_column(events, COUNT, i, ML_EVENT_MEMBER_size, values);
        right = right && count == (i + ML_EVENTS_CHUNK <= COUNT ? ML_EVENTS_CHUNK : 17);
        uint64_t most = 0;
        for (size_t k = 0; k < count; k++) {
            right = right && values[k] == all[i + k].size;
            most = values[k] > most ? values[k] : most;
        }
        right = right && ml_events_most(events, COUNT, i, ML_EVENT_MEMBER_size) == most;
    }
    uint64_t sizes[ML_EVENTS_CHUNK];
    for (size_t k = 0; k < ML_EVENTS_CHUNK; k++) {
        sizes[k] = all[ML_EVENTS_CHUNK + k].size = next_random();
    }
    uint64_t stacks[17];
    for (size_t k = 0; k < 17; k++) {
        stacks[k] = all[3 * ML_EVENTS_CHUNK + k].stack = 9;
    }
    right =
        right &&
        ml_events_set_column(events, ML_EVENTS_CHUNK, ML_EVENTS_CHUNK,
                             ML_EVENT_MEMBER_size, sizes) == 0 &&
        ml_events_set_column(events, 17, 3 * ML_EVENTS_CHUNK, ML_EVENT_MEMBER_stack,
                             stacks) == 0 &&
        ml_events_most(events, COUNT, 3 * ML_EVENTS_CHUNK, ML_EVENT_MEMBER_stack) == 9;
    for (size_t i = 0; i < COUNT; i++) {
        ml_event event = ml_events_at(events, i);
        right = right && same(&event, &all[i]);
    }
    return right;
}

static void
test_columns(void)
{
    static ml_event all[COUNT];
    static const unsigned widths[] = {0, 1, 13, 31, 57, 64};
    for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++) {
        make(all, COUNT, widths[i]);
        ml_events events = packed(all, COUNT);
        CHECK(columns_hold(&events, all));
        make(all, COUNT, widths[i]);
        ml_events_free(&events);
        events = packed(all, COUNT);
        CHECK(ml_events_unpack(&events, COUNT) != NULL);
        CHECK(columns_hold(&events, all));
        ml_events_free(&events);
    }
}

/* In a chunk whose greatest action it is, in one where it is not, and in none; packed and
 * plain. */
static void
test_find_action(void)
{
    static ml_event all[COUNT];
    memset(all, 0, sizeof(all));
    size_t first = ML_EVENTS_CHUNK + 3, second = 3 * ML_EVENTS_CHUNK + 1;
    all[first].action = all[second].action = ML_ACTION_OOM;
    all[first + 2].action = all[second + 1].action = ML_ACTION_OTHER;
    all[second + 2].action = ML_ACTION_FREE_REQUESTED;
    ml_events events = packed(all, COUNT);
    for (unsigned plain = 0; plain < 2; plain++) {
        CHECK_UINT(ml_events_find_action(&events, COUNT, 0, ML_ACTION_OOM), first);
        CHECK_UINT(ml_events_find_action(&events, COUNT, first, ML_ACTION_OOM), first);
        CHECK_UINT(ml_events_find_action(&events, COUNT, first + 1, ML_ACTION_OOM),
                   second);
        CHECK_UINT(ml_events_find_action(&events, COUNT, second + 1, ML_ACTION_OOM),
                   COUNT);
        CHECK_UINT(ml_events_find_action(&events, COUNT, 0, ML_ACTION_SNAPSHOT), COUNT);
        CHECK_UINT(ml_events_find_action(&events, COUNT, COUNT, ML_ACTION_OOM), COUNT);
        CHECK(plain == 1 || ml_events_unpack(&events, COUNT) != NULL);
    }
    ml_events_free(&events);
}

/* Backwards and every third, of members of which one is read alone; others stay. */
static void
test_changed_members(void)
{
    static ml_event all[COUNT];
    make(all, COUNT, 20);
    ml_events events = packed(all, COUNT);
    ml_event_editor editor;
    ml_event_editor_init(&editor, &events, ML_EVENT_BIT(thread),
                         ML_EVENT_BIT(time) | ML_EVENT_BIT(flags) | ML_EVENT_BIT(node));
    for (size_t i = COUNT; i-- > 0;) {
        if (i % 3 == 0) {
            ml_event *event = ml_event_editor_at(&editor, i);
            event->time = event->time * i + event->thread;
            event->node = 0;
            all[i].time = all[i].time * i + all[i].thread;
            all[i].node = 0;
        }
    }
    CHECK_INT(ml_event_editor_end(&editor), 0);
    CHECK(holds(&events, all, COUNT));
    ml_event_editor_init(&editor, &events, 0, ML_EVENT_BIT(size));
    CHECK_INT(ml_event_editor_end(&editor), 0);
    CHECK(holds(&events, all, COUNT));
    CHECK(ml_events_unpack(&events, COUNT) == events.plain);
    ml_event_editor_init(&editor, &events, 0, ML_EVENT_BIT(size));
    ml_event_editor_at(&editor, 5)->size = 99;
    CHECK_INT(ml_event_editor_end(&editor), 0);
    CHECK_UINT(ml_events_size(&events, 5), 99);
    ml_events_free(&events);
}

/* A member takes as many bits as its values differ in. */
static void
test_takes_little(void)
{
    static ml_event all[ML_EVENTS_CHUNK];
    make(all, ML_EVENTS_CHUNK, 0);
    for (size_t i = 0; i < ML_EVENTS_CHUNK; i++) {
        all[i].addr = random_of(26, 9, UINT64_C(0x7f) << 40);
        all[i].size = random_of(24, 0, 0);
        all[i].time = i * 2000;
        all[i].stack = (uint32_t)random_of(10, 0, 5);
    }
    ml_events events = packed(all, ML_EVENTS_CHUNK);
    const ml_event_chunk *chunk = events.chunks[0];
    unsigned bits = 0;
    for (unsigned k = 0; k < ML_EVENT_MEMBER_COUNT; k++) {
        bits += chunk->columns[k].bits;
    }
    /* i * 2000 is i * 125 with 4 zeros, and up to 255 * 125 has 15 bits. */
    CHECK_UINT(bits, 26 + 24 + 15 + 10);
    ml_events_free(&events);
}

static void
test_no_memory(void)
{
    static ml_event all[COUNT];
    make(all, COUNT, 17);
    for (long budget = 0; budget < 40; budget++) {
        ml_events events = {.plain = ml_alloc(COUNT * sizeof(*all))};
        memcpy(events.plain, all, COUNT * sizeof(*all));
        budget_begin(budget);
        int result = ml_events_pack(&events, COUNT);
        bool written = result == 0;
        ml_event_editor editor;
        ml_event_editor_init(&editor, &events, 0, ML_EVENT_BIT(time));
        for (size_t i = 0; i < COUNT; i++) {
            ml_event_editor_at(&editor, i)->time = i;
        }
        int edited = ml_event_editor_end(&editor);
        budget_end();
        CHECK(written == (events.plain == NULL));
        CHECK(result == 0 || result == ML_ENOMEM);
        CHECK(edited == 0 || edited == ML_ENOMEM);
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(ml_events_time(&events, i) == i || edited < 0);
            CHECK(ml_events_size(&events, i) == all[i].size);
        }
        ml_events_free(&events);
    }
}

int
main(void)
{
    RUN(test_every_width);
    RUN(test_alike_in_turn);
    RUN(test_none);
    RUN(test_written_one_by_one);
    RUN(test_columns);
    RUN(test_find_action);
    RUN(test_changed_members);
    RUN(test_takes_little);
    RUN(test_no_memory);
    return TEST_RESULT();
}
