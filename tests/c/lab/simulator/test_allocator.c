/* The allocator model, a rule a scenario, each worked out by hand from the rules in
 * allocator*.c. */
#include "lab/simulator/allocator.h"

#include <stdlib.h>

#include "allocator_fixture.h"
#include "base/base.h"
#include "test.h"

/* Sizes go up to 512; up to 1 MiB they share segments of 2 MiB, below 10 MiB
 * segments of 20; from there on a segment is the request, rounded to 2 MiB. */
static void
test_pools_and_sizes(void)
{
    fixture f;
    set_up(&f, "");
    CHECK_UINT(get(&f, 1), 0);
    CHECK_UINT(get(&f, 513), 512);
    CHECK_UINT(get(&f, MIB), 1536);
    CHECK_UINT(get(&f, MIB + 1), 2 * MIB);
    CHECK_UINT(get(&f, 10 * MIB), 3 * MIB + 512);
    CHECK_UINT(get(&f, 10 * MIB), 22 * MIB);
    CHECK_UINT(get(&f, 21 * MIB), 32 * MIB);
    CHECK_STR(f.log, "S0+2M a0+1 a512+513 a1536+1M S2M+20M a2M+1048577 a3146240+10M "
                     "S22M+10M a22M+10M S32M+22M a32M+21M ");
    const ml_allocator_stats *figures = ml_allocator_get_stats(f.allocator);
    CHECK_UINT(figures->current.reserved, 54 * MIB);
    /* The last keeps its slack of 1 MiB, as no more than that is not cut off. */
    CHECK_UINT(figures->current.allocated,
               512 + 1024 + MIB + (MIB + 512) + 20 * MIB + 22 * MIB);
    CHECK_UINT(figures->current.requested,
               1 + 513 + MIB + MIB + 1 + 20 * MIB + 21 * MIB);
    /* What is left of the first two segments. */
    CHECK_UINT(figures->inactive_split,
               (2 * MIB - 1536 - MIB) + (20 * MIB - MIB - 512 - 10 * MIB));
    CHECK_UINT(figures->counters.of[ML_SOURCE_COUNTER_num_device_alloc], 4);
    TEAR_DOWN(f);
}

/* The smallest block that fits is taken; of two of one size the lower, as up to
 * 2.11. */
static void
test_best_fit(void)
{
    fixture f;
    set_up(&f, "");
    uint64_t a = get(&f, 30 * MIB), b = get(&f, 12 * MIB), c = get(&f, 12 * MIB);
    drop(&f, c);
    drop(&f, a);
    drop(&f, b);
    CHECK_UINT(get(&f, 12 * MIB), b);
    CHECK_UINT(get(&f, 12 * MIB), c);
    CHECK_UINT(get(&f, 12 * MIB), a);
    CHECK_UINT(get(&f, 18 * MIB), a + 12 * MIB);
    TEAR_DOWN(f);
}

/* A freed block joins the free ones on both sides. */
static void
test_merge(void)
{
    fixture f;
    set_up(&f, "");
    uint64_t a = get(&f, 512), b = get(&f, 1024), c = get(&f, 2048);
    drop(&f, a);
    drop(&f, c);
    CHECK_UINT(ml_allocator_get_stats(f.allocator)->inactive_split, 2 * MIB - 1024);
    drop(&f, b);
    CHECK_UINT(ml_allocator_get_stats(f.allocator)->inactive_split, 0);
    CHECK_UINT(ml_allocator_get_stats(f.allocator)->inactive_split_peak, 2 * MIB - 512);
    f.log[0] = '\0';
    CHECK_INT(ml_allocator_empty_cache(f.allocator), 0);
    CHECK_STR(f.log, "s0+2M ");
    TEAR_DOWN(f);
}

/* With two divisions 1.1 MiB becomes 1.5 MiB. */
static void
test_divisions(void)
{
    fixture f;
    set_up(&f, "roundup_power2_divisions:2");
    uint64_t a = get(&f, MIB + 100 * KIB);
    CHECK_UINT(get(&f, 2 * MIB) - a, 1536 * KIB);
    TEAR_DOWN(f);
}

/* Where the driver has no more, all that is free goes back and it is asked once
 * more. */
