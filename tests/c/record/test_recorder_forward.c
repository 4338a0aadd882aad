/* The traceback of the forward that an event gets in anomaly mode, by the recorder's
 * reader of it, on the scripted source. */
#include <string.h>

#include "plain_events.h"
#include "record/recorder.h"
#include "record/script.h"
#include "record/window.h"
#include "afresh.h"
#include "test.h"

#define MIB (UINT64_C(1) << 20)
#define SEGMENT UINT64_C(0x700000000000)

static void
emit(unsigned action, unsigned other, const char *anomaly)
{
    ml_event event = {.action = (uint8_t)action,
                      .addr = SEGMENT,
                      .size = action == ML_ACTION_SEGMENT_ALLOC ? 2 * MIB : 512,
                      .other = other,
                      .flags = anomaly != NULL ? ML_EVENT_BACKWARD : 0};
    ml_event_text text = {.anomaly = anomaly};
    ml_script_emit(0, &event, &text);
}

static uint32_t
read_forward(void *stacks, const void *anomaly)
{
    return ml_stacks_string(stacks, anomaly, strlen(anomaly));
}

/* It comes with the stack: where no stack is asked for, there is none. */
static void
test_it_comes_with_the_stack(void)
{
    emit(ML_ACTION_SEGMENT_ALLOC, 0, NULL);
    ml_window_options options = {.max_entries = 1000,
                                 .context = ML_CONTEXT_ALLOC,
                                 .keep_events = true,
                                 .device = -1};
    ml_window *window = NULL;
    CHECK_INT(ml_window_start(ml_recorder_source("script"), &options, &window), 0);
    emit(ML_ACTION_ALLOC, 0, "forward");
    emit(ML_ACTION_OTHER, ML_OTHER_ANNOTATE, "forward");
    emit(ML_ACTION_FREE_REQUESTED, 0, "of no use");
    emit(ML_ACTION_FREE_COMPLETED, 0, NULL);
    ml_recording *recording = NULL;
    CHECK_INT(ml_window_freeze(window, 0, &recording), 0);
    CHECK_INT(ml_recording_validate(recording), 0);
    const ml_event *events = plain_events(&recording->devices[0]);
    const ml_string *forward = &recording->strings[ml_event_forward(&events[0])];
    CHECK_TEXT(forward->bytes, forward->length, "forward");
    CHECK_UINT(events[1].other, ML_OTHER_ANNOTATE);
    CHECK_UINT(ml_event_forward(&events[2]), 0);
    CHECK_UINT(ml_event_forward(&events[3]), 0);
    ml_recording_free(recording);
    ml_window_stop(window);
}

static int
begin(void)
{
    ml_recorder_set_forward(read_forward);
    return ml_recorder_init(NULL) != 0 || ml_script_register() != 0;
}

int
main(void)
{
    RUN_AFRESH(begin, test_it_comes_with_the_stack);
    return TEST_RESULT();
}
