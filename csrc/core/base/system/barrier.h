/* A memory barrier in all threads of the process, made by one.
 *
 * A pair of threads, each of which writes a word and then reads the other's, needs a barrier
 * in both.  If one of them acts rarely, it can make the other's as well: the frequent one
 * then writes and reads plainly, in that order. */
#ifndef ML_BARRIER_H
#define ML_BARRIER_H

#include <stdatomic.h>
#include <stdbool.h>

/* Whether ml_barrier_in_all works from now on; if not, each thread makes its own. */
bool ml_barrier_prepare(void);
/* After this call, every running thread has seen all that the caller wrote before it, and
 * the caller sees all that they wrote before.  ml_barrier_prepare was true. */
void ml_barrier_in_all(void);

/* HOT.  The frequent thread's part: keeps the compiler from changing the order. */
#define ml_barrier_here() atomic_signal_fence(memory_order_seq_cst)

#endif
