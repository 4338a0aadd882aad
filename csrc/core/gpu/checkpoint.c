/* Gives CUDA contexts back and takes them again.  See checkpoint.h. */
#include "gpu/checkpoint.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/system/library.h"
#include "base/system/this_process.h"
#include "gpu/driver.h"
#include "gpu/gpu_memory.h"
#include "memlab.h"

/* ---- The driver's own types, as far as they are used ---- */

typedef struct lock_arguments {
    unsigned timeout_ms; /* 0: no limit */
    unsigned reserved0;
    uint64_t reserved1[7];
} lock_arguments;

enum driver_state {
    RUNNING,
    LOCKED,
    CHECKPOINTED,
    FAILED,
    CHECKPOINTING,
    RESTORING
};

/* The driver's results of these calls.  cuGetErrorName may itself wait while the
 * process is locked. */
#define ANSWERS(XX) \
    XX(INVALID_VALUE, 1, "invalid argument") \
    XX(OUT_OF_MEMORY, 2, "out of memory") \
    XX(NOT_INITIALIZED, 3, "CUDA is not initialised") \
    XX(DEINITIALIZED, 4, "CUDA is shutting down") \
    XX(NO_DEVICE, 100, "no device") \
    XX(OPERATING_SYSTEM, 304, "a call of the operating system failed") \
    XX(ILLEGAL_STATE, 401, "not in the state that the call needs") \
    XX(NOT_READY, 600, "not ready") \
    XX(NOT_PERMITTED, 800, "not permitted") \
    XX(NOT_SUPPORTED, 801, "not supported") \
    XX(UNKNOWN, 999, "unknown error")

enum answer {
    SUCCESS = 0,
#define XX(name, code, words) name = (code),
    ANSWERS(XX)
#undef XX
};

/* CUDA 12.8, which came with driver 570, is the first with these calls. */
#define FIRST_CUDA 12080

/* ---- Where the contexts are ---- */

enum {
    HERE,
    MOVING,
    AWAY
};

/* Of this process. */
static struct {
    _Atomic int place;
    /* The giving process; a forked child shares nothing with the driver. */
    _Atomic int giver;
    /* Written and read while the contexts are moved, by one thread at a time. */
    ml_checkpoint_calls driver;
    char version[ML_DRIVER_VERSION]; /* "": unknown */
    const ml_checkpoint_calls *tested;
} contexts = {.place = HERE};

void
ml_checkpoint_use(const ml_checkpoint_calls *calls)
{
    contexts.tested = calls;
}

bool
ml_checkpoint_is_away(void)
{
    return atomic_load(&contexts.place) == AWAY;
}

/* ---- Words ---- */

static const char *
answer_name(int answer)
{
    switch (answer) {
#define XX(name, code, words) \
    case name: \
        return "CUDA_ERROR_" #name ", " words;
        ANSWERS(XX)
#undef XX
    default:
        return "an error that memlab has no name for";
    }
}

static const char *
advice_on_lock(int answer)
{
    switch (answer) {
    case NOT_READY:
        return "another thread stayed inside CUDA, or work that was submitted did not "
               "end: let it end, then try again";
    case ILLEGAL_STATE:
        return "the process is being checkpointed from outside";
    case OPERATING_SYSTEM:
    case NOT_PERMITTED:
        return "the system does not let the driver do it; in a container the process "
               "may "
               "need more rights (the driver reaches it through /proc)";
    default:
        return "the driver cannot checkpoint this process on this system";
    }
}

static const char *
advice_on_checkpoint(int answer)
{
    switch (answer) {
    case NOT_SUPPORTED:
        return "the driver cannot checkpoint what this process holds: managed (UVM) "
               "memory, as of paged optimizers, memory shared with other processes "
               "(CUDA IPC, NCCL), or a machine other than x86-64; free it, then try "
               "again";
    case OUT_OF_MEMORY:
        return "the host lacks memory for what the GPU holds, or the GPU is split by "
               "MIG, which the driver does not support here";
    default:
        return "the driver could not copy what the GPU holds to the host";
    }
}

static const char *
advice_on_restore(int answer)
{
    return answer == OUT_OF_MEMORY
               ? "somebody else has the GPU's memory now: try again when it is free"
               : "the driver could not bring back what the GPU held: try again";
}

/* A failure's text; begins empty, and is extended. */
typedef struct sentence {
    char *problem;
    size_t problem_bytes;
} sentence;

