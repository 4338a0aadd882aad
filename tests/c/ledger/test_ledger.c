/* The ledger against traces worked out by hand. */
#include "ledger/ledger.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/base.h"
#include "block_model.h"
#include "ledger_samples.h"
#include "test.h"

/* Blocks as text: each segment as "[size", "e" if expandable, ":", then for each block
 * its KiB with "*" if allocated, "~" if its free is pending, then "]". */
typedef struct picture {
    char text[4096];
    size_t length;
    bool open;
} picture;

static int
draw_segment(void *context, const ml_segment *segment)
{
    picture *p = context;
    p->length += (size_t)snprintf(p->text + p->length, sizeof(p->text) - p->length,
                                  "%s[%llu%s:", p->open ? "] " : "",
                                  (unsigned long long)(segment->total / KIB),
                                  segment->expandable ? "e" : "");
    p->open = true;
    return 0;
}

static int
draw_block(void *context, const ml_block *block, uint64_t birth)
{
    picture *p = context;
    (void)birth;
    p->length += (size_t)snprintf(p->text + p->length, sizeof(p->text) - p->length,
                                  " %g%s", (double)block->size / (double)KIB,
                                  block->state == ML_BLOCK_ALLOCATED      ? "*"
                                  : block->state == ML_BLOCK_PENDING_FREE ? "~"
                                                                          : "");
    return 0;
}

static const char *
draw(const ml_ledger *ledger)
{
    static picture p;
    p.length = 0;
    p.text[0] = '\0';
    p.open = false;
    ml_ledger_visitor visitor = {&p, draw_segment, draw_block};
    ml_ledger_visit(ledger, &visitor);
    if (p.open) {
        snprintf(p.text + p.length, sizeof(p.text) - p.length, "]");
    }
    return p.text;
}

#define CHECK_VALID(ledger) \
    do { \
        const char *wrong_ = ml_ledger_validate(ledger); \
        if (wrong_ != NULL) { \
            CHECK_FAIL("%s", wrong_); \
        } \
    } while (0)

#define CHECK_BLOCKS(ledger, want) \
    do { \
        CHECK_VALID(ledger); \
        CHECK_STR(draw(ledger), want); \
    } while (0)

