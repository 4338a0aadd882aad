/* How much memory of the host this process can still take. */
#ifndef ML_HOST_MEMORY_H
#define ML_HOST_MEMORY_H

#include <stdint.h>

/* Bytes: what is available, with swap, of the system, or of a control group of this process
 * that has less.  Cached files count as available: the kernel gives them up.  UINT64_MAX:
 * unknown.  Reads a dozen small files of the kernel. */
uint64_t ml_host_memory_left(void);

#endif
