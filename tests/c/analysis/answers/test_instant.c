/* Instants: by time with clocks that run backwards, by step with marks and without. */
#include "analysis/answers/instant.h"

#include "base/base.h"
#include "picture_samples.h"
#include "test.h"

/* Steps end at 3.5 ms and at 5.5 ms; events are at 1, 2, 3, ... ms.  Allocated in KiB after
 * each: 0, 1, 3, 3, 2, 2, 4, 4. */
static void
three_steps(sample *f)
{
    sample_begin(f);
    sample_event(f, ML_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, 0);
    sample_event(f, ML_ACTION_ALLOC, BASE, KIB, 0);
    sample_event(f, ML_ACTION_ALLOC, BASE + KIB, 2 * KIB, 0);
    sample_event(f, ML_ACTION_SNAPSHOT, 0, 0, 0);
    sample_event(f, ML_ACTION_FREE_REQUESTED, BASE, KIB, 0);
    sample_event(f, ML_ACTION_FREE_COMPLETED, BASE, KIB, 0);
    sample_event(f, ML_ACTION_ALLOC, BASE + 8 * KIB, 2 * KIB, 0);
    sample_event(f, ML_ACTION_SNAPSHOT, 0, 0, 0);
    for (uint64_t i = 0; i < 2; i++) {
        f->notes[f->recording->note_count++] = (ml_note){
            .kind = ML_NOTE_STEP, .time = 3500000 + i * 2000000, .values = {7 + i}};
    }
}

static void
check_step(const sample *f, uint64_t step, int64_t expected)
{
    int64_t event;
    ml_instant_steps steps;
    ml_recording_detach(f->recording);
    CHECK_INT(ml_instant_in_step(f->recording, 0, step, &event, &steps), 0);
    CHECK_INT(event, expected);
    CHECK_UINT(steps.first, f->recording->note_count != 0 ? 7 : 0);
    CHECK_UINT(steps.last, f->recording->note_count != 0 ? 9 : 0);
}

static void
test_the_first_of_the_most_in_a_step(void)
{
    sample f;
    three_steps(&f);
    check_step(&f, 6, ML_INSTANT_NO_STEP);
    check_step(&f, 7, 2);
    check_step(&f, 8, 3);
    check_step(&f, 9, 6);
    check_step(&f, 10, ML_INSTANT_NO_STEP);
    check_step(&f, UINT64_MAX, ML_INSTANT_NO_STEP);
    f.recording->note_count = 0;
    check_step(&f, 0, 6);
    check_step(&f, 7, ML_INSTANT_NO_STEP);
    f.device.event_count = 0;
    check_step(&f, 0, ML_INSTANT_NO_STEP);
    int64_t event;
    ml_instant_steps steps;
    CHECK_INT(ml_instant_in_step(f.recording, 1, 0, &event, &steps), ML_EINVALID);
    sample_end(&f);
}

/* A second device has two events, in the first step and in the last. */
static void
test_a_step_in_which_another_device_was_idle(void)
{
    sample f;
    three_steps(&f);
    ml_event events[2] = {f.events[0], f.events[7]};
    ml_device_trace devices[2] = {f.device,
                                  {.events = {.plain = events}, .event_count = 2}};
    f.recording->devices = devices;
    f.recording->device_count = 2;
    static const int64_t expected[] = {0, 0, 1};
    for (uint64_t step = 7; step < 10; step++) {
        int64_t event;
        ml_instant_steps steps;
        CHECK_INT(ml_instant_in_step(f.recording, 1, step, &event, &steps), 0);
        CHECK_INT(event, expected[step - 7]);
        CHECK_UINT(steps.first, 7);
        CHECK_UINT(steps.last, 9);
        devices[1].event_count = 0;
        CHECK_INT(ml_instant_in_step(f.recording, 1, step, &event, &steps), 0);
        CHECK_INT(event, -1);
        devices[1].event_count = 2;
    }
    check_step(&f, 10, ML_INSTANT_NO_STEP);
    f.recording->devices = &f.device;
    f.recording->device_count = 1;
    sample_end(&f);
}

static void
test_the_last_event_up_to_a_time(void)
{
    sample f;
    three_steps(&f);
    CHECK_UINT(ml_instant_base(f.recording), f.events[0].time / 1000);
    CHECK_UINT(ml_instant_length(f.recording), 7000);
    CHECK_INT(ml_instant_at(f.recording, 0, 0), 0);
    CHECK_INT(ml_instant_at(f.recording, 0, 999), 0);
    CHECK_INT(ml_instant_at(f.recording, 0, 1000), 1);
    CHECK_INT(ml_instant_at(f.recording, 0, 6999), 6);
    CHECK_INT(ml_instant_at(f.recording, 0, UINT64_MAX), 7);
    /* The clock was set back by 4 ms: event 5 is at 2 ms again. */
    for (size_t i = 5; i < 8; i++) {
        f.events[i].time -= 4000000;
    }
    CHECK_UINT(ml_instant_length(f.recording), 4000);
    CHECK_INT(ml_instant_at(f.recording, 0, 1000), 1);
    CHECK_INT(ml_instant_at(f.recording, 0, 3999), 3);
    CHECK_INT(ml_instant_at(f.recording, 0, 4000), 7);
    /* Before the first. */
    f.events[7].time = 0;
    CHECK_INT(ml_instant_at(f.recording, 0, 0), 0);
    f.device.event_count = 0;
    CHECK_UINT(ml_instant_base(f.recording), 0);
    CHECK_UINT(ml_instant_length(f.recording), 0);
    CHECK_INT(ml_instant_at(f.recording, 0, 5), -1);
    sample_end(&f);
}

static void
test_memory_failures(void)
{
    sample f;
    three_steps(&f);
    int result = ML_ENOMEM;
    long tries = 0;
    for (; result == ML_ENOMEM && tries < 200; tries++) {
        int64_t event;
        ml_instant_steps steps;
        budget_begin(tries);
        result = ml_instant_in_step(f.recording, 0, 8, &event, &steps);
        ml_recording_detach(f.recording);
        budget_end();
        CHECK_INT(budget_alive, 0);
    }
    CHECK_INT(result, 0);
    CHECK(tries > 5);
    sample_end(&f);
}

int
main(void)
{
    RUN(test_the_first_of_the_most_in_a_step);
    RUN(test_a_step_in_which_another_device_was_idle);
    RUN(test_the_last_event_up_to_a_time);
    RUN(test_memory_failures);
    return TEST_RESULT();
}
