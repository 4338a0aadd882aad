/* The CUDA driver that this process has loaded.  See driver.h. */
#define _GNU_SOURCE /* for RTLD_NOLOAD */
#include "gpu/driver.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

/* Who closes the gate first says so and then counts who is inside; who enters first
 * counts itself and then looks at the gate: one of the two sees the other. */
static struct {
    _Atomic unsigned inside;
    _Atomic bool closed;
} gate;

bool
ml_driver_enter(void)
{
    atomic_fetch_add(&gate.inside, 1);
    if (atomic_load(&gate.closed)) {
        atomic_fetch_sub(&gate.inside, 1);
        return false;
    }
    return true;
}

void
ml_driver_leave(void)
{
    atomic_fetch_sub(&gate.inside, 1);
}

void *
ml_driver_loaded(void)
{
    return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
}

bool
ml_driver_function(void *library, const char *name, void *function)
{
    /* ISO C has no conversion from an object pointer to a function's. */
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof(found));
    return found != NULL;
}

bool
ml_driver_close(unsigned limit_ms)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    atomic_store(&gate.closed, true);
    for (unsigned waited = 0; atomic_load(&gate.inside) > 0; waited++) {
        if (waited >= limit_ms) {
            ml_driver_open();
            return false;
        }
        nanosleep(&pause, NULL);
    }
    return true;
}

void
ml_driver_open(void)
{
    atomic_store(&gate.closed, false);
}
