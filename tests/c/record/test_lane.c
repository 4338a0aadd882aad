/* Lanes: order, exactly the newest events, growth, memory that follows what is kept, and
 * a reader beside writers. */
#include <pthread.h>
#include <stdlib.h>

#include "budget.h"
#include "record/lane.h"
#include "test.h"

static ml_event
numbered(uint64_t number)
{
    ml_event event = {.addr = number * 512,
                      .size = number * 2,
                      .time = number * 1000,
                      .action = ML_ACTION_ALLOC};
    return event;
}

/* Values that take the longest records there are. */
static ml_event
long_event(uint64_t number)
{
    uint64_t wide = number * UINT64_C(0x9e3779b97f4a7c15);
    ml_event event = {.addr = wide,
                      .size = ~wide,
                      .time = wide,
                      .block_bytes = wide * 3,
                      .stream = wide * 5,
                      .sequence = wide * 7,
                      .next = wide * 11,
                      .stack = (uint32_t)number | 0x80000000,
                      .origin_stack = (uint32_t)~number,
                      .pool = {(uint32_t)number, 1},
                      .metadata = (uint32_t)number + 1,
                      .node = (uint32_t)number | 0x40000000,
                      .thread = (uint32_t)number | 0x10000,
                      .autograd_thread = (uint16_t)~number,
                      .next_thread = (uint16_t)number | 1,
                      .flags = (uint8_t)(number & 0x7f),
                      .unused = (uint32_t)number | 0x80000000};
    return event;
}

/* Pushes the events from FROM up to TO; false where one was not taken. */
static int
push(ml_lane *lane, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        ml_event event = numbered(i);
        if (ml_lane_push(lane, &event) != 0) {
            return 0;
        }
    }
    return 1;
}

/* Whether OUT holds the events from FROM on, COUNT of them. */
static int
are_numbered(const ml_event *out, size_t count, uint64_t from)
{
    for (size_t i = 0; i < count; i++) {
        ml_event wanted = numbered(from + i);
        if (out[i].addr != wanted.addr || out[i].size != wanted.size ||
            out[i].time != wanted.time || out[i].flags != 0) {
            return 0;
        }
    }
    return 1;
}

static ml_event out[1 << 18];

static void
test_no_room(void)
{
    ml_lane lane = {.newest = NULL};
    ml_event event = numbered(1);
    CHECK_INT(ml_lane_push(&lane, &event), ML_EFULL);
    CHECK_INT(ml_lane_end(&lane), 0);
    CHECK_INT(ml_lane_oldest(&lane), 0);
    CHECK_INT(ml_lane_bytes(&lane), 0);
    CHECK_INT(ml_lane_copy(&lane, 0, 0, 10, out), 0);
    ml_lane_discard(&lane);
    CHECK_INT(ml_lane_push(&lane, &event), ML_EFULL);
    ml_lane_fini(&lane);
}

static void
test_out_of_memory(void)
{
    ml_lane lane = {.newest = NULL};
    ml_set_realloc(budget_realloc);
    budget_left = 0;
    CHECK_INT(ml_lane_reserve(&lane, 1000), ML_ENOMEM);
    CHECK_INT(budget_alive, 0);
    budget_left = 1;
    CHECK_INT(ml_lane_reserve(&lane, 1000), 0);
    CHECK(push(&lane, 0, 10));
    CHECK_INT(ml_lane_reserve(&lane, 100000), ML_ENOMEM);
    CHECK(push(&lane, 10, 20));
    CHECK_INT(ml_lane_copy(&lane, 0, 20, 20, out), 20);
    CHECK(are_numbered(out, 20, 0));
    ml_lane_fini(&lane);
    CHECK_INT(budget_alive, 0);
    ml_set_realloc(NULL);
}

/* At every length of the history, and so at every boundary of a chunk, and after as many
 * events as go round several times: the newest are all there. */
