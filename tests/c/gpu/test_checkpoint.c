/* Giving the context back and taking it again, on a driver that is a table of states. */
#define _GNU_SOURCE
#include "gpu/checkpoint.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/driver.h"
#include "gpu/gpu_memory.h"
#include "memlab.h"
#include "test.h"

enum {
    RUNNING,
    LOCKED,
    CHECKPOINTED,
    FAILED
};

/* One a call, by its letter: Lock, Checkpoint, Restore, Unlock. */
static struct {
    int state;
    int refusals[4]; /* what that call answers next, instead of doing it; once */
    int get_state;   /* what GetState answers */
    char calls[16];
    unsigned limit_ms;
    bool was_closed; /* whether the gate was when Lock was called */
} made;

static int
step(unsigned which, int from, int to)
{
    size_t length = strlen(made.calls);
    if (length + 1 < sizeof(made.calls)) {
        made.calls[length] = "LCRU"[which];
        made.calls[length + 1] = '\0';
    }
    int answer = made.refusals[which];
    made.refusals[which] = 0;
    if (answer == 0 && made.state != from) {
        answer = 401;
    }
    if (answer == 0) {
        made.state = to;
    }
    return answer;
}

static int
get_state(int pid, int *state)
{
    *state = pid == getpid() ? made.state : -1;
    return made.get_state;
}

static int
lock(int pid, void *arguments)
{
    (void)pid;
    made.limit_ms = *(unsigned *)arguments;
    made.was_closed = !ml_driver_enter();
    if (!made.was_closed) {
        ml_driver_leave();
    }
    return step(0, RUNNING, LOCKED);
}

static int
checkpoint(int pid, void *arguments)
{
    (void)pid, (void)arguments;
    return step(1, LOCKED, CHECKPOINTED);
}

static int
restore(int pid, void *arguments)
{
    (void)pid, (void)arguments;
    return step(2, CHECKPOINTED, LOCKED);
}

static int
unlock(int pid, void *arguments)
{
    (void)pid, (void)arguments;
    return step(3, LOCKED, RUNNING);
}

static const ml_checkpoint_calls calls = {get_state, lock, checkpoint, restore, unlock};

static char text[ML_CHECKPOINT_TEXT];

static void
begin(void)
{
    memset(&made, 0, sizeof(made));
    ml_checkpoint_use(&calls);
}

static bool
is_open(void)
{
    if (!ml_driver_enter()) {
        return false;
    }
    ml_driver_leave();
    return true;
}

static void
test_there_and_back(void)
{
    begin();
    CHECK_INT(ml_checkpoint_check(text, sizeof(text)), 1);
    CHECK_INT(ml_checkpoint_give(700, text, sizeof(text)), 0);
    CHECK(ml_checkpoint_is_away() && !is_open() && made.was_closed);
    CHECK_INT(made.limit_ms, 700);
    CHECK_INT(made.state, CHECKPOINTED);
    CHECK_INT(ml_checkpoint_take(text, sizeof(text)), 0);
    CHECK(!ml_checkpoint_is_away() && is_open());
    CHECK_INT(made.state, RUNNING);
    CHECK_STR(made.calls, "LCRU");
}

static void
test_no_limit_is_the_shortest(void)
{
    begin();
    /* The driver's 0 would wait for ever. */
    CHECK_INT(ml_checkpoint_give(0, text, sizeof(text)), 0);
    CHECK_INT(made.limit_ms, 1);
    CHECK_INT(ml_checkpoint_take(text, sizeof(text)), 0);
}

static void
test_a_busy_thread_changes_nothing(void)
{
    begin();
    made.refusals[0] = 600;
    CHECK_INT(ml_checkpoint_give(5, text, sizeof(text)), ML_ESOURCE);
    CHECK(strstr(text, "cuCheckpointProcessLock failed with CUDA_ERROR_NOT_READY, not "
                       "ready (600): another thread stayed inside CUDA") == text);
    CHECK(!ml_checkpoint_is_away() && is_open());
    CHECK_STR(made.calls, "L");
}

static void
test_what_cannot_be_checkpointed_is_unlocked(void)
{
    begin();
    made.refusals[1] = 801;
    CHECK_INT(ml_checkpoint_give(5, text, sizeof(text)), ML_ESOURCE);
    CHECK(strstr(text, "CUDA_ERROR_NOT_SUPPORTED") && strstr(text, "managed (UVM)"));
    CHECK(!ml_checkpoint_is_away() && is_open());
    CHECK_INT(made.state, RUNNING);
    CHECK_STR(made.calls, "LCU");
    /* And once that is gone: */
    CHECK_INT(ml_checkpoint_give(5, text, sizeof(text)), 0);
    CHECK_INT(ml_checkpoint_take(text, sizeof(text)), 0);
}

