/* Recordings taken while memory changes: from a source that no lock orders, whose events
 * and memory cannot be read at one instant, and from an ordered one whose other threads
 * allocate while a recording begins.  Expected figures are those of the events. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "budget.h"
#include "record/recorder.h"
#include "record/window.h"
#include "source_samples.h"
#include "afresh.h"
#include "test.h"
#include "plain_events.h"

#define MIB (UINT64_C(1) << 20)
#define SEGMENT UINT64_C(0x700000000000)

/* ---- A source with places of memory, each of a fixed address ---- */

#define PLACES 64
#define PLACE_BYTES UINT64_C(4096)

static _Atomic int live[PLACES];
/* Runs once, while the walk is behind place PLACES / 2. */
static void (*meanwhile)(void);
static ml_source loose, steady;
static _Atomic uint64_t ticks;

static uint64_t
address(int place)
{
    return SEGMENT + (uint64_t)place * PLACE_BYTES;
}

static void
record(int place, unsigned action)
{
    ml_event event = {.action = (uint8_t)action,
                      .addr = address(place),
                      .size = 512,
                      .block_bytes = 512,
                      .flags = ML_EVENT_BLOCK_KNOWN};
    event.time = atomic_fetch_add(&ticks, 1) + 1;
    ml_recorder_record(&loose, 0, &event, NULL);
}

/* In the order of torch's CPU allocator as memlab wraps it: the table first. */
static void
take(int place)
{
    atomic_store(&live[place], 1);
    record(place, ML_ACTION_ALLOC);
}

static void
give(int place)
{
    atomic_store(&live[place], 0);
    record(place, ML_ACTION_FREE_REQUESTED);
    record(place, ML_ACTION_FREE_COMPLETED);
}

