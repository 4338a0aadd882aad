/* A thread of memlab's own in another program: its stack is small, and signals stay
 * with the program's threads. */
#ifndef ML_THREAD_H
#define ML_THREAD_H

#include <pthread.h>

/* Starts a thread that runs RUN.  It blocks all signals except its own faults, which
 * cannot be blocked.  0 or ML_ENOMEM. */
int ml_thread_start(pthread_t *thread, void *(*run)(void *context), void *context);

#endif
