/* The numbers of a process's threads. */
#ifndef ML_THREAD_NUMBER_H
#define ML_THREAD_NUMBER_H

#include <stdint.h>

/* HOT: from the allocator's callback.  The small number of the calling thread, from 1; no
 * other thread of the process ever has it. */
uint32_t ml_thread_number(void);

#endif