static int
loose_walk(void *self, const ml_walk_visitor *visitor)
{
    (void)self;
    /* From the last place on: a walk need not go by address. */
    for (int place = PLACES - 1; place >= 0; place--) {
        if (place == PLACES / 2 - 1 && meanwhile != NULL) {
            meanwhile();
            meanwhile = NULL;
        }
        if (!atomic_load(&live[place])) {
            continue;
        }
        ml_segment segment = {.addr = address(place),
                              .total = 512,
                              .allocated = 512,
                              .active = 512,
                              .requested = 512};
        ml_block block = {.addr = address(place),
                          .size = 512,
                          .requested = 512,
                          .state = ML_BLOCK_ALLOCATED};
        int result = visitor->segment(visitor->context, 0, &segment);
        result = result == 0 ? visitor->block(visitor->context, 0, &block) : result;
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

static int
loose_rules(void *self, int device, ml_allocator_rules *out)
{
    (void)self;
    (void)device;
    *out = (ml_allocator_rules){.max_split_bytes = UINT64_MAX};
    return 0;
}

static ml_source loose = {SOURCE_SAMPLE, .name = "loose", .walk = loose_walk,
                          .rules = loose_rules, .unix_ns = source_unix_ns};

/* ---- An ordered source of one segment, whose first walk another thread disturbs ---- */

static int walks;

static void
steady_event(unsigned action, uint64_t addr, uint64_t size)
{
    ml_event event = {.action = (uint8_t)action, .addr = addr, .size = size};
    ml_recorder_record(&steady, 0, &event, NULL);
}

static int
steady_walk(void *self, const ml_walk_visitor *visitor)
{
    (void)self;
    steady_event(ML_ACTION_SNAPSHOT, 0, 0);
    ml_segment segment = {.addr = SEGMENT, .total = 20 * MIB};
    ml_block block = {.addr = SEGMENT, .size = 20 * MIB};
    int result = visitor->segment(visitor->context, 0, &segment);
    result = result == 0 ? visitor->block(visitor->context, 0, &block) : result;
    if (walks++ == 0) {
        steady_event(ML_ACTION_ALLOC, SEGMENT, 3 * MIB);
        steady_event(ML_ACTION_FREE_REQUESTED, SEGMENT, 3 * MIB);
        steady_event(ML_ACTION_FREE_COMPLETED, SEGMENT, 3 * MIB);
    }
    return result;
}

static ml_source steady = {SOURCE_SAMPLE,         .name = "steady",
                           .ordered = 1,          .walk = steady_walk,
                           .rules = source_rules, .unix_ns = source_unix_ns};

/* ---- Helpers ---- */

static ml_window *
start(const ml_source *source, uint64_t max_entries)
{
    ml_window_options options = {.max_entries = max_entries,
                                 .context = ML_CONTEXT_NONE,
                                 .keep_events = true,
                                 .device = -1};
    ml_window *window = NULL;
    return ml_window_start(source, &options, &window) == 0 ? window : NULL;
}

static ml_recording *
freeze(ml_window *window)
{
    ml_recording *recording = NULL;
    return ml_window_freeze(window, 0, &recording) == 0 ? recording : NULL;
}

/* Whether memory is what AT_START and the events leave, and nothing else. */
static bool
agrees(const ml_recording *recording, const int *at_start)
{
    int now[PLACES];
    memcpy(now, at_start, sizeof(now));
    const ml_device_trace *trace = &recording->devices[0];
    for (size_t i = 0; i < trace->event_count; i++) {
        int *place = &now[(plain_events(trace)[i].addr - SEGMENT) / PLACE_BYTES];
        int wanted = plain_events(trace)[i].action == ML_ACTION_ALLOC            ? 0
                     : plain_events(trace)[i].action == ML_ACTION_FREE_REQUESTED ? 1
                                                                                 : 2;
        if (*place != wanted) {
            return false;
        }
        *place = wanted == 0 ? 1 : wanted == 1 ? 2 : 0;
    }
    for (size_t i = 0; i < trace->block_count; i++) {
        int *place = &now[(trace->blocks[i].addr - SEGMENT) / PLACE_BYTES];
        if (*place != (trace->blocks[i].state == ML_BLOCK_ALLOCATED ? 1 : 2)) {
            return false;
        }
        *place = 0;
    }
    for (int place = 0; place < PLACES; place++) {
        if (now[place] != 0) {
            return false;
        }
    }
    return ml_recording_validate(recording) == 0;
}

static void
clear_places(void)
{
    for (int place = 0; place < PLACES; place++) {
        atomic_store(&live[place], 0);
    }
}

/* ---- Tests ---- */

static void
change_both_sides(void)
{
    take(PLACES - 1); /* behind the walk: it was free when the walk came by */
    give(PLACES - 2); /* seen live */
    give(PLACES - 3); /* seen live, and then again with other memory */
    take(PLACES - 3);
    take(0); /* ahead of the walk */
    give(1);
}

static void
test_memory_changes_during_the_walk(void)
{
    clear_places();
    int at_start[PLACES] = {0};
    int before[] = {1, PLACES - 2, PLACES - 3, 7};
    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        take(before[i]);
        at_start[before[i]] = 1;
    }
    ml_window *window = start(&loose, 1000);
    CHECK(window != NULL);
    meanwhile = change_both_sides;
    ml_recording *recording = freeze(window);
    CHECK(recording != NULL);
    CHECK_INT(recording->devices[0].event_count, 9);
    CHECK_INT(recording->devices[0].overwritten_events, 0);
    /* 0, 7, and the last and third last place. */
    CHECK_INT(recording->devices[0].block_count, 4);
    CHECK_UINT(recording->devices[0].blocks[0].addr, address(0));
    CHECK_UINT(recording->devices[0].blocks[3].addr, address(PLACES - 1));
    CHECK(agrees(recording, at_start));
    ml_recording_free(recording);
    ml_window_stop(window);
}

static void
begin_free(void)
{
    record(3, ML_ACTION_FREE_REQUESTED);
}

static void
test_half_a_free(void)
{
    clear_places();
    int at_start[PLACES] = {0};
    ml_window *window = start(&loose, 1000);
    CHECK(window != NULL);
    take(3);
    atomic_store(&live[3], 0);
    meanwhile = begin_free;
    ml_recording *recording = freeze(window);
    CHECK(recording != NULL);
    CHECK_INT(recording->devices[0].block_count, 1);
    CHECK_INT(recording->devices[0].blocks[0].state, ML_BLOCK_PENDING_FREE);
    CHECK_INT(recording->devices[0].segments[0].allocated, 0);
    CHECK_INT(recording->devices[0].segments[0].active, 512);
    CHECK(agrees(recording, at_start));
    ml_recording_free(recording);
    ml_window_stop(window);
}

static void
test_every_allocation_may_fail(void)
{
    clear_places();
    ml_window *window = start(&loose, 1000);
    CHECK(window != NULL);
    for (int place = 0; place < PLACES; place++) {
        take(place);
    }
    give(5);
    CHECK_INT(ml_window_tag(window, 0, address(4),
                            &(ml_owner){ML_CATEGORY_BUFFER, 0,
                                        ml_stacks_string(ml_recorder_stacks(), "x",
                                                         sizeof("x") - 1)}),
              0);
    ml_recording *recording = NULL;
    int failures = 0;
    for (long budget = 0; recording == NULL; budget++) {
        budget_begin(budget);
        int result = ml_window_freeze(window, 0, &recording);
        budget_end();
        if (result < 0) {
            CHECK_INT(result, ML_ENOMEM);
            CHECK_INT(budget_alive, 0);
            failures++;
        }
    }
    CHECK(failures > 10);
    CHECK_INT(recording->devices[0].block_count, PLACES - 1);
    ml_recording_free(recording);
    ml_window_stop(window);
}

/* ---- Threads ---- */

#define THREADS 4
#define OWN (PLACES / THREADS)
/* Of each thread; all their events fit the lanes. */
#define CHANGES 40000

static _Atomic int stop_changing;

static void *
keep_changing(void *context)
{
    int first = (int)(intptr_t)context * OWN;
    for (unsigned round = 1; round < CHANGES && !atomic_load(&stop_changing); round++) {
        int place = first + (int)(round * 7 % OWN);
        if (atomic_load(&live[place])) {
            give(place);
        }
        else {
            take(place);
        }
    }
    return NULL;
}

static void
test_freezing_beside_threads(void)
{
    clear_places();
    int at_start[PLACES] = {0};
    int wrong = 0, lost = 0;
    for (int round = 0; round < (UNDER_SANITIZER ? 3 : 20); round++) {
        clear_places();
        ml_window *window = start(&loose, 1000000);
        CHECK(window != NULL);
        /* No address is without events, of which window_freeze_lanes.c knows nothing. */
        for (int place = 0; place < PLACES; place++) {
            take(place);
            give(place);
        }
        atomic_store(&stop_changing, 0);
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) {
            CHECK_INT(
                pthread_create(&threads[i], NULL, keep_changing, (void *)(intptr_t)i),
                0);
        }
        for (int i = 0; i < 5; i++) {
            ml_recording *recording = freeze(window);
            wrong += recording == NULL || !agrees(recording, at_start);
            lost += recording != NULL && recording->devices[0].overwritten_events != 0;
            ml_recording_free(recording);
        }
        atomic_store(&stop_changing, 1);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
        ml_window_stop(window);
    }
    CHECK_INT(wrong, 0);
    CHECK_INT(lost, 0);
}

static void
test_peak_while_a_recording_begins(void)
{
    walks = 0;
    ml_window *window = start(&steady, 1000);
    CHECK(window != NULL);
    ml_recording *recording = freeze(window);
    CHECK(recording != NULL);
    /* The allocation came between the walk that read the memory and the next. */
    CHECK_INT(recording->devices[0].event_count, 3);
    CHECK_INT(recording->devices[0].peak.allocated, 3 * MIB);
    ml_recording_free(recording);
    ml_window_stop(window);
}

static int
begin(void)
{
    return ml_recorder_init(NULL) != 0 || ml_recorder_add_source(&loose) != 0 ||
           ml_recorder_add_source(&steady) != 0;
}

int
main(void)
{
    RUN_AFRESH(begin, test_memory_changes_during_the_walk);
    RUN_AFRESH(begin, test_half_a_free);
    RUN_AFRESH(begin, test_every_allocation_may_fail);
    RUN_AFRESH(begin, test_freezing_beside_threads);
    RUN_AFRESH(begin, test_peak_while_a_recording_begins);
    return TEST_RESULT();
}