static void
test_retry(void)
{
    fixture f;
    set_up(&f, "");
    f.left = 44 * MIB;
    uint64_t a = get(&f, 20 * MIB), b = get(&f, 512);
    drop(&f, a);
    f.log[0] = '\0';
    CHECK_UINT(get(&f, 30 * MIB), 22 * MIB);
    CHECK_STR(f.log, "s0+20M S22M+30M a22M+30M ");
    drop(&f, b);
    f.log[0] = '\0';
    /* 12 MiB are left, and 14 with the small segment; large ones go first. */
    CHECK_UINT(get(&f, 16 * MIB), UINT64_MAX);
    CHECK_STR(f.log, "s20M+2M O14M+16M ");
    const ml_source_counters *counters = &ml_allocator_get_stats(f.allocator)->counters;
    CHECK_UINT(counters->of[ML_SOURCE_COUNTER_num_alloc_retries], 2);
    CHECK_UINT(counters->of[ML_SOURCE_COUNTER_num_ooms], 1);
    CHECK_UINT(counters->of[ML_SOURCE_COUNTER_num_sync_all_streams], 2);
    TEAR_DOWN(f);
}

/* A block of max_split_size or more is not cut, nor given for less; for requests of as
 * much it may be larger by less than the rounding. */
static void
test_max_split(void)
{
    fixture f;
    set_up(&f, "max_split_size_mb:40");
    uint64_t a = get(&f, 70 * MIB);
    drop(&f, a);
    uint64_t b = get(&f, 30 * MIB);
    CHECK_UINT(b, 70 * MIB);
    CHECK_UINT(get(&f, 50 * MIB), 100 * MIB); /* 70 is 50 and 20 more */
    CHECK_UINT(get(&f, 51 * MIB), a);
    CHECK_UINT(ml_allocator_get_stats(f.allocator)->current.allocated,
               (30 + 50 + 70) * MIB);
    TEAR_DOWN(f);
}

/* No memory: first only as many oversize blocks go, from the largest on, as are
 * asked. */
static void
test_release_oversize(void)
{
    fixture f;
    set_up(&f, "max_split_size_mb:40");
    f.left = 160 * MIB;
    uint64_t a = get(&f, 40 * MIB), b = get(&f, 44 * MIB), c = get(&f, 48 * MIB);
    drop(&f, a);
    drop(&f, b);
    drop(&f, c);
    f.log[0] = '\0';
    CHECK_UINT(get(&f, 90 * MIB), 132 * MIB);
    CHECK_STR(f.log, "s84M+48M s40M+44M S132M+90M a132M+90M ");
    f.log[0] = '\0';
    /* One block that would do is enough, though it be the larger request's. */
    drop(&f, 132 * MIB);
    f.left = 0;
    CHECK_UINT(get(&f, 20 * MIB), 222 * MIB);
    CHECK_STR(f.log, "f132M+90M F132M+90M s0+40M S222M+20M a222M+20M ");
    TEAR_DOWN(f);
}

/* With a limit of 512 MiB and a threshold of a quarter: before memory is asked for,
 * free segments that were passed over as often as the average, or more often, go. */
static void
test_garbage(void)
{
    fixture f;
    set_up(&f, "garbage_collection_threshold:0.25,per_process_memory_fraction:0.5");
    get(&f, 512);
    uint64_t a = get(&f, 100 * MIB), b = get(&f, 60 * MIB); /* look-ups 1 and 2 */
    drop(&f, a);
    get(&f, 12 * MIB); /* look-up 3; out of a, which is now cut */
    drop(&f, b);
    f.log[0] = '\0';
    get(&f, 200 * MIB); /* look-up 4: 162 MiB are over 128; b alone is whole */
    CHECK_STR(f.log, "s102M+60M S162M+200M a162M+200M ");
    f.log[0] = '\0';
    CHECK_UINT(get(&f, 250 * MIB), UINT64_MAX); /* 302 + 250 are over the limit */
    CHECK(strchr(f.log, 'O') != NULL);
    TEAR_DOWN(f);
}

/* Blocks of one stream are not for another, and wait for those that used them. */
static void
test_streams(void)
{
    fixture f;
    set_up(&f, "");
    uint64_t a = get(&f, 512);
    CHECK_UINT(get_from(&f, 512, 7, DEFAULT_POOL), 2 * MIB);
    CHECK_INT(ml_allocator_record_stream(f.allocator, BASE + a, 0), 0);
    CHECK_INT(ml_allocator_record_stream(f.allocator, BASE + a, 7), 0);
    CHECK_INT(ml_allocator_record_stream(f.allocator, BASE + a, 8), 0);
    f.log[0] = '\0';
    drop(&f, a);
    CHECK_STR(f.log, "f0+512 ");
    CHECK_UINT(ml_allocator_get_stats(f.allocator)->current.allocated, 512);
    CHECK_UINT(ml_allocator_get_stats(f.allocator)->current.active, 1024);
    CHECK_UINT(get(&f, 512), 512);
    CHECK_INT(ml_allocator_process_events(f.allocator), 0);
    CHECK_UINT(get(&f, 512), a);
    CHECK_STR(f.log, "f0+512 a512+512 F0+512 a0+512 ");
    CHECK_INT(ml_allocator_free(f.allocator, BASE + 17), ML_EINVALID);
    TEAR_DOWN(f);
}