static void
test_a_failing_unlock_can_be_tried_again(void)
{
    begin();
    made.refusals[1] = 2;
    made.refusals[3] = 999;
    CHECK_INT(ml_checkpoint_give(5, text, sizeof(text)), ML_ESOURCE);
    CHECK(strstr(text, "cuCheckpointProcessCheckpoint failed") == text);
    CHECK(strstr(text, "; then cuCheckpointProcessUnlock failed") &&
          strstr(text, "--action unlock"));
    CHECK(ml_checkpoint_is_away() && !is_open());
    CHECK_INT(ml_checkpoint_take(text, sizeof(text)), 0);
    CHECK(!ml_checkpoint_is_away() && is_open());
    CHECK_STR(made.calls, "LCUU");
}

static void
test_a_failing_restore_can_be_tried_again(void)
{
    begin();
    CHECK_INT(ml_checkpoint_give(5, text, sizeof(text)), 0);
    made.refusals[2] = 2;
    CHECK_INT(ml_checkpoint_take(text, sizeof(text)), ML_ESOURCE);
    char outside[64];
    snprintf(outside, sizeof(outside), "--pid %d --action restore", (int)getpid());
    CHECK(strstr(text, "cuCheckpointProcessRestore failed") == text);
    CHECK(strstr(text, "try again when it is free") && strstr(text, outside));
    CHECK(ml_checkpoint_is_away() && !is_open());
    CHECK_INT(ml_checkpoint_take(text, sizeof(text)), 0);
    CHECK(!ml_checkpoint_is_away() && is_open());
    CHECK_STR(made.calls, "LCRRU");
}

static void
test_somebody_restores_it_from_outside(void)
{
    for (int state = RUNNING; state <= LOCKED; state++) {
        begin();
        CHECK_INT(ml_checkpoint_give(5, text, sizeof(text)), 0);
        made.state = state;
        CHECK_INT(ml_checkpoint_take(text, sizeof(text)), 0);
        CHECK_STR(made.calls, state == RUNNING ? "LC" : "LCU");
        CHECK(!ml_checkpoint_is_away() && is_open());
    }
}

static void
test_what_is_lost_is_said(void)
{
    begin();
    CHECK_INT(ml_checkpoint_give(5, text, sizeof(text)), 0);
    made.state = FAILED;
    CHECK_INT(ml_checkpoint_take(text, sizeof(text)), ML_ESOURCE);
    CHECK(strstr(text, "has lost what CUDA held"));
    CHECK(ml_checkpoint_is_away());
    made.state = CHECKPOINTED;
    CHECK_INT(ml_checkpoint_take(text, sizeof(text)), 0);
}

static void
test_a_state_that_is_not_told_is_as_it_was_left(void)
{
    begin();
    CHECK_INT(ml_checkpoint_give(5, text, sizeof(text)), 0);
    made.get_state = 304;
    CHECK_INT(ml_checkpoint_take(text, sizeof(text)), 0);
    CHECK_INT(ml_checkpoint_check(text, sizeof(text)), ML_EUNSUPPORTED);
    CHECK(strstr(text, "CUDA_ERROR_OPERATING_SYSTEM") && strstr(text, "container"));
}

static void
test_others_that_checkpoint_are_respected(void)
{
    begin();
    made.state = LOCKED;
    CHECK_INT(ml_checkpoint_give(5, text, sizeof(text)), ML_ESTATE);
    CHECK(strstr(text, "by somebody else"));
    CHECK_STR(made.calls, "");
    CHECK(is_open());
}

static void
test_out_of_order(void)
{
    begin();
    CHECK_INT(ml_checkpoint_take(text, sizeof(text)), ML_ESTATE);
    CHECK_STR(text, "the CUDA context is here");
    CHECK_INT(ml_checkpoint_give(5, text, sizeof(text)), 0);
    CHECK_INT(ml_checkpoint_give(5, text, sizeof(text)), ML_ESTATE);
    CHECK_STR(text, "the CUDA context is away");
    CHECK_INT(ml_checkpoint_check(text, sizeof(text)), ML_ESTATE);
    CHECK_INT(ml_checkpoint_take(text, sizeof(text)), 0);
    CHECK_STR(made.calls, "LCRU");
}

