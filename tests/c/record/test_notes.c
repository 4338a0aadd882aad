/* Notes on the scripted source, whose clock stands at its newest event: each time below
 * is the one that the test set. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "budget.h"
#include "record/notes.h"
#include "record/recorder.h"
#include "record/script.h"
#include "test.h"

static const ml_source *
script(void)
{
    return ml_recorder_source("script");
}

static void
set_clock(uint64_t ns)
{
    ml_event event = {.action = ML_ACTION_OTHER, .time = ns};
    ml_script_emit(0, &event, NULL);
}

static ml_window *
start(void)
{
    ml_window_options options = {.max_entries = 100, .keep_events = true, .device = -1};
    ml_window *window = NULL;
    return ml_window_start(script(), &options, &window) == 0 ? window : NULL;
}

static ml_recording *
freeze(ml_window *window)
{
    ml_recording *recording = NULL;
    return ml_window_freeze(window, 0, &recording) == 0 ? recording : NULL;
}

static void
note(enum ml_note_kind kind, const char *name)
{
    ml_note told = {.kind = (uint8_t)kind, .device = -1};
    ml_recorder_note(NULL, &told, name, strlen(name));
}

static const ml_string *
name_of(const ml_recording *recording, size_t index)
{
    return &recording->strings[recording->notes[index].name];
}

static void
test_notes_keep_time_and_name(void)
{
    set_clock(1000);
    CHECK(!ml_recorder_noting());
    note(ML_NOTE_MARK, "before");
    ml_window *window = start();
    CHECK(window != NULL && ml_recorder_noting());
    note(ML_NOTE_PHASE_BEGIN, "train");
    set_clock(2001);
    note(ML_NOTE_MARK, "half");
    ml_note gpu = {.kind = ML_NOTE_GPU,
                   .device = 1,
                   .values = {7, 8, ML_NOTE_UNKNOWN, 9, 10, 11, 12}};
    ml_recorder_note(NULL, &gpu, NULL, 0);
    set_clock(2003);
    note(ML_NOTE_PHASE_END, "train");
    ml_recording *recording = freeze(window);
    ml_window_stop(window);
    CHECK(!ml_recorder_noting());
    CHECK(recording != NULL);
    CHECK_INT(ml_recording_validate(recording), 0);
    CHECK_INT(recording->note_count, 4);
    CHECK_INT(recording->lost_notes, 0);
    const ml_note *notes = recording->notes;
    CHECK_INT(notes[0].time, 1000);
    CHECK_INT(notes[0].kind, ML_NOTE_PHASE_BEGIN);
    CHECK_INT(notes[1].time, 2001);
    CHECK_INT(notes[2].time, 2001);
    CHECK_INT(notes[3].time, 2003);
    CHECK(notes[0].thread != 0);
    CHECK_INT(notes[0].thread, notes[3].thread);
    CHECK_TEXT(name_of(recording, 0)->bytes, name_of(recording, 0)->length, "train");
    CHECK_TEXT(name_of(recording, 1)->bytes, name_of(recording, 1)->length, "half");
    /* A name is stored once. */
    CHECK_INT(notes[0].name, notes[3].name);
    CHECK_INT(notes[2].name, 0);
    CHECK_INT(notes[2].device, 1);
    CHECK(memcmp(notes[2].values, gpu.values, sizeof(gpu.values)) == 0);
    ml_recording_free(recording);
}

static void
test_windows_number_their_own_steps(void)
{
    ml_window *first = start();
    note(ML_NOTE_STEP, "");
    note(ML_NOTE_STEP, "");
    ml_window *second = start();
    CHECK(first != NULL && second != NULL);
    note(ML_NOTE_STEP, "");
    ml_recording *whole = freeze(first);
    ml_recording *rest = freeze(second);
    CHECK(whole != NULL && rest != NULL);
    CHECK_INT(whole->note_count, 3);
    CHECK_INT(whole->notes[2].values[0], 2);
    CHECK_INT(rest->note_count, 1);
    CHECK_INT(rest->notes[0].values[0], 0);
    ml_recording_free(whole);
    ml_recording_free(rest);
    ml_window_stop(first);
    ml_window_clear(second);
    note(ML_NOTE_STEP, "");
    rest = freeze(second);
    ml_window_stop(second);
    CHECK(rest != NULL);
    CHECK_INT(rest->note_count, 1);
    CHECK_INT(rest->notes[0].values[0], 0);
    ml_recording_free(rest);
}