/* A replay says itself when a free is completed; the want of memory completes it
 * too. */
static void
test_deferred(void)
{
    fixture f;
    set_up(&f, "");
    f.left = 24 * MIB;
    uint64_t a = get(&f, 10 * MIB), b = get(&f, 12 * MIB);
    CHECK_INT(ml_allocator_free_deferred(f.allocator, BASE + a), 0);
    CHECK_INT(ml_allocator_free(f.allocator, BASE + a), ML_EINVALID);
    CHECK_INT(ml_allocator_free_deferred(f.allocator, BASE + b), 0);
    CHECK_INT(ml_allocator_complete(f.allocator, BASE + b), 0);
    CHECK_INT(ml_allocator_complete(f.allocator, BASE + b), ML_EINVALID);
    f.log[0] = '\0';
    get(&f, 20 * MIB);
    CHECK_STR(f.log, "F0+10M s0+10M s10M+12M S22M+20M a22M+20M ");
    TEAR_DOWN(f);
}

/* Where two free blocks have one size: by address, by the making of the block, by
 * that of the segment.  The first segment lies above the second. */
static void
test_order(void)
{
    static const struct {
        unsigned version;
        uint64_t first;
    } cases[] = {{211, 0}, {212, 100 * MIB}, {213, 100 * MIB}};
    for (size_t i = 0; i < 3; i++) {
        fixture f;
        set_up_version(&f, cases[i].version, "");
        f.next = BASE + 100 * MIB;
        uint64_t a = get(&f, 12 * MIB);
        f.next = BASE;
        uint64_t b = get(&f, 12 * MIB);
        drop(&f, b);
        drop(&f, a);
        CHECK_UINT(get(&f, 12 * MIB), cases[i].first);
        TEAR_DOWN(f);
    }
}

/* From 2.12 on a request can be refused before the driver is asked: no event tells.
 * Where the fraction was given from the start the limit that it makes refuses first. */
static void
test_refused_early(void)
{
    fixture f;
    set_up_version(&f, 212,
                   "throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.25");
    CHECK_UINT(get(&f, 200 * MIB), 0);
    f.log[0] = '\0';
    CHECK_UINT(get(&f, 100 * MIB), UINT64_MAX);
    CHECK(f.log[0] == 'O');
    f.log[0] = '\0';
    f.settings.limited = false;
    CHECK_INT(ml_allocator_change_settings(f.allocator, &f.settings), 0);
    CHECK_UINT(get(&f, 100 * MIB), UINT64_MAX);
    CHECK_STR(f.log, "");
    CHECK_UINT(ml_allocator_get_stats(f.allocator)
                   ->counters.of[ML_SOURCE_COUNTER_num_oom_rejections],
               1);
    CHECK_UINT(get(&f, 56 * MIB), 200 * MIB);
    TEAR_DOWN(f);
}

typedef struct seen {
    ml_segment segments[4];
    ml_block blocks[8];
    size_t segment_count, block_count;
} seen;

static int
see_segment(void *context, const ml_segment *segment)
{
    seen *s = context;
    s->segments[s->segment_count++] = *segment;
    return 0;
}

static int
see_block(void *context, const ml_block *block, uint64_t birth)
{
    seen *s = context;
    s->blocks[s->block_count++] = *block;
    return birth != 0;
}

