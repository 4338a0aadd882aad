/* The allocator model's expandable segments: pages in one address space, and where
 * memory or room runs out. */
#include "lab/simulator/allocator.h"

#include "allocator_fixture.h"
#include "test.h"

/* Pages of 20 MiB behind each other in one address space of 9/8 of the device;
 * blocks are cut exactly, and whole free pages go back. */
static void
test_expandable(void)
{
    fixture f;
    set_up(&f, "expandable_segments:True");
    CHECK_UINT(get(&f, 15 * MIB), 0);
    CHECK_UINT(get(&f, 15 * MIB), 15 * MIB);
    CHECK_STR(f.log, "M0+20M a0+15M M20M+20M a15M+15M ");
    CHECK_UINT(f.next_space - SPACE, 1160 * MIB); /* 1152, in whole pages */
    drop(&f, 0);
    f.log[0] = '\0';
    /* 15 MiB and 10 more are free, apart; the end grows, as the hole is too small. */
    CHECK_UINT(get(&f, 25 * MIB), 30 * MIB);
    CHECK_STR(f.log, "M40M+20M a30M+25M ");
    drop(&f, 15 * MIB);
    f.log[0] = '\0';
    CHECK_INT(ml_allocator_empty_cache(f.allocator), 0);
    /* Of [0, 30) the first page; of [55, 60) none. */
    CHECK_STR(f.log, "U0+20M ");
    f.log[0] = '\0';
    /* The lowest place that has room: the unmapped page and the 10 MiB behind it. */
    CHECK_UINT(get(&f, 28 * MIB), 0);
    CHECK_STR(f.log, "M0+20M a0+28M ");
    drop(&f, 0);
    drop(&f, 30 * MIB);
    f.log[0] = '\0';
    CHECK_INT(ml_allocator_empty_cache(f.allocator), 0);
    CHECK_STR(f.log, "U0+60M ");
    CHECK_UINT(ml_allocator_get_stats(f.allocator)->current.reserved, 0);
    TEAR_DOWN(f);
}

/* What was mapped before memory ran out stays, free. */
static void
test_expandable_fails(void)
{
    fixture f;
    set_up(&f, "expandable_segments:True");
    f.left = 50 * MIB;
    CHECK_UINT(get(&f, 40 * MIB), 0);
    CHECK_UINT(get(&f, 20 * MIB), UINT64_MAX);
    CHECK_STR(f.log, "M0+40M a0+40M O10M+20M ");
    drop(&f, 0);
    CHECK_UINT(get(&f, 60 * MIB), UINT64_MAX);
    /* 60 want one page more; it is not there, nor is it after the 40 went. */
    CHECK_STR(f.log, "M0+40M a0+40M O10M+20M f0+40M F0+40M U0+40M O50M+60M ");
    TEAR_DOWN(f);
}

/* However much memory there is: what the address space has no room for is not there.
 * The two tries leave an address space each, as torch's do, of which the first
 * serves later. */
static void
test_expandable_has_no_room(void)
{
    fixture f;
    set_up(&f, "expandable_segments:True");
    f.left = UINT64_C(1) << 40;
    CHECK_UINT(get(&f, 2000 * MIB), UINT64_MAX);
    CHECK_UINT(f.next_space, SPACE + UINT64_C(2) * 1160 * MIB);
    CHECK_UINT(get(&f, 1100 * MIB), 0);
    CHECK_UINT(f.next_space, SPACE + UINT64_C(2) * 1160 * MIB);
    TEAR_DOWN(f);
}

int
main(void)
{
    RUN(test_expandable);
    RUN(test_expandable_fails);
    RUN(test_expandable_has_no_room);
    return TEST_RESULT();
}
