/* Finds the CUDA driver that this process has loaded.  See driver.h. */
#include "gpu/driver.h"

#include <stdatomic.h>

#include "base/system/clock.h"
#include "base/system/library.h"

/* A closing thread first marks the gate and then counts the threads inside.  An
 * entering thread first counts itself and then reads the gate.  One of the two sees the
 * other. */
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
    return ml_library_loaded("libcuda.so.1");
}

bool
ml_driver_close(unsigned limit_ms)
{
    atomic_store(&gate.closed, true);
    for (unsigned waited = 0; atomic_load(&gate.inside) > 0; waited++) {
        if (waited >= limit_ms) {
            ml_driver_open();
            return false;
        }
        ml_clock_rest(1000000);
    }
    return true;
}

void
ml_driver_open(void)
{
    atomic_store(&gate.closed, false);
}
