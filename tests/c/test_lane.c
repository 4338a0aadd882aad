/* Lanes: order, overwriting with exact counts, growth, and writers beside a reader. */
#include <pthread.h>
#include <string.h>

#include "base.h"
#include "lane.h"
#include "test.h"

static ml_event
numbered(uint64_t number)
{
    ml_event event = {.addr = number, .size = number * 2, .action = ML_ACTION_ALLOC};
    return event;
}

static void
push(ml_lane *lane, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        ml_event event = numbered(i);
        CHECK_INT(ml_lane_push(lane, &event), 0);
    }
}

/* What the lane keeps of the events from START to now; *TOTAL counts them all. */
static size_t
copy(const ml_lane *lane, ml_lane_mark start, uint64_t limit, ml_event *out,
     uint64_t *total)
{
    ml_lane_mark end = ml_lane_end(lane);
    *total = ml_lane_distance(start, end);
    return ml_lane_copy(start, end, limit, out);
}

static void
test_no_room(void)
{
    ml_lane lane = {.newest = NULL};
    ml_event event = numbered(1);
    CHECK_INT(ml_lane_push(&lane, &event), -1);
    CHECK_INT(ml_lane_push_shared(&lane, &event), -1);
    ml_lane_fini(&lane);
}

static void
test_newest_are_kept(void)
{
    static ml_event out[4096];
    ml_lane lane = {.newest = NULL};
    CHECK_INT(ml_lane_reserve(&lane, 1000), 0);
    ml_lane_mark start = ml_lane_end(&lane);
    /* The ring holds 1024, the next power of two: of 5000 the newest 1024 remain. */
    push(&lane, 0, 5000);
    uint64_t total = 0;
    size_t count = copy(&lane, start, 4096, out, &total);
    CHECK_INT(total, 5000);
    CHECK_INT(count, 1024);
    CHECK_INT(out[0].addr, 5000 - 1024);
    CHECK_INT(out[1023].addr, 4999);
    CHECK_INT(out[1023].size, 9998);
    CHECK_INT(out[1023].flags, 0);
    count = copy(&lane, start, 10, out, &total);
    CHECK_INT(count, 10);
    CHECK_INT(out[0].addr, 4990);
    /* A mark in the middle sees only what came after it. */
    ml_lane_mark middle = ml_lane_end(&lane);
    push(&lane, 5000, 5003);
    count = copy(&lane, middle, 4096, out, &total);
    CHECK_INT(total, 3);
    CHECK_INT(count, 3);
    CHECK_INT(out[0].addr, 5000);
    /* What came after the end is not copied, and what it overwrote is not there. */
    ml_lane_mark end = ml_lane_end(&lane);
    push(&lane, 5003, 5005);
    CHECK_INT(ml_lane_copy(middle, end, 4096, out), 3);
    CHECK_INT(out[2].addr, 5002);
    CHECK_INT(ml_lane_copy(start, end, 4096, out), 1022);
    CHECK_INT(out[0].addr, 5005 - 1024);
    ml_lane_fini(&lane);
}

static void
test_growth_keeps_history(void)
{
    static ml_event out[8192];
    ml_lane lane = {.newest = NULL};
    CHECK_INT(ml_lane_reserve(&lane, 1024), 0);
    ml_lane_mark start = ml_lane_end(&lane);
    push(&lane, 0, 600);
    CHECK_INT(ml_lane_reserve(&lane, 4096), 0);
    push(&lane, 600, 1500);
    uint64_t total = 0;
    size_t count = copy(&lane, start, 8192, out, &total);
    CHECK_INT(total, 1500);
    CHECK_INT(count, 1500);
    for (uint64_t i = 0; i < 1500; i++) {
        CHECK_INT(out[i].addr, i);
    }
    count = copy(&lane, start, 1000, out, &total);
    CHECK_INT(count, 1000);
    CHECK_INT(out[0].addr, 500);
    CHECK_INT(out[999].addr, 1499);
    /* Walking in place crosses from the old ring into the new one. */
    ml_lane_mark mark = start;
    uint64_t seen = 0;
    ml_event *record;
    while ((record = ml_lane_next(&lane, &mark)) != NULL) {
        CHECK_INT(record->addr, seen);
        seen++;
    }
    CHECK_INT(seen, 1500);
    /* A smaller wish changes nothing. */
    CHECK_INT(ml_lane_reserve(&lane, 10), 0);
    push(&lane, 1500, 1501);
    copy(&lane, start, 8192, out, &total);
    CHECK_INT(total, 1501);
    ml_lane_fini(&lane);
}

#define WRITERS 4
#define EVENTS_EACH 50000

static ml_lane shared;

static void *
write_shared(void *context)
{
    uint64_t base = (uint64_t)(uintptr_t)context * EVENTS_EACH;
    for (uint64_t i = 0; i < EVENTS_EACH; i++) {
        ml_event event = numbered(base + i);
        ml_lane_push_shared(&shared, &event);
    }
    return NULL;
}

static void
test_shared_writers(void)
{
    CHECK_INT(ml_lane_reserve(&shared, WRITERS * EVENTS_EACH), 0);
    ml_lane_mark start = ml_lane_end(&shared);
    pthread_t threads[WRITERS];
    for (uintptr_t i = 0; i < WRITERS; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, write_shared, (void *)i), 0);
    }
    ml_event *out = ml_alloc_zeroed(WRITERS * EVENTS_EACH, sizeof(*out));
    uint64_t total = 0;
    /* Beside the writers: whatever is seen is whole. */
    for (int round = 0; round < 20; round++) {
        size_t count = copy(&shared, start, WRITERS * EVENTS_EACH, out, &total);
        size_t torn = 0;
        for (size_t i = 0; i < count; i++) {
            torn += out[i].size != out[i].addr * 2;
        }
        CHECK_INT(torn, 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
    }
    size_t count = copy(&shared, start, WRITERS * EVENTS_EACH, out, &total);
    CHECK_INT(total, WRITERS * EVENTS_EACH);
    CHECK_INT(count, WRITERS * EVENTS_EACH);
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += out[i].addr;
    }
    uint64_t n = WRITERS * EVENTS_EACH;
    CHECK_INT(sum, n * (n - 1) / 2);
    ml_free(out);
    ml_lane_fini(&shared);
}

int
main(void)
{
    RUN(test_no_room);
    RUN(test_newest_are_kept);
    RUN(test_growth_keeps_history);
    RUN(test_shared_writers);
    return TEST_RESULT();
}
