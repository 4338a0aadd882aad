/* Every thread has a number of its own. */
#include "base/system/thread_number.h"

#include <pthread.h>

#include "test.h"

#define THREADS 8

static void *
take_number(void *context)
{
    uint32_t *numbers = context;
    numbers[0] = ml_thread_number();
    numbers[1] = ml_thread_number();
    return NULL;
}

static void
test_a_number_is_a_threads_own_and_stays(void)
{
    uint32_t numbers[THREADS + 1][2];
    take_number(numbers[THREADS]);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        CHECK_INT(pthread_create(&thread, NULL, take_number, numbers[i]), 0);
        /* A thread that has ended does not pass its number on. */
        pthread_join(thread, NULL);
    }
    for (size_t i = 0; i <= THREADS; i++) {
        CHECK(numbers[i][0] > 0);
        CHECK_UINT(numbers[i][0], numbers[i][1]);
        for (size_t k = 0; k < i; k++) {
            CHECK(numbers[i][0] != numbers[k][0]);
        }
    }
}

int
main(void)
{
    RUN(test_a_number_is_a_threads_own_and_stays);
    return TEST_RESULT();
}