#define CHECK_FITS(ledger, action, addr, size) \
    CHECK_INT(apply(ledger, ML_ACTION_##action, addr, size), ML_LEDGER_FITS)

static void
test_round(void)
{
    ml_allocator_rules rules = defaults;
    CHECK_UINT(ml_allocator_round(&rules, 1), 512);
    CHECK_UINT(ml_allocator_round(&rules, 512), 512);
    CHECK_UINT(ml_allocator_round(&rules, 513), 1024);
    CHECK_UINT(ml_allocator_round(&rules, MIB + 1), MIB + 512);
    for (int i = 0; i < 16; i++) {
        rules.roundup_divisions[i] = 4;
    }
    /* 1200 has the power 1024 below it, in steps of 256. */
    CHECK_UINT(ml_allocator_round(&rules, 1200), 1536);
    CHECK_UINT(ml_allocator_round(&rules, 2049), 2560);
    CHECK_UINT(ml_allocator_round(&rules, 4096), 4096);
    CHECK_UINT(ml_allocator_round(&rules, 5 * MIB), 5 * MIB);
    CHECK_UINT(ml_allocator_round(&rules, 5 * MIB + 1), 6 * MIB);
    /* Each interval has its own: 2 MiB up to 4 MiB is the second. */
    rules.roundup_divisions[1] = 0;
    CHECK_UINT(ml_allocator_round(&rules, 2 * MIB + 1), 2 * MIB + 512);
    CHECK_UINT(ml_allocator_round(&rules, MIB + 1), MIB + 256 * KIB);
    /* From 32 GiB on the last one holds. */
    rules.roundup_divisions[15] = 2;
    CHECK_UINT(ml_allocator_round(&rules, (UINT64_C(65) << 30)), UINT64_C(96) << 30);
}

/* A small segment: the front is split off, the rest stays, and frees merge both ways. */
static void
test_split_and_merge(void)
{
    ml_ledger *ledger;
    CHECK_INT(ml_ledger_new(&ledger, NULL, 0), 0);
    CHECK_FITS(ledger, SEGMENT_ALLOC, BASE, 2 * MIB);
    CHECK_TOTALS(ledger, 0, 0, 0, 2 * MIB);
    CHECK_FITS(ledger, ALLOC, BASE, 1000);
    CHECK_FITS(ledger, ALLOC, BASE + 1024, 512);
    CHECK_FITS(ledger, ALLOC, BASE + 1536, 1);
    CHECK_BLOCKS(ledger, "[2048: 1* 0.5* 0.5* 2046]");
    CHECK_TOTALS(ledger, 2048, 2048, 1513, 2 * MIB);

    /* Free in the middle: no neighbour is free. */
    CHECK_FITS(ledger, FREE_REQUESTED, BASE + 1024, 512);
    CHECK_TOTALS(ledger, 1536, 2048, 1513, 2 * MIB);
    CHECK_BLOCKS(ledger, "[2048: 1* 0.5~ 0.5* 2046]");
    CHECK_FITS(ledger, FREE_COMPLETED, BASE + 1024, 512);
    CHECK_BLOCKS(ledger, "[2048: 1* 0.5 0.5* 2046]");
    CHECK_TOTALS(ledger, 1536, 1536, 1001, 2 * MIB);
    /* Free before it: merges with the block after. */
    CHECK_FITS(ledger, FREE_REQUESTED, BASE, 1000);
    CHECK_FITS(ledger, FREE_COMPLETED, BASE, 1000);
    CHECK_BLOCKS(ledger, "[2048: 1.5 0.5* 2046]");
    /* The last: merges with both sides, to one block again. */
    CHECK_FITS(ledger, FREE_REQUESTED, BASE + 1536, 1);
    CHECK_FITS(ledger, FREE_COMPLETED, BASE + 1536, 1);
    CHECK_BLOCKS(ledger, "[2048: 2048]");
    CHECK_TOTALS(ledger, 0, 0, 0, 2 * MIB);
    CHECK_FITS(ledger, SEGMENT_FREE, BASE, 2 * MIB);
    CHECK_BLOCKS(ledger, "");
    ml_ledger_totals totals = ml_ledger_get_totals(ledger);
    CHECK_UINT(totals.current.reserved, 0);
    CHECK_UINT(totals.peak.allocated, 2048);
    CHECK_UINT(totals.peak.requested, 1513);
    CHECK_UINT(totals.peak.reserved, 2 * MIB);
    CHECK_UINT(totals.events, 11);
    CHECK_UINT(totals.inconsistencies, 0);
    ml_ledger_free(ledger);
}

/* In the large pool a rest of up to 1 MiB stays with the block as slack. */
static void
test_slack(void)
{
    ml_ledger *ledger;
    CHECK_INT(ml_ledger_new(&ledger, &defaults, 0), 0);
    CHECK_FITS(ledger, SEGMENT_ALLOC, BASE, 20 * MIB);
    CHECK_FITS(ledger, ALLOC, BASE, 19 * MIB);
    CHECK_BLOCKS(ledger, "[20480: 20480*]");
    CHECK_TOTALS(ledger, 20 * MIB, 20 * MIB, 19 * MIB, 20 * MIB);
    CHECK_FITS(ledger, FREE_REQUESTED, BASE, 19 * MIB);
    CHECK_FITS(ledger, FREE_COMPLETED, BASE, 19 * MIB);
    CHECK_FITS(ledger, ALLOC, BASE, 19 * MIB - 512);
    CHECK_BLOCKS(ledger, "[20480: 19455.5* 1024.5]");
    ml_ledger_free(ledger);
}

/* A request of at least max_split_size takes a whole block; a smaller one does not. */
static void
test_max_split(void)
{
    ml_allocator_rules rules = defaults;
    rules.max_split_bytes = 64 * MIB;
    ml_ledger *ledger;
    CHECK_INT(ml_ledger_new(&ledger, &rules, 0), 0);
    CHECK_FITS(ledger, SEGMENT_ALLOC, BASE, 80 * MIB);
    CHECK_FITS(ledger, ALLOC, BASE, 64 * MIB);
    CHECK_BLOCKS(ledger, "[81920: 81920*]");
    CHECK_FITS(ledger, SEGMENT_ALLOC, BASE + 100 * MIB, 80 * MIB);
    CHECK_FITS(ledger, ALLOC, BASE + 100 * MIB, 64 * MIB - 512);
    CHECK_BLOCKS(ledger, "[81920: 81920*] [81920: 65535.5* 16384.5]");
    ml_ledger_free(ledger);
}

/* A free that waits for another stream: the block is active, not allocated, and does not
 * merge until it is completed. */
static void
test_deferred_free(void)
{
    ml_ledger *ledger;
    CHECK_INT(ml_ledger_new(&ledger, NULL, 0), 0);
    CHECK_FITS(ledger, SEGMENT_ALLOC, BASE, 2 * MIB);
    CHECK_FITS(ledger, ALLOC, BASE, 512);
    CHECK_FITS(ledger, ALLOC, BASE + 512, 512);
    CHECK_FITS(ledger, FREE_REQUESTED, BASE, 512);
    CHECK_FITS(ledger, FREE_REQUESTED, BASE + 512, 512);
    CHECK_FITS(ledger, FREE_COMPLETED, BASE + 512, 512);
    CHECK_BLOCKS(ledger, "[2048: 0.5~ 2047.5]");
    CHECK_TOTALS(ledger, 0, 512, 512, 2 * MIB);
    CHECK_UINT(ml_ledger_get_totals(ledger).allocations, 1);
    CHECK_FITS(ledger, FREE_COMPLETED, BASE, 512);
    CHECK_BLOCKS(ledger, "[2048: 2048]");
    ml_ledger_free(ledger);
}

/* Expandable memory: what is mapped next to a free end grows it; unmapping the middle
 * leaves two runs; mapping it again joins them. */
static void
test_expandable(void)
{
    ml_allocator_rules rules = defaults;
    rules.expandable_segments = 1;
    ml_ledger *ledger;
    CHECK_INT(ml_ledger_new(&ledger, &rules, 0), 0);
    CHECK_FITS(ledger, SEGMENT_MAP, BASE, 20 * MIB);
    /* Split although the rest is below 1 MiB. */
    CHECK_FITS(ledger, ALLOC, BASE, 20 * MIB - 512);
    CHECK_BLOCKS(ledger, "[20480e: 20479.5* 0.5]");
    CHECK_FITS(ledger, SEGMENT_MAP, BASE + 20 * MIB, 40 * MIB);
    CHECK_BLOCKS(ledger, "[61440e: 20479.5* 40960.5]");
    CHECK_FITS(ledger, ALLOC, BASE + 20 * MIB - 512, 30 * MIB);
    CHECK_FITS(ledger, ALLOC, BASE + 50 * MIB - 512, 10 * MIB + 512);
    CHECK_BLOCKS(ledger, "[61440e: 20479.5* 30720* 10240.5*]");
    CHECK_FITS(ledger, FREE_REQUESTED, BASE + 20 * MIB - 512, 30 * MIB);
    CHECK_FITS(ledger, FREE_COMPLETED, BASE + 20 * MIB - 512, 30 * MIB);
    /* The one whole page of 20 MiB within the free block goes back. */
    CHECK_FITS(ledger, SEGMENT_UNMAP, BASE + 20 * MIB, 20 * MIB);
    CHECK_BLOCKS(ledger, "[20480e: 20479.5* 0.5] [20480e: 10239.5 10240.5*]");
    CHECK_TOTALS(ledger, 30 * MIB, 30 * MIB, 30 * MIB, 40 * MIB);
    CHECK_FITS(ledger, SEGMENT_MAP, BASE + 20 * MIB, 20 * MIB);
    CHECK_BLOCKS(ledger, "[61440e: 20479.5* 30720 10240.5*]");
    CHECK_UINT(ml_ledger_get_totals(ledger).segments, 1);
    /* Unmapping the front of a run, once it is free. */
    CHECK_FITS(ledger, FREE_REQUESTED, BASE, 20 * MIB - 512);
    CHECK_FITS(ledger, FREE_COMPLETED, BASE, 20 * MIB - 512);
    CHECK_FITS(ledger, SEGMENT_UNMAP, BASE, 40 * MIB);
    CHECK_BLOCKS(ledger, "[20480e: 10239.5 10240.5*]");
    ml_ledger_free(ledger);
}

/* Runs of two streams that touch, or of the small and the large pool, stay two. */
static void
test_expandable_neighbours(void)
{
    ml_ledger *ledger;
    CHECK_INT(ml_ledger_new(&ledger, NULL, 0), 0);
    ml_event map = make_event(ML_ACTION_SEGMENT_MAP, BASE, 20 * MIB);
    CHECK_INT(ml_ledger_apply(ledger, &map), 0);
    map.addr = BASE + 20 * MIB;
    map.stream = 7;
    CHECK_INT(ml_ledger_apply(ledger, &map), 0);
    map.addr = BASE + 40 * MIB;
    map.size = 2 * MIB;
    CHECK_INT(ml_ledger_apply(ledger, &map), 0);
    CHECK_BLOCKS(ledger, "[20480e: 20480] [20480e: 20480] [2048e: 2048]");
    map.addr = BASE + 42 * MIB;
    CHECK_INT(ml_ledger_apply(ledger, &map), 0);
    CHECK_BLOCKS(ledger, "[20480e: 20480] [20480e: 20480] [4096e: 4096]");
    ml_ledger_free(ledger);
}

/* An out-of-memory event and a snapshot change nothing, whatever their numbers. */
static void
test_no_change(void)
{
    ml_ledger *ledger;
    CHECK_INT(ml_ledger_new(&ledger, NULL, 0), 0);
    CHECK_FITS(ledger, SEGMENT_ALLOC, BASE, 2 * MIB);
    CHECK_FITS(ledger, OOM, BASE, 100 * MIB);
    CHECK_FITS(ledger, SNAPSHOT, 0, 512);
    CHECK_FITS(ledger, OTHER, BASE, 512);
    CHECK_BLOCKS(ledger, "[2048: 2048]");
    ml_ledger_free(ledger);
}

/* Frees are told the bytes and the stack of their allocation. */
static void
test_event_is_filled(void)
{
    ml_ledger *ledger;
    CHECK_INT(ml_ledger_new(&ledger, NULL, 0), 0);
    ml_event event = make_event(ML_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB);
    event.stack = 3;
    CHECK_INT(ml_ledger_apply(ledger, &event), 0);
    event = make_event(ML_ACTION_ALLOC, BASE, 700);
    event.stack = 5;
    CHECK_INT(ml_ledger_apply(ledger, &event), 0);
    CHECK_UINT(event.block_bytes, 1024);
    CHECK_UINT(event.flags, ML_EVENT_BLOCK_KNOWN);
    event = make_event(ML_ACTION_FREE_REQUESTED, BASE, 700);
    CHECK_INT(ml_ledger_apply(ledger, &event), 0);
    CHECK_UINT(event.block_bytes, 1024);
    CHECK_UINT(event.origin_stack, 5);
    event = make_event(ML_ACTION_FREE_COMPLETED, BASE, 700);
    CHECK_INT(ml_ledger_apply(ledger, &event), 0);
    CHECK_UINT(event.block_bytes, 1024);
    CHECK_UINT(event.origin_stack, 5);
    event = make_event(ML_ACTION_SEGMENT_FREE, BASE, 2 * MIB);
    CHECK_INT(ml_ledger_apply(ledger, &event), 0);
    CHECK_UINT(event.origin_stack, 3);
    ml_ledger_free(ledger);
}

/* A measured block size is believed over the rules. */
static void
test_known_block_bytes(void)
{
    ml_ledger *ledger;
    CHECK_INT(ml_ledger_new(&ledger, NULL, 0), 0);
    CHECK_FITS(ledger, SEGMENT_ALLOC, BASE, 20 * MIB);
    ml_event event = make_event(ML_ACTION_ALLOC, BASE, 18 * MIB);
    event.block_bytes = 20 * MIB;
    event.flags = ML_EVENT_BLOCK_KNOWN;
    CHECK_INT(ml_ledger_apply(ledger, &event), 0);
    CHECK_BLOCKS(ledger, "[20480: 20480*]");
    ml_ledger_free(ledger);
}

/* Without segments each block is its own and reserved means allocated. */
static void
test_bare(void)
{
    ml_allocator_rules rules = {.has_segments = 0};
    ml_ledger *ledger;
    CHECK_INT(ml_ledger_new(&ledger, &rules, 0), 0);
    ml_block seed = {
        .addr = 64, .size = 100, .requested = 100, .state = ML_BLOCK_ALLOCATED};
    CHECK_INT(ml_ledger_seed_block(ledger, &seed), 0);
    CHECK_INT(ml_ledger_seed_block(ledger, &seed), ML_EINVALID);
    ml_event event = make_event(ML_ACTION_ALLOC, 1024, 1000);
    event.block_bytes = 1000;
    event.flags = ML_EVENT_BLOCK_KNOWN;
    CHECK_INT(ml_ledger_apply(ledger, &event), 0);
    CHECK_TOTALS(ledger, 1100, 1100, 1100, 1100);
    CHECK_VALID(ledger);
    CHECK_FITS(ledger, FREE_REQUESTED, 64, 100);
    CHECK_TOTALS(ledger, 1000, 1100, 1100, 1000);
    CHECK_FITS(ledger, FREE_COMPLETED, 64, 100);
    CHECK_TOTALS(ledger, 1000, 1000, 1000, 1000);
    CHECK_VALID(ledger);
    /* The same address again without a free: the first one must have gone. */
    event.size = event.block_bytes = 2000;
    CHECK_INT(ml_ledger_apply(ledger, &event), ML_LEDGER_ALLOC_TAKEN);
    CHECK_TOTALS(ledger, 2000, 2000, 2000, 2000);
    CHECK_INT(apply(ledger, ML_ACTION_FREE_COMPLETED, 1024, 2000),
              ML_LEDGER_FREE_UNREQUESTED);
    CHECK_INT(apply(ledger, ML_ACTION_FREE_REQUESTED, 1024, 2000),
              ML_LEDGER_FREE_UNKNOWN);
    CHECK_TOTALS(ledger, 0, 0, 0, 0);
    CHECK_BLOCKS(ledger, "");
    ml_ledger_free(ledger);
}

static void
test_seed(void)
{
    ml_ledger *ledger;
    CHECK_INT(ml_ledger_new(&ledger, NULL, 0), 0);
    ml_segment segment = {.addr = BASE, .total = 2 * MIB, .small = 1};
    ml_block block = {.addr = BASE + 512, .size = 1024, .requested = 1000, .stack = 9};
    CHECK_INT(ml_ledger_seed_segment(ledger, &segment), 0);
    CHECK_INT(ml_ledger_seed_segment(ledger, &segment), ML_EINVALID);
    CHECK_INT(ml_ledger_seed_block(ledger, &block), 0); /* inactive */
    block.state = ML_BLOCK_ALLOCATED;
    CHECK_INT(ml_ledger_seed_block(ledger, &block), ML_EINVALID); /* no segment */
    segment.addr = BASE + 2 * MIB;
    CHECK_INT(ml_ledger_seed_segment(ledger, &segment), 0);
    CHECK_INT(ml_ledger_seed_block(ledger, &block), ML_EINVALID); /* before it */
    block.addr = BASE + 2 * MIB + 512;
    CHECK_INT(ml_ledger_seed_block(ledger, &block), 0);
    CHECK_INT(ml_ledger_seed_block(ledger, &block), ML_EINVALID); /* twice */
    block.addr = BASE + 4 * MIB - 1024;
    block.state = ML_BLOCK_PENDING_FREE;
    CHECK_INT(ml_ledger_seed_block(ledger, &block), 0);
    block.addr = BASE + 4 * MIB;
    CHECK_INT(ml_ledger_seed_block(ledger, &block), ML_EINVALID); /* nothing is left */
    CHECK_BLOCKS(ledger, "[2048: 2048] [2048: 0.5 1* 2045.5 1~]");
    CHECK_TOTALS(ledger, 1024, 2048, 2000, 4 * MIB);
    ml_event event = make_event(ML_ACTION_FREE_REQUESTED, BASE + 2 * MIB + 512, 1000);
    CHECK_INT(ml_ledger_apply(ledger, &event), 0);
    CHECK_UINT(event.origin_stack, 9);
    ml_ledger_clear(ledger, NULL);
    CHECK_TOTALS(ledger, 0, 0, 0, 0);
    CHECK_BLOCKS(ledger, "");
    ml_ledger_free(ledger);
}

/* Events that do not fit are counted and leave the ledger whole. */
static void
test_problems(void)
{
    ml_ledger *ledger;
    CHECK_INT(ml_ledger_new(&ledger, NULL, 0), 0);
    /* Nothing is there: a segment is made up, and leaves with its block. */
    CHECK_INT(apply(ledger, ML_ACTION_ALLOC, BASE, 1000), ML_LEDGER_ALLOC_UNKNOWN);
    CHECK_BLOCKS(ledger, "[1: 1*]");
    CHECK_FITS(ledger, FREE_REQUESTED, BASE, 1000);
    CHECK_INT(apply(ledger, ML_ACTION_FREE_REQUESTED, BASE, 1000),
              ML_LEDGER_FREE_UNKNOWN);
    CHECK_FITS(ledger, FREE_COMPLETED, BASE, 1000);
    CHECK_BLOCKS(ledger, "");
    CHECK_INT(apply(ledger, ML_ACTION_FREE_COMPLETED, BASE, 1000),
              ML_LEDGER_FREE_UNKNOWN);
    CHECK_INT(apply(ledger, ML_ACTION_SEGMENT_FREE, BASE, MIB),
              ML_LEDGER_SEGMENT_UNKNOWN);
    CHECK_INT(apply(ledger, ML_ACTION_SEGMENT_UNMAP, BASE, 0),
              ML_LEDGER_SEGMENT_UNKNOWN);
    CHECK_INT(apply(ledger, ML_ACTION_SEGMENT_MAP, UINT64_MAX - 511, 1024),
              ML_LEDGER_SEGMENT_UNKNOWN);

    /* Twice the same block: the first was freed unseen. */
    CHECK_FITS(ledger, SEGMENT_ALLOC, BASE, 2 * MIB);
    CHECK_FITS(ledger, ALLOC, BASE, 1024);
    CHECK_INT(apply(ledger, ML_ACTION_ALLOC, BASE, 512), ML_LEDGER_ALLOC_TAKEN);
    CHECK_BLOCKS(ledger, "[2048: 0.5* 2047.5]");
    /* In the middle of a free block, then over the block before it and after it. */
    CHECK_INT(apply(ledger, ML_ACTION_ALLOC, BASE + 2048, 512), ML_LEDGER_ALLOC_TAKEN);
    CHECK_BLOCKS(ledger, "[2048: 0.5* 1.5 0.5* 2045.5]");
    CHECK_INT(apply(ledger, ML_ACTION_ALLOC, BASE + 512, 4096), ML_LEDGER_ALLOC_SMALL);
    CHECK_BLOCKS(ledger, "[2048: 0.5* 4* 2043.5]");
    CHECK_INT(apply(ledger, ML_ACTION_ALLOC, BASE + 1024, 512), ML_LEDGER_ALLOC_TAKEN);
    CHECK_BLOCKS(ledger, "[2048: 0.5* 0.5 0.5* 2046.5]");
    CHECK_INT(apply(ledger, ML_ACTION_FREE_COMPLETED, BASE, 512),
              ML_LEDGER_FREE_UNREQUESTED);
    CHECK_BLOCKS(ledger, "[2048: 1 0.5* 2046.5]");
    /* A new segment over it, and one freed with a block in use. */
    CHECK_INT(apply(ledger, ML_ACTION_SEGMENT_ALLOC, BASE + MIB, 2 * MIB),
              ML_LEDGER_SEGMENT_TAKEN);
    CHECK_BLOCKS(ledger, "[2048: 2048]");
    CHECK_FITS(ledger, ALLOC, BASE + MIB, 512);
    CHECK_INT(apply(ledger, ML_ACTION_SEGMENT_FREE, BASE + MIB, 2 * MIB),
              ML_LEDGER_SEGMENT_IN_USE);
    CHECK_BLOCKS(ledger, "");
    CHECK_TOTALS(ledger, 0, 0, 0, 0);
    CHECK_UINT(ml_ledger_get_totals(ledger).inconsistencies, 13);

    /* What was taken for slack turns out to be a block. */
    CHECK_FITS(ledger, SEGMENT_ALLOC, BASE, 20 * MIB);
    CHECK_FITS(ledger, ALLOC, BASE, 19 * MIB);
    CHECK_INT(apply(ledger, ML_ACTION_ALLOC, BASE + 19 * MIB, MIB),
              ML_LEDGER_ALLOC_TAKEN);
    CHECK_BLOCKS(ledger, "[20480: 19456* 1024*]");
    CHECK_TOTALS(ledger, 20 * MIB, 20 * MIB, 20 * MIB, 20 * MIB);
    ml_ledger_free(ledger);
}

/* A full table is counted, and room that comes back is used again. */
static void
test_full(void)
{
    ml_ledger *ledger;
    CHECK_INT(ml_ledger_new(&ledger, NULL, 1), 0); /* raised to the least, 1024 */
    CHECK_FITS(ledger, SEGMENT_ALLOC, BASE, 2 * MIB);
    for (uint64_t i = 0; i < 1023; i++) {
        CHECK_FITS(ledger, ALLOC, BASE + i * 512, 512);
    }
    CHECK_VALID(ledger);
    CHECK_UINT(ml_ledger_get_totals(ledger).full, 0);
    CHECK_INT(apply(ledger, ML_ACTION_ALLOC, BASE + 1023 * 512, 512),
              ML_LEDGER_TABLE_FULL);
    CHECK_INT(apply(ledger, ML_ACTION_SEGMENT_ALLOC, BASE + 4 * MIB, 2 * MIB),
              ML_LEDGER_TABLE_FULL);
    ml_block block = {.addr = BASE, .size = 512, .state = ML_BLOCK_ALLOCATED};
    ml_segment segment = {.addr = BASE + 4 * MIB, .total = 2 * MIB};
    CHECK_INT(ml_ledger_seed_segment(ledger, &segment), ML_EFULL);
    CHECK_INT(ml_ledger_seed_block(ledger, &block), ML_EINVALID);
    CHECK_UINT(ml_ledger_get_totals(ledger).full, 2);
    CHECK_VALID(ledger);
    for (uint64_t i = 0; i < 1024; i++) {
        CHECK_FITS(ledger, FREE_REQUESTED, BASE + i * 512, 512);
        CHECK_FITS(ledger, FREE_COMPLETED, BASE + i * 512, 512);
    }
    CHECK_BLOCKS(ledger, "[2048: 2048]");
    CHECK_FITS(ledger, SEGMENT_ALLOC, BASE + 4 * MIB, 2 * MIB);
    CHECK_VALID(ledger);
    ml_ledger_free(ledger);
}

static void *
failing_realloc(void *pointer, size_t bytes)
{
    if (bytes == 0) {
        free(pointer);
    }
    return NULL;
}

static void
test_no_memory(void)
{
    ml_ledger *ledger = NULL;
    ml_set_realloc(failing_realloc);
    int result = ml_ledger_new(&ledger, NULL, 0);
    ml_set_realloc(NULL);
    CHECK_INT(result, ML_ENOMEM);
    CHECK_PTR(ledger, NULL);
    ml_ledger_free(NULL);
}

/* Peaks of each total alone, from a reset on. */
static void
test_peaks(void)
{
    ml_ledger *ledger;
    ml_totals current, peak;
    CHECK_INT(ml_ledger_new(&ledger, NULL, 0), 0);
    CHECK_FITS(ledger, SEGMENT_ALLOC, BASE, 2 * MIB);
    CHECK_FITS(ledger, ALLOC, BASE, 1024);
    CHECK_FITS(ledger, FREE_REQUESTED, BASE, 1024);
    CHECK_FITS(ledger, ALLOC, BASE + 1024, 512);
    ml_ledger_read_totals(ledger, &current, &peak);
    CHECK_UINT(current.allocated, 512);
    CHECK_UINT(current.active, 1536);
    CHECK_UINT(peak.allocated, 1024);
    CHECK_UINT(peak.active, 1536);
    ml_ledger_reset_peaks(ledger);
    ml_ledger_read_totals(ledger, &current, &peak);
    CHECK_UINT(peak.allocated, 512);
    CHECK_UINT(ml_ledger_get_totals(ledger).peak.allocated, 512);
    CHECK_FITS(ledger, ALLOC, BASE + 1536, 512);
    CHECK_FITS(ledger, FREE_REQUESTED, BASE + 1536, 512);
    ml_ledger_read_totals(ledger, &current, &peak);
    CHECK_UINT(current.allocated, 512);
    CHECK_UINT(peak.allocated, 1024);
    CHECK_UINT(peak.active, 2048);
    ml_ledger_free(ledger);
}

/* ---- Readers beside the writer ---- */

typedef struct reader {
    ml_ledger *ledger;
    _Atomic bool stop;
    uint64_t torn;
} reader;

static void *
read_totals(void *context)
{
    reader *r = context;
    while (!r->stop) {
        ml_totals current, peak;
        ml_ledger_read_totals(r->ledger, &current, &peak);
        /* The writer below keeps these true at every event. */
        r->torn += current.allocated != current.active ||
                   current.allocated != current.requested ||
                   peak.allocated < current.allocated;
    }
    return NULL;
}

static void
test_readers(void)
{
    reader r = {.torn = 0};
    pthread_t thread;
    ml_allocator_rules rules = {.has_segments = 0};
    CHECK_INT(ml_ledger_new(&r.ledger, &rules, 0), 0);
    CHECK_INT(pthread_create(&thread, NULL, read_totals, &r), 0);
    for (uint64_t i = 0; i < 100000; i++) {
        apply(r.ledger, ML_ACTION_ALLOC, 64 * (i % 100), i);
        apply(r.ledger, ML_ACTION_FREE_COMPLETED, 64 * (i * 7 % 100), 0);
        if (i % 1000 == 0) {
            ml_ledger_reset_peaks(r.ledger);
        }
    }
    r.stop = true;
    pthread_join(thread, NULL);
    CHECK_UINT(r.torn, 0);
    ml_ledger_free(r.ledger);
}

int
main(void)
{
    RUN(test_round);
    RUN(test_split_and_merge);
    RUN(test_slack);
    RUN(test_max_split);
    RUN(test_deferred_free);
    RUN(test_expandable);
    RUN(test_expandable_neighbours);
    RUN(test_no_change);
    RUN(test_event_is_filled);
    RUN(test_known_block_bytes);
    RUN(test_bare);
    RUN(test_seed);
    RUN(test_problems);
    RUN(test_full);
    RUN(test_no_memory);
    RUN(test_peaks);
    RUN(test_readers);
    return TEST_RESULT();
}
