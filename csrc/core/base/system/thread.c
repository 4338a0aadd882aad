/* Starts a thread of memlab's own.  See thread.h. */
#define _GNU_SOURCE 1 /* _SC_THREAD_STACK_MIN */

#include "base/system/thread.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "memlab.h"

#define STACK_BYTES ((size_t)1 << 19)

int
ml_thread_start(pthread_t *thread, void *(*run)(void *context), void *context)
{
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) {
        return ML_ENOMEM;
    }
    size_t least = (size_t)sysconf(_SC_THREAD_STACK_MIN);
    pthread_attr_setstacksize(&attributes, STACK_BYTES > least ? STACK_BYTES : least);
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, &attributes, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error == 0 ? 0 : ML_ENOMEM;
}
