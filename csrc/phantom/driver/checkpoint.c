/* The driver's checkpoint of a process: the states, and the calls that wait meanwhile.
 *
 * Only of the process itself: no other is a phantom's business. From Checkpoint to
 * Restore the process takes no memory of any device; addresses, and contents where there
 * are any, stay. As the driver documents it, calls that launch work, manage resources or
 * otherwise change the GPU's state wait from Lock to Unlock, in every thread; as was seen
 * with driver 580, so does NVML, and mere questions about devices are answered.
 */
#define _GNU_SOURCE
#include "phantom.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    RUNNING,
    LOCKED,
    CHECKPOINTED
};

/* Driver 570. */
#define FIRST_CUDA 12080

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int state;       /* guarded by the lock */
static unsigned inside; /* likewise: host functions that CUDA runs */

/* What a program asked the next call of a name to answer. */
static struct {
    char call[64];
    int answer;
} asked; /* likewise */

static _Thread_local bool is_callback;

/* --- The calls that wait ------------------------------------------------------- */

void
ml_phantom_wait(void)
{
    pthread_mutex_lock(&lock);
    /* Else the callback would wait for Lock, which waits for the callback. */
    while (state != RUNNING && !is_callback) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

void
ml_phantom_run_callback(void (*call)(void *data), void *data)
{
    ml_phantom_wait();
    pthread_mutex_lock(&lock);
    inside++;
    pthread_mutex_unlock(&lock);
    is_callback = true;
    call(data);
    is_callback = false;
    pthread_mutex_lock(&lock);
    inside--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

bool
ml_phantom_is_checkpointed(void)
{
    pthread_mutex_lock(&lock);
    bool away = state == CHECKPOINTED;
    pthread_mutex_unlock(&lock);
    return away;
}

/* --- The states ---------------------------------------------------------------- */

/* For tests: the next call of the function NAME answers ANSWER and does nothing. */
ML_EXPORT(void, memlab_phantom_answer, (const char *name, int answer))
{
    pthread_mutex_lock(&lock);
    snprintf(asked.call, sizeof asked.call, "%s", name);
    asked.answer = answer;
    pthread_mutex_unlock(&lock);
}

/* Takes the lock. What there is to answer without doing anything, or success. */
static int
enter(const char *name, int pid)
{
    pthread_mutex_lock(&lock);
    if (strcmp(asked.call, name) == 0) {
        asked.call[0] = '\0';
        return asked.answer;
    }
    if (ml_phantom_driver_cuda() < FIRST_CUDA) {
        return ML_CU_NOT_SUPPORTED;
    }
    return pid == (int)getpid() ? ML_CU_SUCCESS : ML_CU_INVALID_VALUE;
}

static int
leave(int answer)
{
    pthread_mutex_unlock(&lock);
    return answer;
}

/* From one state to the next, where nothing hinders. */
static int
move(const char *name, int pid, int from, int to)
{
    int answer = enter(name, pid);

    if (answer == ML_CU_SUCCESS && state != from) {
        answer = ML_CU_ILLEGAL_STATE;
    }
    if (answer == ML_CU_SUCCESS) {
        state = to;
        pthread_cond_broadcast(&changed);
    }
    return leave(answer);
}

ML_EXPORT(int, cuCheckpointProcessGetState, (int pid, int *found))
{
    int answer = enter(__func__, pid);

    if (answer == ML_CU_SUCCESS) {
        *found = state;
    }
    return leave(answer);
}

/* Waits for what is inside; false after that many milliseconds, 0 being no limit. */
static bool
wait_for_callbacks(unsigned int milliseconds)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (inside > 0) {
        int error = milliseconds > 0 ? pthread_cond_timedwait(&changed, &lock, &until)
                                     : pthread_cond_wait(&changed, &lock);
        if (error != 0) {
            return false;
        }
    }
    return true;
}

/* The arguments begin with the limit in milliseconds. */
ML_EXPORT(int, cuCheckpointProcessLock, (int pid, const unsigned int *arguments))
{
    int answer = enter(__func__, pid);

    if (answer == ML_CU_SUCCESS && state != RUNNING) {
        answer = ML_CU_ILLEGAL_STATE;
    }
    if (answer == ML_CU_SUCCESS) {
        state = LOCKED;
        if (!wait_for_callbacks(arguments != NULL ? arguments[0] : 0)) {
            state = RUNNING;
            pthread_cond_broadcast(&changed);
            answer = ML_CU_NOT_READY;
        }
    }
    return leave(answer);
}

/* Says of every device what the process takes of it now. */
static void
post_all(void)
{
    for (int i = 0; i < ml_phantom_configure()->devices; i++) {
        if (ml_phantom_is_active(i)) {
            ml_phantom_post(i);
        }
    }
}

/* Whether others left what the process gave back. */
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

/* What it cannot take was seen on driver 580: the process stays locked. */
ML_EXPORT(int, cuCheckpointProcessCheckpoint, (int pid))
{
    bool can = !ml_phantom_has_managed();
    int answer = move(__func__, pid, LOCKED, can ? CHECKPOINTED : LOCKED);

    post_all();
    return answer == ML_CU_SUCCESS && !can ? ML_CU_NOT_SUPPORTED : answer;
}

ML_EXPORT(int, cuCheckpointProcessRestore, (int pid))
{
    bool can = has_room();
    int answer = move(__func__, pid, CHECKPOINTED, can ? LOCKED : CHECKPOINTED);

    post_all();
    return answer == ML_CU_SUCCESS && !can ? ML_CU_OUT_OF_MEMORY : answer;
}

ML_EXPORT(int, cuCheckpointProcessUnlock, (int pid))
{
    return move(__func__, pid, LOCKED, RUNNING);
}
