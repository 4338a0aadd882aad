/* Threads of memlab's own leave the program's signals alone. */
#define _GNU_SOURCE 1 /* sigset_t, pthread_sigmask */

#include "base/system/thread.h"

#include <signal.h>

#include "test.h"

static void *
read_mask(void *context)
{
    pthread_sigmask(SIG_BLOCK, NULL, context);
    return NULL;
}

static void
test_signals_stay_with_the_program(void)
{
    pthread_t thread;
    sigset_t before, after, inside;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    CHECK_INT(ml_thread_start(&thread, read_mask, &inside), 0);
    pthread_join(thread, NULL);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    CHECK(sigismember(&inside, SIGINT) == 1 && sigismember(&inside, SIGTERM) == 1 &&
          sigismember(&inside, SIGALRM) == 1);
    CHECK(sigismember(&inside, SIGSEGV) == 0 && sigismember(&inside, SIGBUS) == 0);
    CHECK_INT(sigismember(&after, SIGINT), sigismember(&before, SIGINT));
}

int
main(void)
{
    RUN(test_signals_stay_with_the_program);
    return TEST_RESULT();
}
