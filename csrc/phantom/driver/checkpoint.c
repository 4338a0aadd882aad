/* The driver's checkpoint of a process: the calls that lock the process, take its
 * memory away and return it.
 *
 * Only the process itself can be checkpointed.  From Checkpoint to Restore, it uses no
 * memory of any device; addresses, and contents if any, stay.  By the driver's
 * documentation, calls that launch work, manage resources or otherwise change the GPU's
 * state wait from Lock to Unlock, in every thread.  With driver 580, NVML waits too,
 * and queries about devices are answered. */
#include "phantom.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Driver 570. */
#define FIRST_CUDA 12080

/* A program's request for the next call's result. */
static struct {
    char call[64];
    int answer;
} asked; /* guarded by the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* For tests: the next call of the function NAME returns ANSWER and does nothing. */
ML_EXPORT(void, memlab_phantom_answer, (const char *name, int answer))
{
    pthread_mutex_lock(&lock);
    snprintf(asked.call, sizeof asked.call, "%s", name);
    asked.answer = answer;
    pthread_mutex_unlock(&lock);
}

/* The result requested for the next call, or success. */
static int
enter(const char *name, int pid)
{
    pthread_mutex_lock(&lock);
    bool told = strcmp(asked.call, name) == 0;
    int answer = asked.answer;
    if (told) {
        asked.call[0] = '\0';
    }
    pthread_mutex_unlock(&lock);
    if (told) {
        return answer;
    }
    if (ml_phantom_driver_cuda() < FIRST_CUDA) {
        return ML_CU_NOT_SUPPORTED;
    }
    return pid == (int)getpid() ? ML_CU_SUCCESS : ML_CU_INVALID_VALUE;
}

/* Moves from one state to the next, if possible. */
static int
move(const char *name, int pid, enum ml_gate_state from, enum ml_gate_state to)
{
    int answer = enter(name, pid);

    return answer == ML_CU_SUCCESS && !ml_gate_move(from, to) ? ML_CU_ILLEGAL_STATE
                                                              : answer;
}

ML_EXPORT(int, cuCheckpointProcessGetState, (int pid, int *found))
{
    int answer = enter(__func__, pid);

    if (answer == ML_CU_SUCCESS) {
        *found = (int)ml_gate_now();
    }
    return answer;
}

/* The arguments begin with the limit in milliseconds. */
ML_EXPORT(int, cuCheckpointProcessLock, (int pid, const unsigned int *arguments))
{
    int answer = enter(__func__, pid);

    return answer == ML_CU_SUCCESS ? ml_gate_lock(arguments != NULL ? arguments[0] : 0)
                                   : answer;
}

/* Posts the process's current memory of every device. */
static void
post_all(void)
{
    for (int i = 0; i < ml_phantom_configure()->devices; i++) {
        if (ml_phantom_is_active(i)) {
            ml_phantom_post(i);
        }
    }
}

/* Whether the memory that the process gave back is still free. */
static bool
has_room(void)
{
    const ml_phantom_config *config = ml_phantom_configure();

    for (int i = 0; i < config->devices; i++) {
        if (ml_phantom_is_active(i) &&
            ml_phantom_used(i) + ml_shared_used(config->ordinals[i]) >
                config->total_bytes) {
            return false;
        }
    }
    return true;
}

/* As seen on driver 580, the process stays locked if it cannot take its memory. */
ML_EXPORT(int, cuCheckpointProcessCheckpoint, (int pid))
{
    bool can = !ml_phantom_has_managed();
    int answer = move(__func__, pid, ML_GATE_LOCKED,
                      can ? ML_GATE_CHECKPOINTED : ML_GATE_LOCKED);

    post_all();
    return answer == ML_CU_SUCCESS && !can ? ML_CU_NOT_SUPPORTED : answer;
}

ML_EXPORT(int, cuCheckpointProcessRestore, (int pid))
{
    bool can = has_room();
    int answer = move(__func__, pid, ML_GATE_CHECKPOINTED,
                      can ? ML_GATE_LOCKED : ML_GATE_CHECKPOINTED);

    post_all();
    return answer == ML_CU_SUCCESS && !can ? ML_CU_OUT_OF_MEMORY : answer;
}

ML_EXPORT(int, cuCheckpointProcessUnlock, (int pid))
{
    return move(__func__, pid, ML_GATE_LOCKED, ML_GATE_RUNNING);
}
