/* What a thread saw at its last walk: its own in each table of stacks, and never two
 * threads' at once. */
#define _GNU_SOURCE 1 /* pthread_barrier_t */

#include "stacks/stack_cache.h"

#include <pthread.h>

#include "test.h"

/* More threads than have a place each. */
#define THREADS 160

typedef struct taker {
    const ml_stacks *stacks;
    ml_stack_cache *taken;
    pthread_barrier_t *all_hold;
} taker;

static void *
take(void *context)
{
    taker *self = context;
    self->taken = ml_stack_cache_take(self->stacks);
    pthread_barrier_wait(self->all_hold);
    if (self->taken != NULL) {
        ml_stack_cache_give_back(self->taken);
    }
    return NULL;
}

static void
test_no_two_threads_have_one(void)
{
    ml_stacks *stacks;
    pthread_t threads[THREADS];
    static taker takers[THREADS];
    pthread_barrier_t all_hold;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    pthread_barrier_init(&all_hold, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++) {
        takers[i] = (taker){.stacks = stacks, .all_hold = &all_hold};
        CHECK_INT(pthread_create(&threads[i], NULL, take, &takers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    size_t without = 0;
    for (size_t i = 0; i < THREADS; i++) {
        without += takers[i].taken == NULL;
        for (size_t k = 0; k < i; k++) {
            CHECK(takers[i].taken == NULL || takers[i].taken != takers[k].taken);
        }
    }
    /* 64 have a place each; the others share 64. */
    CHECK(without >= THREADS - 128 && without < THREADS - 64);
    pthread_barrier_destroy(&all_hold);
    ml_stacks_free(stacks);
}

static void
test_a_table_knows_nothing_of_another(void)
{
    ml_stacks *first, *second;
    CHECK_INT(ml_stacks_new(&first, NULL), 0);
    CHECK_INT(ml_stacks_new(&second, NULL), 0);
    ml_stack_cache *of_first = ml_stack_cache_take(first);
    CHECK(of_first != NULL);
    of_first->walked.count = 3;
    ml_stack_cache_give_back(of_first);
    ml_stack_cache *of_second = ml_stack_cache_take(second);
    CHECK(of_second != NULL && of_second != of_first);
    CHECK_UINT(of_second->walked.count, 0);
    ml_stack_cache_give_back(of_second);
    CHECK_PTR(ml_stack_cache_take(first), of_first);
    CHECK_UINT(of_first->walked.count, 3);
    ml_stack_cache_give_back(of_first);
    ml_stacks_free(first);
    ml_stacks_free(second);
}

/* Another object may have its address, and its id. */
static void
test_nothing_is_known_after_an_object_died(void)
{
    const ml_object_key key = {.address = 0x1000, .type = 0x2000};
    const ml_slice name = {.bytes = "Linear", .length = 6};
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    ml_stacks_object(stacks, key, &name);
    ml_stack_cache *taken = ml_stack_cache_take(stacks);
    taken->walked.count = 3;
    ml_stack_cache_give_back(taken);
    ml_stacks_forget_object(stacks, key.address);
    CHECK_PTR(ml_stack_cache_take(stacks), taken);
    CHECK_UINT(taken->walked.count, 0);
    ml_stack_cache_give_back(taken);
    ml_stacks_free(stacks);
}

int
main(void)
{
    RUN(test_a_table_knows_nothing_of_another);
    RUN(test_nothing_is_known_after_an_object_died);
    RUN(test_no_two_threads_have_one);
    return TEST_RESULT();
}
