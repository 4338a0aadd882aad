/* The CUDA driver that this process has loaded, and whether it may be called now.
 *
 * Owns the search for libcuda.so.1 among the loaded libraries, and the gate before the
 * driver and its management library NVML.  While the process's CUDA context is away
 * (checkpoint.h), both block their callers, so memlab calls neither.  It never loads
 * the driver or initialises CUDA.  Any thread; no lock. */
#ifndef ML_DRIVER_H
#define ML_DRIVER_H

#include <stdbool.h>

/* The message if the gate is closed. */
#define ML_DRIVER_CLOSED \
    "the CUDA context of this process is given back, and the driver is not asked " \
    "until it " \
    "is taken again"

/* Call it before the driver or NVML; not twice by one thread.  False if the gate is
 * closed; then there is nothing to leave. */
bool ml_driver_enter(void);
void ml_driver_leave(void);

/* The loaded driver, a library (library.h) that the caller closes; NULL: none is
 * loaded. */
void *ml_driver_loaded(void);

/* Closes the gate and waits until no thread is inside.  False if one still is after
 * LIMIT_MS milliseconds: the gate is then open again. */
bool ml_driver_close(unsigned limit_ms);
void ml_driver_open(void);

#endif
