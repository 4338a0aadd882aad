/* The allocator model's private pools. */
#include "lab/simulator/allocator.h"

#include "allocator_fixture.h"
#include "test.h"

/* A private pool has memory of its own, which goes back once nobody uses the pool. */
static void
test_private_pool(void)
{
    fixture f;
    set_up(&f, "");
    drop(&f, get(&f, 12 * MIB));
    CHECK_INT(ml_allocator_pool_begin(f.allocator, PRIVATE_POOL, 0), 0);
    CHECK_INT(ml_allocator_pool_begin(f.allocator, PRIVATE_POOL, 0), ML_EINVALID);
    uint64_t a = get_from(&f, 12 * MIB, 0, PRIVATE_POOL);
    CHECK_UINT(a, 12 * MIB);
    drop(&f, a);
    /* Up to 2.11 nothing goes back while a pool is begun. */
    f.log[0] = '\0';
    CHECK_INT(ml_allocator_empty_cache(f.allocator), 0);
    CHECK_STR(f.log, "");
    CHECK_INT(ml_allocator_pool_end(f.allocator, PRIVATE_POOL), 0);
    CHECK_INT(ml_allocator_empty_cache(f.allocator), 0);
    CHECK_STR(f.log, "s0+12M ");
    CHECK_INT(ml_allocator_pool_release(f.allocator, PRIVATE_POOL), 0);
    CHECK_INT(ml_allocator_empty_cache(f.allocator), 0);
    CHECK_STR(f.log, "s0+12M s12M+12M ");
    TEAR_DOWN(f);
}

/* Pools that lend their free blocks, and pools that do not cut theirs. */
static void
test_pool_flags(void)
{
    fixture f;
    set_up(&f, "");
    CHECK_INT(ml_allocator_pool_begin(f.allocator, PRIVATE_POOL,
                                      ML_POOL_USE_ON_OOM | ML_POOL_NO_SPLIT),
              0);
    uint64_t a = get_from(&f, 30 * MIB, 0, PRIVATE_POOL);
    CHECK_UINT(get_from(&f, 2 * MIB, 0, PRIVATE_POOL), 30 * MIB);
    CHECK_UINT(get_from(&f, 2 * MIB, 0, PRIVATE_POOL), 50 * MIB);
    CHECK_INT(ml_allocator_pool_end(f.allocator, PRIVATE_POOL), 0);
    drop(&f, a);
    f.left = 0;
    CHECK_UINT(get(&f, 12 * MIB), a);
    CHECK_UINT(ml_allocator_get_stats(f.allocator)->current.allocated, 70 * MIB);
    TEAR_DOWN(f);
}

int
main(void)
{
    RUN(test_private_pool);
    RUN(test_pool_flags);
    return TEST_RESULT();
}
