/* The streams and memory pools of requests: each pair once, and a pool that no event tells. */
#include "lab/whatif/stream_pools.h"

#include "test.h"

#define MIB (UINT64_C(1) << 20)
#define A UINT64_C(0x7f0000000000)
#define B (A + 100 * MIB)

static ml_event
alloc_in(uint64_t addr, uint64_t stream, uint32_t pool)
{
    return (ml_event){.addr = addr,
                      .size = MIB,
                      .stream = stream,
                      .pool = {pool, 0},
                      .action = ML_ACTION_ALLOC,
                      .flags = ML_EVENT_POOL_KNOWN};
}

static void
test_each_pair_once(void)
{
    const ml_device_trace trace = {0};
    ml_stream_pools pools;
    CHECK_INT(ml_stream_pools_init(&pools, &trace), 0);
    /* A demand that nobody recorded goes there. */
    CHECK_UINT(pools.count, 1);
    CHECK_UINT(pools.list[0].stream, 0);
    CHECK_UINT(pools.list[0].pool[0], 0);
    const ml_event events[] = {alloc_in(A, 0, 0), alloc_in(A, 7, 0), alloc_in(A, 7, 1),
                               alloc_in(B, 0, 0), alloc_in(B, 7, 1)};
    static const uint32_t expected[] = {0, 1, 2, 0, 2};
    for (size_t i = 0; i < 5; i++) {
        uint32_t number = UINT32_MAX;
        CHECK_INT(ml_stream_pools_of_event(&pools, i, &events[i], &number), 0);
        CHECK_UINT(number, expected[i]);
    }
    CHECK_UINT(pools.count, 3);
    CHECK_UINT(pools.list[2].stream, 7);
    CHECK_UINT(pools.list[2].pool[0], 1);
    ml_stream_pools_fini(&pools);
}

/* The segment at A came before the first of both requests, the one at B between them. */
static void
test_a_pool_that_no_event_tells(void)
{
    ml_event events[] = {{.addr = A, .size = MIB, .action = ML_ACTION_ALLOC},
                         {.addr = B, .size = MIB, .action = ML_ACTION_ALLOC},
                         {.addr = B, .size = MIB, .action = ML_ACTION_SEGMENT_ALLOC},
                         {.addr = B, .size = MIB, .action = ML_ACTION_ALLOC}};
    ml_segment segments[] = {{.addr = A, .total = 2 * MIB, .pool = {5, 0}},
                             {.addr = B, .total = 2 * MIB, .pool = {6, 0}}};
    const ml_device_trace trace = {.events = {.plain = events},
                                   .event_count = 4,
                                   .segments = segments,
                                   .segment_count = 2};
    ml_stream_pools pools;
    CHECK_INT(ml_stream_pools_init(&pools, &trace), 0);
    static const uint32_t expected[] = {5, 0, 6, 6};
    for (size_t i = 0; i < 4; i++) {
        uint32_t number = UINT32_MAX;
        CHECK_INT(ml_stream_pools_of_event(&pools, i, &events[i], &number), 0);
        CHECK_UINT(pools.list[number].pool[0], expected[i]);
    }
    ml_stream_pools_fini(&pools);
}

static void
test_a_block_has_those_of_its_segment(void)
{
    const ml_segment segments[] = {
        {.addr = A, .total = 2 * MIB, .stream = 3, .pool = {5, 1}},
        {.addr = B, .total = 2 * MIB, .stream = 4}};
    const ml_device_trace trace = {0};
    ml_stream_pools pools;
    uint32_t number = UINT32_MAX;
    CHECK_INT(ml_stream_pools_init(&pools, &trace), 0);
    CHECK_INT(ml_stream_pools_of_block(&pools, segments, 2, A + MIB, &number), 0);
    CHECK_UINT(pools.list[number].stream, 3);
    CHECK_UINT(pools.list[number].pool[1], 1);
    CHECK_INT(ml_stream_pools_of_block(&pools, segments, 2, B, &number), 0);
    CHECK_UINT(pools.list[number].stream, 4);
    CHECK_INT(ml_stream_pools_of_block(&pools, segments, 2, A - MIB, &number), 0);
    CHECK_UINT(pools.list[number].stream, 0);
    ml_stream_pools_fini(&pools);
}

int
main(void)
{
    RUN(test_each_pair_once);
    RUN(test_a_pool_that_no_event_tells);
    RUN(test_a_block_has_those_of_its_segment);
    return TEST_RESULT();
}