__attribute__((format(printf, 2, 3))) static void
say(const sentence *to, const char *format, ...)
{
    size_t end = strlen(to->problem);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(to->problem + end, to->problem_bytes - end, format, arguments);
    va_end(arguments);
}

static void
say_version(const sentence *to)
{
    if (contexts.version[0] != '\0') {
        say(to, " (driver %s)", contexts.version);
    }
}

static void
say_failed(const sentence *to, const char *call, int answer, const char *advice)
{
    say(to, "%s failed with %s (%d): %s", call, answer_name(answer), answer, advice);
    say_version(to);
}

/* What to do from outside, if this process cannot continue by itself. */
static void
say_from_outside(const sentence *to, const char *actions)
{
    say(to,
        ". Until then CUDA calls of this process wait. From a shell, NVIDIA's "
        "cuda-checkpoint does the same: --pid %d --action %s",
        ml_this_process_id(), actions);
}

/* ---- Finding the calls ---- */

static bool
has_context(void *library)
{
    int (*count_devices)(int *count) = NULL;
    int count = 0;
    if (!ml_library_function(library, "cuDeviceGetCount", &count_devices) ||
        count_devices(&count) != SUCCESS) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (ml_gpu_memory_has_context(i)) {
            return true;
        }
    }
    return false;
}

static int
cuda_of(void *library)
{
    int (*get_version)(int *version) = NULL;
    int cuda = 0;
    return ml_library_function(library, "cuDriverGetVersion", &get_version) &&
                   get_version(&cuda) == SUCCESS
               ? cuda
               : 0;
}

static bool
find_calls(void *library)
{
    return cuda_of(library) >= FIRST_CUDA &&
           ml_library_function(library, "cuCheckpointProcessGetState",
                               &contexts.driver.get_state) &&
           ml_library_function(library, "cuCheckpointProcessLock",
                               &contexts.driver.lock) &&
           ml_library_function(library, "cuCheckpointProcessCheckpoint",
                               &contexts.driver.checkpoint) &&
           ml_library_function(library, "cuCheckpointProcessRestore",
                               &contexts.driver.restore) &&
           ml_library_function(library, "cuCheckpointProcessUnlock",
                               &contexts.driver.unlock);
}

/* Whether the driver would begin. */
static int
check_state(const ml_checkpoint_calls *calls, const sentence *to)
{
    int state = RUNNING;
    int answer = calls->get_state(ml_this_process_id(), &state);
    if (answer != SUCCESS) {
        say_failed(to, "cuCheckpointProcessGetState", answer, advice_on_lock(answer));
        return ML_EUNSUPPORTED;
    }
    if (state != RUNNING) {
        say(to, "the process is locked or checkpointed already, by somebody else");
        return ML_ESTATE;
    }
    return 1;
}

/* Asks NVML, only when none of its calls can be blocked. */
static void
find_version(void)
{
    if (!ml_gpu_memory_driver(contexts.version)) {
        contexts.version[0] = '\0';
    }
}

static int
begin_checkpoint(void *library, const sentence *to)
{
    if (!find_calls(library)) {
        int cuda = cuda_of(library);
        find_version();
        say(to,
            "NVIDIA's driver cannot give a CUDA context back: driver 570 and CUDA 12.8 "
            "are the first that can, and this one knows CUDA %d.%d",
            cuda / 1000, cuda % 1000 / 10);
        say_version(to);
        return ML_EUNSUPPORTED;
    }
    int result = check_state(&contexts.driver, to);
    if (result == 1) {
        find_version();
    }
    return result;
}

/* The contexts are MOVING. */
static int
check(const sentence *to)
{
    to->problem[0] = '\0';
    if (contexts.tested != NULL) {
        contexts.driver = *contexts.tested;
        return check_state(&contexts.driver, to);
    }
    void *library = ml_driver_loaded();
    int result = 0;
    if (library == NULL || !has_context(library)) {
        say(to, "CUDA is not initialised in this process: there is no context to give");
    }
    else {
        result = begin_checkpoint(library, to);
    }
    ml_library_close(library);
    return result;
}

/* Claims the contexts, to move them from their expected place. */
static bool
claim(int from, const sentence *to)
{
    to->problem[0] = '\0';
    int found = from;
    if (atomic_compare_exchange_strong(&contexts.place, &found, MOVING)) {
        return true;
    }
    say(to, "%s",
        found == MOVING ? "another thread is moving the CUDA context"
        : found == AWAY ? "the CUDA context is away"
                        : "the CUDA context is here");
    return false;
}

