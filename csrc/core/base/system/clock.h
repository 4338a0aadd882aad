/* The system's clocks, in ns, and waiting by them. */
#ifndef ML_CLOCK_H
#define ML_CLOCK_H

#include <stdint.h>

uint64_t ml_clock_unix_ns(void);   /* since 1970; 0: not known */
uint64_t ml_clock_boot_ns(void);   /* since boot, sleep included; 0: not known */
uint64_t ml_clock_steady_ns(void); /* since some moment; never set back */

void ml_clock_rest(uint64_t ns); /* this thread waits, or less if a signal arrives */

#endif
