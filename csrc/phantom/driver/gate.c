/* The gate for calls that wait while the process is locked, and its state.
 *
 * Owns the state, and the number of running host functions called by CUDA: the gate
 * closes only after the last of them.  checkpoint.c has the driver's calls that change
 * the state. */
#define _GNU_SOURCE
#include "phantom.h"

#include <pthread.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static enum ml_gate_state state; /* guarded by the lock */
static unsigned inside;          /* likewise: running host functions called by CUDA */

static _Thread_local bool is_callback;

void
ml_phantom_wait(void)
{
    pthread_mutex_lock(&lock);
    /* Otherwise the callback would wait for Lock, which waits for the callback. */
    while (state != ML_GATE_RUNNING && !is_callback) {
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

enum ml_gate_state
ml_gate_now(void)
{
    pthread_mutex_lock(&lock);
    enum ml_gate_state now = state;
    pthread_mutex_unlock(&lock);
    return now;
}

bool
ml_gate_move(enum ml_gate_state from, enum ml_gate_state to)
{
    pthread_mutex_lock(&lock);
    bool moved = state == from;
    if (moved) {
        state = to;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return moved;
}

/* Waits for the host functions inside; false after that many milliseconds; 0: no
 * limit. */
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

int
ml_gate_lock(unsigned int milliseconds)
{
    int answer = ML_CU_SUCCESS;

    pthread_mutex_lock(&lock);
    if (state != ML_GATE_RUNNING) {
        answer = ML_CU_ILLEGAL_STATE;
    }
    else {
        state = ML_GATE_LOCKED;
        if (!wait_for_callbacks(milliseconds)) {
            state = ML_GATE_RUNNING;
            pthread_cond_broadcast(&changed);
            answer = ML_CU_NOT_READY;
        }
    }
    pthread_mutex_unlock(&lock);
    return answer;
}
