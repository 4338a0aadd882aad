/* Makes memory barriers in other threads.  See barrier.h. */
#define _GNU_SOURCE 1 /* syscall */

#include "base/system/barrier.h"

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

/* <linux/membarrier.h>, which older headers lack; Linux 4.14. */
#define GLOBAL 1
#define PRIVATE_EXPEDITED (1 << 3)
#define REGISTER_PRIVATE_EXPEDITED (1 << 4)

bool
ml_barrier_prepare(void)
{
    return syscall(SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void
ml_barrier_in_all(void)
{
    /* Without memory for it, the slow one, which needs none. */
    while (syscall(SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) != 0 &&
           syscall(SYS_membarrier, GLOBAL, 0, 0) != 0) {
        sched_yield();
    }
}
#else
bool
ml_barrier_prepare(void)
{
    return false;
}

void
ml_barrier_in_all(void)
{
}
#endif