static void
test_a_reader_inside_the_driver_is_waited_for(void)
{
    begin();
    CHECK(ml_driver_enter());
    CHECK_INT(ml_checkpoint_give(3, text, sizeof(text)), ML_ESTATE);
    CHECK(strstr(text, "stayed inside the driver"));
    CHECK_STR(made.calls, "");
    CHECK(is_open());
    ml_driver_leave();
    CHECK_INT(ml_checkpoint_give(3, text, sizeof(text)), 0);
    CHECK_INT(ml_checkpoint_take(text, sizeof(text)), 0);
}

static void
test_nobody_asks_the_driver_meanwhile(void)
{
    begin();
    CHECK_INT(ml_checkpoint_give(3, text, sizeof(text)), 0);
    ml_gpu_memory memory;
    const char *reason = NULL;
    char name[ML_GPU_NAME], driver[ML_DRIVER_VERSION];
    CHECK_INT(ml_gpu_memory_read(0, &memory, &reason), ML_ESTATE);
    CHECK_STR(reason, ML_DRIVER_CLOSED);
    CHECK_INT(ml_gpu_memory_read_named("GPU-1", 1, &memory, &reason), ML_ESTATE);
    CHECK(!ml_gpu_memory_has_context(0));
    CHECK(!ml_gpu_memory_name(0, name));
    CHECK(!ml_gpu_memory_driver(driver));
    CHECK_INT(ml_checkpoint_take(text, sizeof(text)), 0);
}

static void
test_a_forked_child_takes_nothing(void)
{
    begin();
    CHECK_INT(ml_checkpoint_give(5, text, sizeof(text)), 0);
    pid_t child = fork();
    if (child == 0) {
        int result = ml_checkpoint_take(text, sizeof(text));
        _exit(result == ML_ESTATE && strstr(text, "forked") ? 7 : 1);
    }
    int status;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(WEXITSTATUS(status), 7);
    CHECK_INT(ml_checkpoint_take(text, sizeof(text)), 0);
}

static void *
give_and_take(void *given)
{
    char said[ML_CHECKPOINT_TEXT];
    for (int i = 0; i < 300; i++) {
        if (ml_checkpoint_give(1000, said, sizeof(said)) == 0) {
            ++*(int *)given;
            /* Another thread may be looking: only one moves it. */
            while (ml_checkpoint_take(said, sizeof(said)) != 0) {
            }
        }
    }
    return NULL;
}

static void *
ask(void *asked)
{
    for (int i = 0; i < 3000; i++) {
        if (ml_driver_enter()) {
            ++*(int *)asked;
            ml_driver_leave();
        }
    }
    return NULL;
}

static void
test_threads(void)
{
    begin();
    int given[2] = {0, 0}, asked = 0;
    pthread_t threads[3];
    pthread_create(&threads[0], NULL, give_and_take, &given[0]);
    pthread_create(&threads[1], NULL, give_and_take, &given[1]);
    pthread_create(&threads[2], NULL, ask, &asked);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(given[0] + given[1] > 0);
    CHECK_INT(made.state, RUNNING);
    CHECK(is_open() && !ml_checkpoint_is_away());
}

static void
test_without_a_driver_there_is_nothing_to_give(void)
{
    begin();
    ml_checkpoint_use(NULL);
    CHECK_INT(ml_checkpoint_check(text, sizeof(text)), 0);
    CHECK(strstr(text, "CUDA is not initialised"));
    CHECK_INT(ml_checkpoint_give(5, text, sizeof(text)), ML_ESTATE);
    CHECK(!ml_checkpoint_is_away() && is_open());
}

int
main(void)
{
    RUN(test_there_and_back);
    RUN(test_no_limit_is_the_shortest);
    RUN(test_a_busy_thread_changes_nothing);
    RUN(test_what_cannot_be_checkpointed_is_unlocked);
    RUN(test_a_failing_unlock_can_be_tried_again);
    RUN(test_a_failing_restore_can_be_tried_again);
    RUN(test_somebody_restores_it_from_outside);
    RUN(test_what_is_lost_is_said);
    RUN(test_a_state_that_is_not_told_is_as_it_was_left);
    RUN(test_others_that_checkpoint_are_respected);
    RUN(test_out_of_order);
    RUN(test_a_reader_inside_the_driver_is_waited_for);
    RUN(test_nobody_asks_the_driver_meanwhile);
    RUN(test_a_forked_child_takes_nothing);
    RUN(test_threads);
    RUN(test_without_a_driver_there_is_nothing_to_give);
    return TEST_RESULT();
}
