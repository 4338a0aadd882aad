/* Preloaded: a thread that asked for it holds the next lock of libtorch_cpu that it takes,
 * until another thread wants it too, or let_go() is called.  So a fork happens while that
 * lock is held. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

static _Thread_local int wants_to_hold;
static _Atomic(pthread_mutex_t *) held;
static atomic_int wanted;

void
hold_next(void)
{
    wants_to_hold = 1;
}

int
is_held(void)
{
    return atomic_load(&held) != NULL;
}

void
let_go(void)
{
    atomic_store(&wanted, 1);
}

static int
is_torchs(pthread_mutex_t *mutex)
{
    Dl_info info;
    return dladdr(mutex, &info) != 0 && strstr(info.dli_fname, "libtorch_cpu") != NULL;
}

int
pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*_Atomic next)(pthread_mutex_t *);
    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    }
    if (mutex == atomic_load(&held)) {
        atomic_store(&wanted, 1);
    }
    int result = next(mutex);
    if (wants_to_hold && is_torchs(mutex)) {
        wants_to_hold = 0;
        atomic_store(&held, mutex);
        while (!atomic_load(&wanted)) {
            sched_yield();
        }
        atomic_store(&held, NULL);
    }
    return result;
}
