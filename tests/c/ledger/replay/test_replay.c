/* Replays of windows whose true past is known: by hand, and from a slow model. */
#include "ledger/replay/replay.h"

#include <stdlib.h>

#include "base/base.h"
#include "block_model.h"
#include "ledger/replay/replay_start.h"
#include "test.h"

/* A recording of one device built from arrays that the test owns. */
typedef struct fixture {
    ml_recording recording;
    ml_device_trace device;
} fixture;

static void
set_up(fixture *f, ml_event *events, size_t event_count, ml_segment *segments,
       size_t segment_count, ml_block *blocks, size_t block_count)
{
    memset(f, 0, sizeof(*f));
    f->device.events.plain = events;
    f->device.event_count = event_count;
    f->device.segments = segments;
    f->device.segment_count = segment_count;
    f->device.blocks = blocks;
    f->device.block_count = block_count;
    f->recording.devices = &f->device;
    f->recording.device_count = 1;
    f->recording.rules.max_split_bytes = UINT64_MAX;
    f->recording.rules.has_segments = 1;
}

static void
run_to_end(ml_replay *replay)
{
    while (ml_replay_next(replay) != NULL) {
    }
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define CHECK_AGREES(replay) \
    do { \
        ml_replay_result result_ = ml_replay_check(replay); \
        CHECK_UINT(result_.misfits, 0); \
        CHECK_UINT(result_.mismatched_addresses, 0); \
        CHECK_UINT(result_.mismatched_blocks, 0); \
        CHECK_UINT(result_.mismatched_segments, 0); \
        CHECK(result_.compared); \
    } while (0)

/* Before: [A 512][B 1024][rest].  Window: A is freed, C takes its place, B's free waits
 * for another stream. */
static void
test_small_pool(void)
{
    ml_event events[] = {make_event(ML_ACTION_FREE_REQUESTED, BASE, 500),
                         make_event(ML_ACTION_FREE_COMPLETED, BASE, 500),
                         make_event(ML_ACTION_ALLOC, BASE, 400),
                         make_event(ML_ACTION_FREE_REQUESTED, BASE + 512, 1000)};
    events[0].origin_stack = 4;
    events[1].origin_stack = 4;
    ml_block blocks[] = {
        {.addr = BASE, .size = 512, .requested = 400, .state = ML_BLOCK_ALLOCATED},
        {.addr = BASE + 512,
         .size = 1024,
         .requested = 1000,
         .stack = 6,
         .state = ML_BLOCK_PENDING_FREE},
        {.addr = BASE + 1536, .size = 2 * MIB - 1536},
    };
    ml_segment segment = {.addr = BASE, .total = 2 * MIB, .small = 1, .block_count = 3};
    fixture f;
    set_up(&f, events, COUNT(events), &segment, 1, blocks, 3);
    ml_replay *replay;
    CHECK_INT(ml_replay_new(&f.recording, 1, &replay), ML_EINVALID);
    CHECK_INT(ml_replay_new(&f.recording, 0, &replay), 0);

    ml_replay_start *start;
    CHECK_INT(ml_replay_start_new(&f.recording, 0, &start), 0);
    const ml_block *initial = start->blocks;
    CHECK_UINT(start->block_count, 2);
    CHECK_UINT(initial[0].addr, BASE);
    CHECK_UINT(initial[0].size, 512);
    CHECK_UINT(initial[0].requested, 500);
    CHECK_UINT(initial[0].stack, 4);
    CHECK_INT(initial[0].state, ML_BLOCK_ALLOCATED);
    CHECK_UINT(initial[1].addr, BASE + 512);
    CHECK_UINT(initial[1].stack, 6);
    CHECK_INT(initial[1].state, ML_BLOCK_ALLOCATED);
    ml_replay_start_free(start);

    CHECK_UINT(ml_replay_totals(replay)->allocated, 1536);
    CHECK_UINT(ml_replay_totals(replay)->requested, 1500);
    CHECK_UINT(ml_replay_totals(replay)->reserved, 2 * MIB);
    const ml_event *event = ml_replay_next(replay);
    CHECK_UINT(event->block_bytes, 512);
    CHECK_UINT(ml_replay_totals(replay)->allocated, 1024);
    CHECK_UINT(ml_replay_totals(replay)->active, 1536);
    CHECK_UINT(ml_replay_position(replay), 1);
    ml_replay_next(replay);
    event = ml_replay_next(replay);
    CHECK_UINT(event->block_bytes, 512);
    run_to_end(replay);
    CHECK_UINT(ml_replay_totals(replay)->allocated, 512);
    CHECK_UINT(ml_replay_totals(replay)->active, 1536);
    CHECK_AGREES(replay);
    CHECK_INT(ml_replay_go_to(replay, 0), 0);
    CHECK_UINT(ml_replay_position(replay), 0);
    CHECK_UINT(ml_replay_totals(replay)->allocated, 1536);
    run_to_end(replay);
    CHECK_AGREES(replay);
    ml_replay_free(replay);
}

/* A free whose request lies before the window: the block was waiting at its start. */
static void
test_pending_at_start(void)
{
    ml_event events[] = {make_event(ML_ACTION_FREE_COMPLETED, BASE, 500)};
    ml_block blocks[] = {{.addr = BASE, .size = 2 * MIB}};
    ml_segment segment = {.addr = BASE, .total = 2 * MIB, .small = 1, .block_count = 1};
    fixture f;
    set_up(&f, events, COUNT(events), &segment, 1, blocks, 1);
    ml_replay *replay;
    CHECK_INT(ml_replay_new(&f.recording, 0, &replay), 0);
    CHECK_UINT(ml_replay_totals(replay)->allocated, 0);
    CHECK_UINT(ml_replay_totals(replay)->active, 512);
    run_to_end(replay);
    CHECK_AGREES(replay);
    ml_replay_free(replay);
}

/* Large blocks freed in the window.  20 MiB: 19 MiB with 1 MiB of slack, filling the
 * segment.  Behind B lies a rest of 6 MiB: no slack is taken for granted, and the
 * allocation of C shows that B had 512 KiB. */
static void
test_slack(void)
{
    uint64_t other = BASE + 64 * MIB;
    ml_event events[] = {
        make_event(ML_ACTION_ALLOC, other + 14 * MIB + 512 * KIB, 2 * MIB),
        make_event(ML_ACTION_FREE_REQUESTED, other, 14 * MIB),
        make_event(ML_ACTION_FREE_COMPLETED, other, 14 * MIB),
        make_event(ML_ACTION_FREE_REQUESTED, BASE, 19 * MIB),
        make_event(ML_ACTION_FREE_COMPLETED, BASE, 19 * MIB),
    };
    ml_block blocks[] = {
        {.addr = BASE, .size = 20 * MIB},
        {.addr = other, .size = 14 * MIB + 512 * KIB},
        {.addr = other + 14 * MIB + 512 * KIB,
         .size = 2 * MIB,
         .requested = 2 * MIB,
         .state = ML_BLOCK_ALLOCATED},
        {.addr = other + 16 * MIB + 512 * KIB, .size = 3 * MIB + 512 * KIB},
    };
    ml_segment segments[] = {
        {.addr = BASE, .total = 20 * MIB, .block_count = 1},
        {.addr = other, .total = 20 * MIB, .first_block = 1, .block_count = 3},
    };
    fixture f;
    set_up(&f, events, COUNT(events), segments, 2, blocks, 4);
    ml_replay *replay;
    CHECK_INT(ml_replay_new(&f.recording, 0, &replay), 0);
    CHECK_UINT(ml_replay_totals(replay)->allocated, 20 * MIB + 14 * MIB + 512 * KIB);
    run_to_end(replay);
    CHECK_AGREES(replay);
    CHECK_UINT(ml_replay_check(replay).uncertain_blocks, 0);
    ml_replay_free(replay);

    /* Without C nothing shows where B ended. */
    set_up(&f, events + 1, 2, segments + 1, 1, blocks + 1, 1);
    segments[1].first_block = 0;
    segments[1].block_count = 1;
    blocks[1].size = 20 * MIB;
    CHECK_INT(ml_replay_new(&f.recording, 0, &replay), 0);
    CHECK_UINT(ml_replay_totals(replay)->allocated, 14 * MIB);
    run_to_end(replay);
    CHECK_AGREES(replay);
    CHECK_UINT(ml_replay_check(replay).uncertain_blocks, 1);
    CHECK_UINT(ml_replay_check(replay).uncertain_bytes, MIB);
    ml_replay_free(replay);

    /* Unless the recorder measured it. */
    for (size_t i = 1; i <= 2; i++) {
        events[i].block_bytes = 14 * MIB + 1024;
        events[i].flags = ML_EVENT_BLOCK_KNOWN;
    }
    CHECK_INT(ml_replay_new(&f.recording, 0, &replay), 0);
    CHECK_UINT(ml_replay_totals(replay)->allocated, 14 * MIB + 1024);
    CHECK_UINT(ml_replay_check(replay).uncertain_blocks, 0);
    ml_replay_free(replay);
}

/* A segment that the window released and one that it took. */
static void
test_segments_come_and_go(void)
{
    ml_event events[] = {
        make_event(ML_ACTION_FREE_REQUESTED, BASE + 512, 100),
        make_event(ML_ACTION_FREE_COMPLETED, BASE + 512, 100),
        make_event(ML_ACTION_SEGMENT_FREE, BASE, 2 * MIB),
        make_event(ML_ACTION_SEGMENT_ALLOC, BASE + 32 * MIB, 20 * MIB),
        make_event(ML_ACTION_ALLOC, BASE + 32 * MIB, 4 * MIB),
    };
    ml_block blocks[] = {{.addr = BASE + 32 * MIB,
                          .size = 4 * MIB,
                          .requested = 4 * MIB,
                          .state = ML_BLOCK_ALLOCATED},
                         {.addr = BASE + 36 * MIB, .size = 16 * MIB}};
    ml_segment segment = {.addr = BASE + 32 * MIB, .total = 20 * MIB, .block_count = 2};
    fixture f;
    set_up(&f, events, COUNT(events), &segment, 1, blocks, 2);
    ml_replay *replay;
    CHECK_INT(ml_replay_new(&f.recording, 0, &replay), 0);
    CHECK_UINT(ml_replay_totals(replay)->reserved, 2 * MIB);
    CHECK_UINT(ml_replay_totals(replay)->allocated, 512);
    run_to_end(replay);
    CHECK_UINT(ml_replay_totals(replay)->reserved, 20 * MIB);
    CHECK_AGREES(replay);
    ml_replay_free(replay);
}

/* Pages unmapped in the middle of a run: it was one run before. */
static void
test_expandable(void)
{
    ml_event events[] = {
        make_event(ML_ACTION_FREE_REQUESTED, BASE + 20 * MIB, 20 * MIB),
        make_event(ML_ACTION_FREE_COMPLETED, BASE + 20 * MIB, 20 * MIB),
        make_event(ML_ACTION_SEGMENT_UNMAP, BASE + 20 * MIB, 20 * MIB),
        make_event(ML_ACTION_SEGMENT_MAP, BASE + 60 * MIB, 20 * MIB),
    };
    ml_block blocks[] = {{.addr = BASE,
                          .size = 20 * MIB,
                          .requested = 20 * MIB - 100,
                          .state = ML_BLOCK_ALLOCATED},
                         {.addr = BASE + 40 * MIB,
                          .size = 20 * MIB,
                          .requested = 20 * MIB,
                          .state = ML_BLOCK_ALLOCATED},
                         {.addr = BASE + 60 * MIB, .size = 20 * MIB}};
    ml_segment segments[] = {
        {.addr = BASE, .total = 20 * MIB, .expandable = 1, .block_count = 1},
        {.addr = BASE + 40 * MIB,
         .total = 40 * MIB,
         .expandable = 1,
         .first_block = 1,
         .block_count = 2}};
    fixture f;
    set_up(&f, events, COUNT(events), segments, 2, blocks, 3);
    f.recording.rules.expandable_segments = 1;
    ml_replay *replay;
    CHECK_INT(ml_replay_new(&f.recording, 0, &replay), 0);
    CHECK_UINT(ml_replay_totals(replay)->reserved, 60 * MIB);
    CHECK_UINT(ml_ledger_get_totals(ml_replay_ledger(replay)).segments, 1);
    run_to_end(replay);
    CHECK_UINT(ml_ledger_get_totals(ml_replay_ledger(replay)).segments, 2);
    CHECK_AGREES(replay);
    ml_replay_free(replay);
}

/* Without the memory at the end: blocks stand alone; nothing is compared. */
static void
test_bare_trace(void)
{
    ml_event events[] = {make_event(ML_ACTION_FREE_REQUESTED, BASE, 1000),
                         make_event(ML_ACTION_FREE_COMPLETED, BASE, 1000),
                         make_event(ML_ACTION_ALLOC, BASE + MIB, 100)};
    fixture f;
    set_up(&f, events, COUNT(events), NULL, 0, NULL, 0);
    ml_replay *replay;
    CHECK_INT(ml_replay_new(&f.recording, 0, &replay), 0);
    CHECK_UINT(ml_replay_totals(replay)->allocated, 1024);
    CHECK_UINT(ml_replay_totals(replay)->reserved, 1024);
    run_to_end(replay);
    CHECK_UINT(ml_replay_totals(replay)->allocated, 512);
    CHECK_UINT(ml_replay_totals(replay)->reserved, 512);
    CHECK(!ml_replay_check(replay).compared);
    CHECK_UINT(ml_replay_check(replay).mismatched_addresses, 1);
    ml_replay_free(replay);
}

/* Only the memory, no events; and nothing at all. */
static void
test_no_events(void)
{
    ml_block blocks[] = {
        {.addr = BASE, .size = 512, .requested = 1, .state = ML_BLOCK_ALLOCATED},
        {.addr = BASE + 512, .size = 2 * MIB - 512}};
    ml_segment segment = {.addr = BASE, .total = 2 * MIB, .small = 1, .block_count = 2};
    fixture f;
    set_up(&f, NULL, 0, &segment, 1, blocks, 2);
    ml_replay *replay;
    CHECK_INT(ml_replay_new(&f.recording, 0, &replay), 0);
    CHECK_PTR(ml_replay_next(replay), NULL);
    CHECK_UINT(ml_replay_totals(replay)->allocated, 512);
    CHECK_UINT(ml_replay_totals(replay)->reserved, 2 * MIB);
    CHECK_AGREES(replay);
    ml_replay_free(replay);
    set_up(&f, NULL, 0, NULL, 0, NULL, 0);
    CHECK_INT(ml_replay_new(&f.recording, 0, &replay), 0);
    CHECK_UINT(ml_replay_totals(replay)->reserved, 0);
    ml_replay_free(replay);
}

/* The CPU's allocator: no segments, blocks of the sizes that were recorded. */
static void
test_without_segments(void)
{
    ml_event events[] = {make_event(ML_ACTION_ALLOC, 64, 100),
                         make_event(ML_ACTION_FREE_REQUESTED, 256, 7),
                         make_event(ML_ACTION_FREE_COMPLETED, 256, 7)};
    events[0].block_bytes = 100;
    events[0].flags = ML_EVENT_BLOCK_KNOWN;
    ml_block block = {
        .addr = 64, .size = 100, .requested = 100, .state = ML_BLOCK_ALLOCATED};
    ml_segment segment = {.addr = 64, .total = 100, .block_count = 1};
    fixture f;
    set_up(&f, events, COUNT(events), &segment, 1, &block, 1);
    f.recording.rules.has_segments = 0;
    ml_replay *replay;
    CHECK_INT(ml_replay_new(&f.recording, 0, &replay), 0);
    CHECK_UINT(ml_replay_totals(replay)->allocated, 7);
    ml_replay_next(replay);
    CHECK_UINT(ml_replay_totals(replay)->reserved, 107);
    run_to_end(replay);
    CHECK_UINT(ml_replay_totals(replay)->reserved, 100);
    CHECK_AGREES(replay);
    ml_replay_free(replay);
}

/* What does not agree is counted. */
static void
test_disagreement(void)
{
    ml_event events[] = {make_event(ML_ACTION_ALLOC, BASE, 512)};
    ml_block blocks[] = {
        {.addr = BASE, .size = 1024, .requested = 512, .state = ML_BLOCK_ALLOCATED},
        {.addr = BASE + 1024, .size = 2 * MIB - 1024},
        {.addr = BASE + 4 * MIB,
         .size = 2 * MIB,
         .requested = 5,
         .state = ML_BLOCK_ALLOCATED}};
    ml_segment segments[] = {
        {.addr = BASE, .total = 2 * MIB, .small = 1, .block_count = 2},
        {.addr = BASE + 4 * MIB,
         .total = 2 * MIB,
         .small = 1,
         .first_block = 2,
         .block_count = 1}};
    fixture f;
    set_up(&f, events, COUNT(events), segments, 2, blocks, 3);
    ml_replay *replay;
    CHECK_INT(ml_replay_new(&f.recording, 0, &replay), 0);
    run_to_end(replay);
    ml_replay_result result = ml_replay_check(replay);
    CHECK_UINT(result.misfits, 0);
    /* The rules give 512 bytes at the start: that block, the rest that begins after it,
     * and the rest that the recording has. */
    CHECK_UINT(result.mismatched_blocks, 3);
    CHECK_UINT(result.mismatched_segments, 0);
    ml_replay_free(replay);
}

/* ---- Random windows ---- */

#define RANDOM_EVENTS 1500

static ml_totals
model_totals(const model *m)
{
    ml_totals totals = {0, 0, 0, 0};
    for (size_t i = 0; i < m->count; i++) {
        const model_block *b = &m->blocks[i];
        totals.allocated += b->state == '*' ? b->size : 0;
        totals.active += b->state == '*' || b->state == '~' ? b->size : 0;
        totals.requested += b->state == '*' || b->state == '~' ? b->requested : 0;
        totals.reserved += b->state != ' ' ? b->size : 0;
    }
    return totals;
}

/* The model's memory as a snapshot would list it. */
static void
model_end(const model *m, ml_segment *segments, size_t *segment_count, ml_block *blocks,
          size_t *block_count)
{
    *segment_count = 0;
    *block_count = 0;
    for (size_t i = 0; i < m->count; i++) {
        const model_block *b = &m->blocks[i];
        if (b->state == ' ') {
            continue;
        }
        ml_segment *last = *segment_count == 0 ? NULL : &segments[*segment_count - 1];
        bool joins = i != 0 && b[-1].segment == b->segment && b[-1].state != ' ';
        if (joins && last != NULL) {
            last->total += b->size;
            last->block_count++;
        }
        else {
            segments[(*segment_count)++] = (ml_segment){.addr = b->addr,
                                                        .total = b->size,
                                                        .small = b->small,
                                                        .expandable = m->expandable,
                                                        .first_block = *block_count,
                                                        .block_count = 1};
        }
        blocks[(*block_count)++] =
            (ml_block){.addr = b->addr,
                       .size = b->size,
                       .requested = b->requested,
                       .state = b->state == '*'   ? ML_BLOCK_ALLOCATED
                                : b->state == '~' ? ML_BLOCK_PENDING_FREE
                                                  : ML_BLOCK_INACTIVE};
    }
}

static void
run_window(fixture *f, size_t start, ml_totals truth, uint64_t seed)
{
    f->device.events.plain += start;
    f->device.event_count -= start;
    ml_replay *replay;
    CHECK_INT(ml_replay_new(&f->recording, 0, &replay), 0);
    ml_totals have = *ml_replay_totals(replay);
    run_to_end(replay);
    ml_replay_result result = ml_replay_check(replay);
    ml_replay_free(replay);
    f->device.events.plain -= start;
    f->device.event_count += start;
    if (result.misfits != 0 || result.mismatched_blocks != 0 ||
        result.mismatched_segments != 0) {
        CHECK_FAIL("seed %llu, from event %zu: %llu misfits, %llu blocks and %llu "
                   "segments differ",
                   (unsigned long long)seed, start, (unsigned long long)result.misfits,
                   (unsigned long long)result.mismatched_blocks,
                   (unsigned long long)result.mismatched_segments);
    }
    CHECK_UINT(have.requested, truth.requested);
    CHECK_UINT(have.reserved, truth.reserved);
    /* Never more than was in use, and less by no more than is said. */
    CHECK(have.active <= truth.active);
    CHECK(have.active + result.uncertain_bytes >= truth.active);
    if (result.uncertain_blocks == 0) {
        CHECK_UINT(have.allocated, truth.allocated);
    }
}

static void
run_random(uint64_t seed, bool expandable)
{
    static model m;
    static ml_event events[RANDOM_EVENTS];
    static ml_totals truth[RANDOM_EVENTS];
    static ml_segment segments[MODEL_BLOCKS];
    static ml_block blocks[MODEL_BLOCKS];
    size_t segment_count, block_count;
    memset(&m, 0, sizeof(m));
    m.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    m.next_base = BASE;
    m.expandable = expandable;
    for (size_t i = 0; i < RANDOM_EVENTS; i++) {
        truth[i] = model_totals(&m);
        events[i] = model_step(&m);
    }
    model_end(&m, segments, &segment_count, blocks, &block_count);
    fixture f;
    set_up(&f, events, RANDOM_EVENTS, segments, segment_count, blocks, block_count);
    f.recording.rules.expandable_segments = expandable;
    for (size_t start = 0; start < RANDOM_EVENTS && !test_broken; start += 37) {
        run_window(&f, start, truth[start], seed);
    }
}

static void
test_random_windows(void)
{
    for (uint64_t seed = 1; seed <= 20 && !test_broken; seed++) {
        run_random(seed, false);
        run_random(seed, true);
    }
}

/* ---- Memory ---- */

static long budget; /* allocations that still succeed */
static long live;

static void *
counting_realloc(void *pointer, size_t bytes)
{
    if (bytes == 0) {
        live -= pointer != NULL;
        free(pointer);
        return NULL;
    }
    if (budget == 0) {
        return NULL;
    }
    budget--;
    live += pointer == NULL;
    return realloc(pointer, bytes);
}

static void
test_no_memory(void)
{
    ml_event events[] = {make_event(ML_ACTION_FREE_COMPLETED, BASE, 500),
                         make_event(ML_ACTION_SEGMENT_FREE, BASE, 2 * MIB)};
    ml_segment segments[12];
    ml_block blocks[12];
    for (size_t i = 0; i < 12; i++) {
        segments[i] = (ml_segment){.addr = BASE + (i + 1) * 2 * MIB,
                                   .total = 2 * MIB,
                                   .small = 1,
                                   .first_block = i,
                                   .block_count = 1};
        blocks[i] = (ml_block){.addr = segments[i].addr,
                               .size = 2 * MIB,
                               .requested = 1,
                               .state = ML_BLOCK_ALLOCATED};
    }
    fixture f;
    set_up(&f, events, COUNT(events), segments, 12, blocks, 12);
    ml_set_realloc(counting_realloc);
    int result = ML_ENOMEM;
    long tries = 0;
    for (; result == ML_ENOMEM && tries < 100; tries++) {
        ml_replay *replay = NULL;
        budget = tries;
        result = ml_replay_new(&f.recording, 0, &replay);
        ml_replay_free(replay);
        if (live != 0) {
            break;
        }
    }
    ml_set_realloc(NULL);
    CHECK_INT(result, 0);
    CHECK_INT(live, 0);
    CHECK(tries > 3);
    ml_replay_free(NULL);
}

int
main(void)
{
    RUN(test_small_pool);
    RUN(test_pending_at_start);
    RUN(test_slack);
    RUN(test_segments_come_and_go);
    RUN(test_expandable);
    RUN(test_bare_trace);
    RUN(test_no_events);
    RUN(test_without_segments);
    RUN(test_disagreement);
    RUN(test_random_windows);
    RUN(test_no_memory);
    return TEST_RESULT();
}