/* What is seeded is there to be seen, freed and cut. */
static void
test_seeds(void)
{
    fixture f;
    set_up(&f, "");
    ml_segment segment = {.addr = BASE + 8 * MIB, .total = 20 * MIB};
    ml_block blocks[] = {
        {.addr = BASE + 8 * MIB, .size = 4 * MIB, .requested = 3, .state = 1},
        {.addr = BASE + 12 * MIB, .size = 6 * MIB, .requested = 5, .state = 2},
        {.addr = BASE + 18 * MIB, .size = 10 * MIB},
    };
    CHECK_INT(ml_allocator_seed_segment(f.allocator, &segment, blocks, 2, 0, 0),
              ML_EINVALID);
    CHECK_INT(ml_allocator_seed_segment(f.allocator, &segment, blocks, 3, 0, 0), 0);
    CHECK_STR(validate(&f), "whole");
    ml_segment run = {.addr = SPACE + 40 * MIB, .total = 20 * MIB, .expandable = 1};
    ml_block whole = {.addr = SPACE + 40 * MIB, .size = 20 * MIB, .state = 1};
    CHECK_INT(ml_allocator_seed_segment(f.allocator, &run, &whole, 1, SPACE, 200 * MIB),
              0);
    CHECK_UINT(get(&f, 2 * MIB), 18 * MIB);
    drop(&f, 8 * MIB);
    CHECK_INT(ml_allocator_complete(f.allocator, BASE + 12 * MIB), 0);
    seen s = {0};
    ml_ledger_visitor visitor = {&s, see_segment, see_block};
    CHECK_INT(ml_allocator_visit(f.allocator, &visitor), 0);
    CHECK_UINT(s.segment_count, 2);
    CHECK_UINT(s.block_count, 4);
    CHECK_UINT(s.blocks[0].size, 10 * MIB);
    CHECK_INT(s.blocks[0].state, ML_BLOCK_INACTIVE);
    CHECK_INT(s.blocks[1].state, ML_BLOCK_ALLOCATED);
    CHECK_UINT(s.blocks[2].size, 8 * MIB);
    CHECK_UINT(s.segments[0].allocated, 2 * MIB);
    CHECK_UINT(s.segments[1].addr, SPACE + 40 * MIB);
    CHECK_INT(s.segments[1].expandable, 1);
    TEAR_DOWN(f);
}

/* Many requests and frees at random under each kind of settings: it stays whole. */
static void
test_random(void)
{
    static const char *const confs[] = {
        "",
        "expandable_segments:True",
        "max_split_size_mb:21,roundup_power2_divisions:4",
        "garbage_collection_threshold:0.5,per_process_memory_fraction:0.5",
        "expandable_segments:True,per_process_memory_fraction:0.25",
    };
    uint64_t random = 1;
    for (size_t i = 0; i < sizeof(confs) / sizeof(confs[0]); i++) {
        fixture f;
        set_up(&f, confs[i]);
        f.left = 700 * MIB;
        uint64_t live[64];
        memset(live, 0xff, sizeof(live));
        for (int n = 0; n < 3000; n++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
            size_t at = (random >> 33) % 64;
            f.log[0] = '\0';
            if (live[at] != UINT64_MAX) {
                drop(&f, live[at]);
                live[at] = UINT64_MAX;
            }
            else {
                uint64_t bytes = ((random >> 40) & 1023) << ((random >> 50) % 17);
                live[at] = get_from(&f, bytes + 1, (random >> 60) & 1, DEFAULT_POOL);
            }
            if (n % 50 == 0) {
                CHECK_STR(validate(&f), "whole");
            }
        }
        TEAR_DOWN(f);
    }
}

static size_t allowed_allocations;

static void *
failing_realloc(void *pointer, size_t bytes)
{
    if (bytes == 0) {
        free(pointer);
        return NULL;
    }
    if (allowed_allocations == 0) {
        return NULL;
    }
    allowed_allocations--;
    return realloc(pointer, bytes);
}

static int
run_without_memory(void)
{
    fixture f;
    set_up(&f, "expandable_segments:True");
    int result = f.allocator == NULL ? ML_ENOMEM : 0;
    for (int i = 0; result == 0 && i < 400; i++) {
        uint64_t addr;
        f.log[0] = '\0';
        result = ml_allocator_malloc(f.allocator, (uint64_t)(i + 1) * 4096, 0,
                                     DEFAULT_POOL, &addr);
        if (result == 0 && i % 3 == 0) {
            result = ml_allocator_record_stream(f.allocator, addr, 5);
        }
        if (result == 0 && i % 2 == 0) {
            result = ml_allocator_free(f.allocator, addr);
        }
    }
    if (result == 0) {
        result = ml_allocator_empty_cache(f.allocator);
    }
    ml_allocator_delete(f.allocator);
    return result;
}

static void
test_no_memory(void)
{
    int result = ML_ENOMEM;
    size_t tries = 0;
    ml_set_realloc(failing_realloc);
    for (; result == ML_ENOMEM && tries < 2000; tries++) {
        allowed_allocations = tries;
        result = run_without_memory();
    }
    ml_set_realloc(NULL);
    CHECK_INT(result, 0);
    CHECK(tries > 8);
}

int
main(void)
{
    RUN(test_pools_and_sizes);
    RUN(test_best_fit);
    RUN(test_merge);
    RUN(test_divisions);
    RUN(test_retry);
    RUN(test_max_split);
    RUN(test_release_oversize);
    RUN(test_garbage);
    RUN(test_streams);
    RUN(test_deferred);
    RUN(test_order);
    RUN(test_refused_early);
    RUN(test_seeds);
    RUN(test_random);
    RUN(test_no_memory);
    return TEST_RESULT();
}