int
ml_checkpoint_check(char *problem, size_t problem_bytes)
{
    const sentence said = {problem, problem_bytes};
    if (!claim(HERE, &said)) {
        return ML_ESTATE;
    }
    int result = check(&said);
    atomic_store(&contexts.place, HERE);
    return result;
}

/* ---- Giving ---- */

static int
lock(unsigned limit_ms, const sentence *to)
{
    lock_arguments arguments = {.timeout_ms = limit_ms > 0 ? limit_ms : 1};
    int answer = contexts.driver.lock(ml_this_process_id(), &arguments);
    if (answer != SUCCESS) {
        say_failed(to, "cuCheckpointProcessLock", answer, advice_on_lock(answer));
        return ML_ESOURCE;
    }
    return 0;
}

static int
call(int (*function)(int pid, void *arguments))
{
    /* The other calls' arguments are optional or reserved. */
    uint64_t arguments[8] = {0};
    return function(ml_this_process_id(), arguments);
}

/* Leaves LOCKED.  True if the contexts are in place again. */
static bool
unlock(const sentence *to)
{
    int answer = call(contexts.driver.unlock);
    if (answer == SUCCESS) {
        return true;
    }
    if (to->problem[0] != '\0') {
        say(to, "; then ");
    }
    say_failed(to, "cuCheckpointProcessUnlock", answer, "try to take it back again");
    say_from_outside(to, "unlock");
    return false;
}

/* Moves the contexts; returns their place. */
static int
give(unsigned limit_ms, const sentence *to, int *result)
{
    if (!ml_driver_close(limit_ms)) {
        say(to, "another thread of memlab stayed inside the driver");
        *result = ML_ESTATE;
        return HERE;
    }
    *result = lock(limit_ms, to);
    if (*result < 0) {
        ml_driver_open();
        return HERE;
    }
    int answer = call(contexts.driver.checkpoint);
    if (answer == SUCCESS) {
        return AWAY;
    }
    *result = ML_ESOURCE;
    say_failed(to, "cuCheckpointProcessCheckpoint", answer,
               advice_on_checkpoint(answer));
    if (!unlock(to)) {
        return AWAY;
    }
    ml_driver_open();
    return HERE;
}

int
ml_checkpoint_give(unsigned limit_ms, char *problem, size_t problem_bytes)
{
    const sentence said = {problem, problem_bytes};
    if (!claim(HERE, &said)) {
        return ML_ESTATE;
    }
    int result = check(&said), now = HERE;
    if (result == 1) {
        atomic_store(&contexts.giver, ml_this_process_id());
        now = give(limit_ms, &said, &result);
    }
    else if (result == 0) {
        result = ML_ESTATE;
    }
    atomic_store(&contexts.place, now);
    return result;
}

/* ---- Taking ---- */

/* The state may have been changed from outside: the driver knows. */
static int
state_now(void)
{
    int state = CHECKPOINTED;
    return contexts.driver.get_state(ml_this_process_id(), &state) == SUCCESS
               ? state
               : CHECKPOINTED;
}

static int
take_checkpoint(const sentence *to)
{
    int state = state_now(), answer = SUCCESS;
    if (state == FAILED) {
        say(to, "the driver says that this process has lost what CUDA held "
                "(CU_PROCESS_STATE_FAILED). What is in the host's memory is left: save "
                "it, and go on in a new process");
        return ML_ESOURCE;
    }
    if (state == CHECKPOINTING || state == RESTORING) {
        say(to, "the process is being checkpointed or restored from outside: try "
                "again when that is done");
        return ML_ESTATE;
    }
    if (state == CHECKPOINTED) {
        answer = call(contexts.driver.restore);
    }
    if (answer != SUCCESS) {
        say_failed(to, "cuCheckpointProcessRestore", answer, advice_on_restore(answer));
        say_from_outside(to, "restore, then --action unlock");
        return ML_ESOURCE;
    }
    return state == RUNNING || unlock(to) ? 0 : ML_ESOURCE;
}

int
ml_checkpoint_take(char *problem, size_t problem_bytes)
{
    const sentence said = {problem, problem_bytes};
    if (!claim(AWAY, &said)) {
        return ML_ESTATE;
    }
    int result = ML_ESTATE;
    if (atomic_load(&contexts.giver) != ml_this_process_id()) {
        say(&said,
            "the CUDA context belongs to the process that this one was forked of");
    }
    else {
        result = take_checkpoint(&said);
    }
    if (result == 0) {
        ml_driver_open();
    }
    atomic_store(&contexts.place, result == 0 ? HERE : AWAY);
    return result;
}
