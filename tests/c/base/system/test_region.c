/* Reserved address space: zeros until written, smaller where refused, really given back. */

/* For resident.h. */
#define _DEFAULT_SOURCE 1

#include "base/system/region.h"

#include <stdint.h>
#include <sys/resource.h>

#include "memlab.h"
#include "resident.h"
#include "test.h"

#define MIB ((size_t)1 << 20)

static void
test_reads_zero_and_keeps_what_is_written(void)
{
    ml_region region;
    CHECK_INT(ml_region_init(&region, 4 * MIB, MIB), 0);
    CHECK_UINT(region.bytes, 4 * MIB);
    unsigned char *bytes = region.base;
    CHECK_INT(bytes[0], 0);
    CHECK_INT(bytes[4 * MIB - 1], 0);
    bytes[0] = 7;
    bytes[4 * MIB - 1] = 9;
    CHECK_INT(bytes[0], 7);
    CHECK_INT(bytes[4 * MIB - 1], 9);
    ml_region_fini(&region);
}

static void
test_takes_memory_at_the_first_touch_only(void)
{
    ml_region region;
    CHECK_INT(ml_region_init(&region, 64 * MIB, 64 * MIB), 0);
    CHECK_UINT(resident_bytes(&region), 0);
    ((unsigned char *)region.base)[40 * MIB] = 1;
    size_t resident = resident_bytes(&region);
    /* One page, however large; never all of it. */
    CHECK(resident > 0 && resident <= 2 * MIB);
    ml_region_fini(&region);
}

static void
test_discard_gives_zeros_again(void)
{
    ml_region region;
    CHECK_INT(ml_region_init(&region, MIB, MIB), 0);
    memset(region.base, 0xff, MIB);
    ml_region_discard(&region);
    for (size_t i = 0; i < MIB; i += 511) {
        CHECK_INT(((unsigned char *)region.base)[i], 0);
    }
    ml_region_fini(&region);
}

static void
test_takes_a_half_of_what_is_refused(void)
{
    /* No machine has 2^60 bytes of addresses. */
    size_t huge = (size_t)1 << 60;
    ml_region region;
    CHECK_INT(ml_region_init(&region, huge, huge), ML_ENOMEM);
    CHECK_INT(ml_region_init(&region, huge, MIB), 0);
    CHECK(region.bytes >= MIB && region.bytes < huge);
    CHECK_UINT(huge % region.bytes, 0);
    ((unsigned char *)region.base)[region.bytes - 1] = 1;
    ml_region_fini(&region);
}

static void
test_leaves_most_of_a_limit_to_the_program(void)
{
    struct rlimit before;
    CHECK_INT(getrlimit(RLIMIT_AS, &before), 0);
    struct rlimit now = {(rlim_t)1 << 45, before.rlim_max};
    if (setrlimit(RLIMIT_AS, &now) != 0) {
        printf("skipped: no limit of addresses can be set\n");
        return;
    }
    ml_region small, none;
    CHECK_INT(ml_region_init(&small, (size_t)1 << 44, MIB), 0);
    CHECK_UINT(small.bytes, (size_t)1 << 42);
    CHECK_INT(ml_region_init(&none, (size_t)1 << 43, (size_t)1 << 43), ML_ENOMEM);
    setrlimit(RLIMIT_AS, &before);
    ml_region_fini(&small);
}

static void
test_refuses_senseless_sizes_and_leaves_the_region_alone(void)
{
    ml_region region = {.base = &region, .bytes = 5};
    CHECK_INT(ml_region_init(&region, MIB, 0), ML_EINVALID);
    CHECK_INT(ml_region_init(&region, MIB, 2 * MIB), ML_EINVALID);
    CHECK_PTR(region.base, &region);
    CHECK_UINT(region.bytes, 5);
}

static void
test_fini_takes_empty_regions(void)
{
    ml_region region = {0};
    ml_region_fini(&region);
    CHECK_INT(ml_region_init(&region, MIB, MIB), 0);
    ml_region_fini(&region);
    CHECK_PTR(region.base, NULL);
    ml_region_fini(&region);
}

int
main(void)
{
    RUN(test_reads_zero_and_keeps_what_is_written);
    RUN(test_takes_memory_at_the_first_touch_only);
    RUN(test_discard_gives_zeros_again);
    RUN(test_takes_a_half_of_what_is_refused);
    RUN(test_leaves_most_of_a_limit_to_the_program);
    RUN(test_refuses_senseless_sizes_and_leaves_the_region_alone);
    RUN(test_fini_takes_empty_regions);
    return TEST_RESULT();
}
