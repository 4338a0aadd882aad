/* Gives this process's CUDA contexts, with all their memory, back to the GPUs for a
 * while, by the driver's checkpoint of its own process (drivers from 570 on).
 *
 * Owns the order of the driver's calls, the recovery from failures, and the words for
 * these.  It never loads the driver or initialises CUDA.
 *
 * While the contexts are away, every CUDA call of any thread waits in the driver;
 * memlab makes none (driver.h).  The work takes seconds: no caller holds a lock or the
 * GIL.  Any thread; two at once are refused. */
#ifndef ML_CHECKPOINT_H
#define ML_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>

/* The driver's calls, with its own signatures; results are its CUresult. */
typedef struct ml_checkpoint_calls {
    int (*get_state)(int pid, int *state);
    int (*lock)(int pid, void *arguments);
    int (*checkpoint)(int pid, void *arguments);
    int (*restore)(int pid, void *arguments);
    int (*unlock)(int pid, void *arguments);
} ml_checkpoint_calls;

/* For tests: replaces the loaded driver's; NULL restores them. */
void ml_checkpoint_use(const ml_checkpoint_calls *calls);

/* Room for a failure's text in PROBLEM of PROBLEM_BYTES: what failed, why, and what to
 * do. */
#define ML_CHECKPOINT_TEXT 1024

/* Whether there is a context that the driver can give back. 1, 0 without a context, or
 * ML_E*; PROBLEM says why for the latter two.  Changes nothing. */
int ml_checkpoint_check(char *problem, size_t problem_bytes);

/* Gives the contexts back.  Waits at most LIMIT_MS milliseconds for a thread inside
 * CUDA.  0, or ML_E* with PROBLEM; the contexts are then in place, unless
 * ml_checkpoint_is_away. */
int ml_checkpoint_give(unsigned limit_ms, char *problem, size_t problem_bytes);

/* Takes them back, from any state of the process that the driver reports.  0, or ML_E*
 * with PROBLEM; it can then be tried again. */
int ml_checkpoint_take(char *problem, size_t problem_bytes);

/* Whether the contexts were given and not yet taken back. */
bool ml_checkpoint_is_away(void);

#endif