static void
test_names_are_cut_between_characters(void)
{
    ml_window *window = start();
    CHECK(window != NULL);
    size_t length = (size_t)1 << 20;
    char *name = malloc(length);
    CHECK(name != NULL);
    /* 1023 letters, then characters of two bytes: the cut would halve the first. */
    memset(name, 'x', length);
    for (size_t i = ML_NOTE_NAME_MAX - 1; i + 1 < length; i += 2) {
        memcpy(name + i, "\xc3\xa9", 2);
    }
    ml_note mark = {.kind = ML_NOTE_MARK};
    ml_recorder_note(NULL, &mark, name, length);
    ml_recorder_note(NULL, &mark, "a\xff\0b", 4);
    ml_recorder_note(NULL, &mark, "\xed\xa0\x80", 3);
    ml_recording *recording = freeze(window);
    ml_window_stop(window);
    CHECK(recording != NULL);
    CHECK_INT(name_of(recording, 0)->length, ML_NOTE_NAME_MAX - 1);
    CHECK(memcmp(name_of(recording, 0)->bytes, name, ML_NOTE_NAME_MAX - 1) == 0);
    CHECK_INT(name_of(recording, 1)->length, 4);
    CHECK(memcmp(name_of(recording, 1)->bytes, "a?\0b", 4) == 0);
    /* A lone surrogate, as Python's surrogatepass writes it. */
    CHECK_TEXT(name_of(recording, 2)->bytes, name_of(recording, 2)->length,
               "\xed\xa0\x80");
    ml_recording_free(recording);
    free(name);
}

/* Names of the longest kind, so that the ring goes round more than twice. */
static void
test_the_newest_are_kept_and_losses_counted(void)
{
    char name[ML_NOTE_NAME_MAX + 1];
    memset(name, '-', sizeof(name));
    name[ML_NOTE_NAME_MAX] = '\0';
    unsigned total = 2 * (unsigned)(ML_NOTES_BYTES / ML_NOTE_NAME_MAX) + 777;
    ml_window *window = start();
    CHECK(window != NULL);
    for (unsigned i = 0; i < total; i++) {
        int digits = snprintf(name, sizeof(name), "%u", i);
        name[digits] = '-';
        /* Lengths of all kinds meet the ring's end. */
        name[ML_NOTE_NAME_MAX - i % 8] = '\0';
        note(i % 3 == 0 ? ML_NOTE_STEP : ML_NOTE_MARK, name);
        name[ML_NOTE_NAME_MAX - i % 8] = '-';
    }
    ml_recording *recording = freeze(window);
    CHECK(recording != NULL);
    CHECK(recording->note_count > ML_NOTES_BYTES / 1200);
    CHECK_INT(recording->note_count + recording->lost_notes, total);
    for (size_t i = 0; i < recording->note_count; i++) {
        uint64_t number = recording->lost_notes + i;
        const ml_note *kept = &recording->notes[i];
        CHECK_INT(atoi(name_of(recording, i)->bytes), number);
        CHECK_INT(kept->kind, number % 3 == 0 ? ML_NOTE_STEP : ML_NOTE_MARK);
        if (kept->kind == ML_NOTE_STEP) {
            CHECK_INT(kept->values[0], number / 3);
        }
    }
    ml_recording_free(recording);
    /* A window that began after what was lost has lost nothing. */
    ml_window *late = start();
    CHECK(late != NULL);
    note(ML_NOTE_MARK, "late");
    recording = freeze(late);
    CHECK(recording != NULL);
    CHECK_INT(recording->note_count, 1);
    CHECK_INT(recording->lost_notes, 0);
    ml_recording_free(recording);
    ml_window_stop(late);
    ml_window_stop(window);
}

