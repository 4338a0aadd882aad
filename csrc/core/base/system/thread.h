/* A thread of memlab's own in somebody else's program: its stack is small, and signals
 * stay the program's. */
#ifndef ML_THREAD_H
#define ML_THREAD_H

#include <pthread.h>

/* Starts a thread that runs RUN.  All signals are blocked there but those of its own
 * faults, which cannot be.  0 or ML_ENOMEM. */
int ml_thread_start(pthread_t *thread, void *(*run)(void *context), void *context);

#endif
