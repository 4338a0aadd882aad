/* The system's clocks.  See clock.h. */
#define _GNU_SOURCE /* CLOCK_BOOTTIME */
#include "base/system/clock.h"

#include <time.h>

static uint64_t
read_clock(clockid_t clock)
{
    struct timespec now;
    return clock_gettime(clock, &now) != 0
               ? 0
               : (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t
ml_clock_unix_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

uint64_t
ml_clock_boot_ns(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

uint64_t
ml_clock_steady_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

void
ml_clock_rest(uint64_t ns)
{
    const struct timespec pause = {.tv_sec = (time_t)(ns / UINT64_C(1000000000)),
                                   .tv_nsec = (long)(ns % UINT64_C(1000000000))};
    nanosleep(&pause, NULL);
}