#define THREADS 4
#define NOTES_EACH 2000

static void *
note_many(void *argument)
{
    const char *name = argument;
    for (int i = 0; i < NOTES_EACH; i++) {
        ml_note told = {.kind = ML_NOTE_MARK, .device = i};
        ml_recorder_note(NULL, &told, name, strlen(name));
    }
    return NULL;
}

/* While threads note, recordings are read, begin and end. */
static void
test_threads(void)
{
    static const char *const names[THREADS] = {"a", "b", "c", "d"};
    pthread_t threads[THREADS];
    ml_window *window = start();
    CHECK(window != NULL);
    for (int i = 0; i < THREADS; i++) {
        CHECK_INT(
            pthread_create(&threads[i], NULL, note_many, (void *)(uintptr_t)names[i]),
            0);
    }
    for (int i = 0; i < 20; i++) {
        ml_window *other = start();
        ml_recording *part = other != NULL ? freeze(other) : NULL;
        CHECK(part != NULL);
        CHECK_INT(ml_recording_validate(part), 0);
        ml_recording_free(part);
        ml_window_stop(other);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    ml_recording *recording = freeze(window);
    ml_window_stop(window);
    CHECK(recording != NULL);
    CHECK_INT(recording->note_count, THREADS * NOTES_EACH);
    int next[THREADS] = {0};
    uint32_t number[THREADS] = {0};
    for (size_t i = 0; i < recording->note_count; i++) {
        int who = name_of(recording, i)->bytes[0] - 'a';
        CHECK_INT(recording->notes[i].device, next[who]);
        if (next[who]++ == 0) {
            number[who] = recording->notes[i].thread;
        }
        CHECK_INT(recording->notes[i].thread, number[who]);
    }
    CHECK(number[0] != number[1] && number[1] != number[2] && number[2] != number[3]);
    ml_recording_free(recording);
}

static void __attribute__((unused)) test_a_forked_child_notes_nothing(void)
{
    ml_window *window = start();
    CHECK(window != NULL);
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, note_many, (void *)(uintptr_t) "parent's"),
              0);
    /* The thread may hold the lock at any of these forks. */
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            note(ML_NOTE_MARK, "child's");
            bool silent = !ml_recorder_noting();
            ml_window_stop(window);
            _exit(silent ? 0 : 1);
        }
        int status = -1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK_INT(status, 0);
    }
    pthread_join(thread, NULL);
    ml_recording *recording = freeze(window);
    ml_window_stop(window);
    CHECK(recording != NULL);
    CHECK_INT(recording->note_count, NOTES_EACH);
    ml_recording_free(recording);
}

static void
test_every_allocation_may_fail(void)
{
    ml_window *window = start();
    CHECK(window != NULL);
    note(ML_NOTE_MARK, "one");
    note(ML_NOTE_MARK, "two");
    ml_notes_mark mark = {0};
    int failures = 0;
    for (long budget = 0;; budget++) {
        ml_recording *recording;
        CHECK_INT(ml_recording_new(&recording), 0);
        budget_begin(budget);
        int result = ml_notes_copy(script(), mark, recording);
        size_t count = recording->note_count;
        ml_recording_free(recording);
        budget_end();
        if (result == 0) {
            CHECK_INT(count, 2);
            break;
        }
        CHECK_INT(result, ML_ENOMEM);
        failures++;
    }
    CHECK(failures > 2);
    ml_window_stop(window);
}

int
main(void)
{
    if (ml_recorder_init(NULL) != 0 || ml_script_register() != 0) {
        return 1;
    }
    RUN(test_notes_keep_time_and_name);
    RUN(test_windows_number_their_own_steps);
    RUN(test_names_are_cut_between_characters);
    RUN(test_the_newest_are_kept_and_losses_counted);
    RUN(test_threads);
#ifdef __SANITIZE_THREAD__
    puts("skip test_a_forked_child_notes_nothing: the thread sanitizer takes a child's "
         "locks for its parent's");
#else
    RUN(test_a_forked_child_notes_nothing);
#endif
    RUN(test_every_allocation_may_fail);
    return TEST_RESULT();
}