static void
test_exactly_the_newest(void)
{
    enum {
        WANTED = 3000
    };
    ml_lane lane = {.newest = NULL};
    CHECK_INT(ml_lane_reserve(&lane, WANTED), 0);
    for (uint64_t end = 1; end <= 40000; end++) {
        CHECK(push(&lane, end - 1, end));
        CHECK_INT(ml_lane_end(&lane), end);
        uint64_t oldest = ml_lane_oldest(&lane);
        CHECK(end - oldest >= (end < WANTED ? end : WANTED));
        if (end % 61 != 0 && end > 9000) {
            continue;
        }
        size_t count = ml_lane_copy(&lane, 0, end, WANTED, out);
        CHECK_INT(count, end < WANTED ? end : WANTED);
        CHECK(are_numbered(out, count, end - count));
    }
    /* From a place between, up to one; and more than is wanted, as far as it is kept. */
    CHECK_INT(ml_lane_copy(&lane, 38000, 39500, 10, out), 10);
    CHECK(are_numbered(out, 10, 39490));
    CHECK_INT(ml_lane_copy(&lane, 38000, 38001, 10, out), 1);
    CHECK(are_numbered(out, 1, 38000));
    CHECK_INT(ml_lane_copy(&lane, 38000, 38000, 10, out), 0);
    CHECK_INT(ml_lane_copy(&lane, 39000, 40000, 0, out), 0);
    uint64_t oldest = ml_lane_oldest(&lane);
    size_t kept = ml_lane_copy(&lane, 0, 40000, 40000, out);
    CHECK_INT(kept, 40000 - oldest);
    CHECK(are_numbered(out, kept, oldest));
    /* Memory for those alone: of the wanted ones and a part of one chunk. */
    CHECK(ml_lane_bytes(&lane) <= WANTED * 16 + (16 << 10));
    ml_lane_fini(&lane);
}

static void
test_longest_records_are_kept_as_well(void)
{
    enum {
        WANTED = 1 << 18, /* whose longest records fill more than the spare chunks */
        PUSHED = 2 * WANTED
    };
    ml_lane lane = {.newest = NULL};
    CHECK_INT(ml_lane_reserve(&lane, WANTED), 0);
    for (uint64_t i = 0; i < PUSHED; i++) {
        ml_event event = long_event(i);
        CHECK_INT(ml_lane_push(&lane, &event), 0);
    }
    size_t count = ml_lane_copy(&lane, 0, PUSHED, WANTED, out);
    CHECK_INT(count, WANTED);
    for (size_t i = 0; i < count; i++) {
        ml_event wanted = long_event(PUSHED - WANTED + i);
        /* All before the padding, and what is behind it. */
        CHECK_INT(memcmp(&out[i], &wanted, offsetof(ml_event, flags) + 1), 0);
        CHECK_UINT(out[i].unused, wanted.unused);
    }
    ml_lane_fini(&lane);
}

static void
test_growth_keeps_history(void)
{
    ml_lane lane = {.newest = NULL};
    CHECK_INT(ml_lane_reserve(&lane, 1024), 0);
    CHECK(push(&lane, 0, 5000));
    uint64_t oldest = ml_lane_oldest(&lane);
    CHECK(oldest > 0);
    /* Twice, of which the first is never used. */
    CHECK_INT(ml_lane_reserve(&lane, 4096), 0);
    CHECK_INT(ml_lane_reserve(&lane, 100000), 0);
    CHECK(push(&lane, 5000, 50000));
    CHECK_INT(ml_lane_oldest(&lane), oldest);
    size_t count = ml_lane_copy(&lane, 0, 50000, 100000, out);
    CHECK_INT(count, 50000 - oldest);
    CHECK(are_numbered(out, count, oldest));
    /* A smaller wish changes nothing. */
    CHECK_INT(ml_lane_reserve(&lane, 10), 0);
    CHECK(push(&lane, 50000, 300000));
    count = ml_lane_copy(&lane, 0, 300000, 100000, out);
    CHECK_INT(count, 100000);
    CHECK(are_numbered(out, count, 200000));
    /* What is left in the old ring does not follow on: it is no longer kept. */
    CHECK(ml_lane_oldest(&lane) > 50000);
    ml_lane_fini(&lane);
}

