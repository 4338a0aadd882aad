/* Preloaded: a thread that asked for it holds a certain lock of libtorch_cpu, once it takes
 * it, until another thread waits for it, or for one of memlab's bridge, or let_go() is
 * called.  So a fork happens while that lock is held, unless the fork waits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

static _Thread_local int learns;
static _Thread_local int wants_to_hold;
static _Atomic(pthread_mutex_t *) learned;
static _Atomic(pthread_mutex_t *) held;
static atomic_int wanted;

/* The lock is the next one of libtorch_cpu that the calling thread takes. */
void
learn(void)
{
    learns = 1;
}

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
is_of(pthread_mutex_t *mutex, const char *library)
{
    Dl_info info;
    return dladdr(mutex, &info) != 0 && strstr(info.dli_fname, library) != NULL;
}

int
pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*_Atomic next)(pthread_mutex_t *);
    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    }
    if (learns && is_of(mutex, "libtorch_cpu")) {
        learns = 0;
        atomic_store(&learned, mutex);
    }
    pthread_mutex_t *now = atomic_load(&held);
    if (now != NULL && (mutex == now || is_of(mutex, "memlab/_torch"))) {
        if (pthread_mutex_trylock(mutex) == 0) {
            return 0;
        }
        atomic_store(&wanted, 1);
    }
    int result = next(mutex);
    if (wants_to_hold && mutex == atomic_load(&learned)) {
        wants_to_hold = 0;
        atomic_store(&held, mutex);
        while (!atomic_load(&wanted)) {
            sched_yield();
        }
        atomic_store(&held, NULL);
    }
    return result;
}