static void
test_discard(void)
{
    ml_lane lane = {.newest = NULL};
    CHECK_INT(ml_lane_reserve(&lane, 1024), 0);
    CHECK_INT(ml_lane_reserve(&lane, 5000), 0);
    for (uint64_t round = 0; round < 5; round++) {
        CHECK(push(&lane, round * 20000, (round + 1) * 20000 - 100));
        ml_lane_discard(&lane);
        uint64_t end = (round + 1) * 20000 - 100;
        CHECK_INT(ml_lane_end(&lane), end);
        CHECK_INT(ml_lane_oldest(&lane), end);
        CHECK_INT(ml_lane_bytes(&lane), 0);
        CHECK_INT(ml_lane_copy(&lane, 0, end, end, out), 0);
        CHECK_INT(ml_lane_reserve(&lane, 5000), 0);
        CHECK(push(&lane, end, end + 100));
        CHECK_INT(ml_lane_oldest(&lane), end);
        CHECK_INT(ml_lane_copy(&lane, 0, end + 100, 5000, out), 100);
        CHECK(are_numbered(out, 100, end));
    }
    ml_lane_fini(&lane);
}

/* ---- Copies ---- */

/* What a copier of the lane's records reads, with room for all of a test. */
typedef struct copier {
    _Alignas(8) uint8_t bytes[1 << 20];
    ml_chunk_writer writer;
} copier;

static copier copies;

static void
copier_begin(void)
{
    ml_chunk like = {.flags = ML_CHUNK_CHECKED, .bytes = sizeof(copies.bytes)};
    ml_chunk_begin(&copies.writer, copies.bytes, &like);
}

/* Whether the copier has the events FROM up to TO, and no others. */
static int
copier_has(uint64_t from, uint64_t to)
{
    ml_chunk_reader reader;
    ml_chunk header;
    ml_packed_other other;
    ml_event event;
    if (ml_chunk_open(&reader, copies.bytes, sizeof(copies.bytes), &header) != 0) {
        return 0;
    }
    for (uint64_t i = from; i < to; i++) {
        if (ml_chunk_next(&reader, &event, &other) != ML_PACKED_EVENT ||
            !are_numbered(&event, 1, i)) {
            return 0;
        }
    }
    return ml_chunk_next(&reader, &event, &other) == ML_PACKED_END;
}

/* Pushes the events from FROM up to TO and copies their records; those for which the lane
 * had no room, UINT64_MAX where the copier had none. */
static uint64_t
push_copied(ml_lane *lane, uint64_t from, uint64_t to)
{
    uint64_t failed = 0;
    for (uint64_t i = from; i < to; i++) {
        ml_event event = numbered(i);
        const ml_pack before = lane->state;
        ml_packed_event packed;
        failed += ml_lane_push_shared(lane, &event, &packed) != 0;
        if (copies.writer.at == (uint8_t *)((ml_chunk *)(void *)copies.bytes + 1)) {
            ml_chunk_push_state(&copies.writer, &before);
        }
        if (ml_chunk_push_packed(&copies.writer, &packed) != 0) {
            return UINT64_MAX;
        }
    }
    return failed;
}

/* From any event on, over every boundary of the lane's chunks and over a restart. */
static void
test_copies(void)
{
    ml_lane lane = {.newest = NULL};
    CHECK_INT(ml_lane_reserve(&lane, 5000), 0);
    for (uint64_t from = 0; from < 20000; from += 997) {
        CHECK(push(&lane, from, from + 400));
        copier_begin();
        CHECK_UINT(push_copied(&lane, from + 400, from + 900), 0);
        if (from % 2 != 0) {
            ml_lane_discard(&lane);
            CHECK_INT(ml_lane_reserve(&lane, 5000), 0);
        }
        CHECK_UINT(push_copied(&lane, from + 900, from + 997), 0);
        CHECK(copier_has(from + 400, from + 997));
        uint64_t end = ml_lane_end(&lane);
        size_t count = ml_lane_copy(&lane, 0, end, 97, out);
        CHECK_INT(count, 97);
        CHECK(are_numbered(out, count, from + 900));
    }
    ml_lane_fini(&lane);
}

/* The copier misses nothing where the lane has no room, and the lane goes on once it has. */
static void
test_copies_without_room(void)
{
    ml_lane lane = {.newest = NULL};
    copier_begin();
    CHECK_UINT(push_copied(&lane, 0, 100), 100);
    CHECK_INT(ml_lane_end(&lane), 0);
    CHECK_INT(ml_lane_reserve(&lane, 1000), 0);
    CHECK_UINT(push_copied(&lane, 100, 200), 0);
    CHECK(copier_has(0, 200));
    CHECK_INT(ml_lane_copy(&lane, 0, 100, 1000, out), 100);
    CHECK(are_numbered(out, 100, 100));
    ml_lane_fini(&lane);
}

/* A reader who stays keeps every chunk from being used again, until none is left: what comes
 * then goes to the copier alone, and the lane's next chunk goes on from there. */
static void
test_copies_while_a_reader_stays(void)
{
    ml_lane lane = {.newest = NULL};
    CHECK_INT(ml_lane_reserve(&lane, 1024), 0);
    atomic_fetch_add(&lane.readers, 1);
    uint64_t next = 0;
    for (; push(&lane, next, next + 1); next++) {
    }
    copier_begin();
    CHECK_UINT(push_copied(&lane, next, next + 50), 50);
    atomic_fetch_sub(&lane.readers, 1);
    CHECK_UINT(push_copied(&lane, next + 50, next + 80), 0);
    CHECK(copier_has(next, next + 80));
    uint64_t end = ml_lane_end(&lane);
    CHECK_INT(ml_lane_copy(&lane, 0, end, 30, out), 30);
    CHECK(are_numbered(out, 30, next + 50));
    ml_lane_fini(&lane);
}

/* ---- Threads ---- */

/* Ten million, or as many as a sanitizer has patience for. */
enum {
    WRITERS = 4,
    EVENTS_EACH = ML_DEBUG > 0 ? 50000 : 2500000
};

static ml_lane shared;
static _Atomic uint64_t lost;

static void *
write_claimed(void *context)
{
    uint64_t base = (uint64_t)(uintptr_t)context * EVENTS_EACH;
    uint64_t failed = 0;
    for (uint64_t i = 0; i < EVENTS_EACH; i++) {
        if (ml_lane_claim(&shared)) {
            ml_event event = {.addr = base + i, .size = (base + i) * 2};
            failed += ml_lane_push(&shared, &event) != 0;
            ml_lane_release(&shared);
        }
        else {
            failed++;
        }
    }
    atomic_fetch_add(&lost, failed);
    return NULL;
}

/* Chunks go round many times beside the reader, who sees whole events in their order. */
static void
test_reader_beside_writers(void)
{
    CHECK_INT(ml_lane_reserve(&shared, 2000), 0);
    pthread_t threads[WRITERS];
    for (uintptr_t i = 0; i < WRITERS; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, write_claimed, (void *)i), 0);
    }
    uint64_t torn = 0, missing = 0;
    for (int round = 0; round < 200; round++) {
        uint64_t end = ml_lane_end(&shared);
        size_t count = ml_lane_copy(&shared, 0, end, 2000, out);
        for (size_t i = 0; i < count; i++) {
            torn += out[i].size != out[i].addr * 2;
        }
        uint64_t kept = end - ml_lane_oldest(&shared);
        missing += count < end && count < 1000 && kept > 2000;
        if (round == 100) {
            CHECK_INT(ml_lane_reserve(&shared, 4000), 0);
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK_INT(torn, 0);
    CHECK_INT(missing, 0);
    /* Every event was stored, or its thread knows that it was not. */
    uint64_t end = ml_lane_end(&shared);
    CHECK_INT(end + atomic_load(&lost), WRITERS * EVENTS_EACH);
    CHECK(end > 0);
    ml_lane_fini(&shared);
}

int
main(void)
{
    RUN(test_no_room);
    RUN(test_out_of_memory);
    RUN_LONG_IN_ONE_THREAD(test_exactly_the_newest);
    RUN_LONG_IN_ONE_THREAD(test_longest_records_are_kept_as_well);
    RUN(test_growth_keeps_history);
    RUN(test_discard);
    RUN(test_copies);
    RUN(test_copies_without_room);
    RUN(test_copies_while_a_reader_stays);
    RUN(test_reader_beside_writers);
    return TEST_RESULT();
}
