/* Starts of recordings to files that fail: what lay at the path before stays, and nothing
 * is left behind. */
#define _GNU_SOURCE

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "budget.h"
#include "file/codec/mlab_format.h"
#include "journal_samples.h"
#include "record/window.h"
#include "source_samples.h"
#include "afresh.h"
#include "test.h"
#include "plain_events.h"

static ml_mlab_info info;
static char folder[256];
static char path[300]; /* in it */

/* A recording of one event, that is over, at AT. */
static void
make_old(const char *at)
{
    ml_script_reset(NULL);
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 0);
    ml_window *window = sample_start(at);
    CHECK(window != NULL);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT, 7 * MIB, 1);
    ml_window_stop(window);
}

/* How many entries the folder of the tests has. */
static unsigned
entries(void)
{
    unsigned count = 0;
    DIR *open = opendir(folder);
    while (open != NULL && readdir(open) != NULL) {
        count++;
    }
    closedir(open);
    return count - 2; /* . and .. */
}

/* The old recording is whole, alone, and nobody's: the next start can replace it. */
static void
check_old(void)
{
    CHECK_UINT(entries(), 1);
    ml_recording *recording = sample_read(path, &info);
    CHECK(recording != NULL);
    CHECK(info.ended);
    CHECK_UINT(recording->devices[0].event_count, 1);
    CHECK_UINT(plain_events(&recording->devices[0])[0].size, 7 * MIB);
    ml_recording_free(recording);
    ml_mlab_info_fini(&info);
    ml_window *window = sample_start(path);
    CHECK(window != NULL);
    ml_window_stop(window);
    CHECK_UINT(entries(), 1);
    unlink(path);
}

static void
refused(const char *at, uint64_t bytes, const char *why)
{
    ml_window *window = NULL;
    CHECK(sample_start_limited(at, bytes, &window) < 0);
    if (strstr(ml_recorder_error(), why) == NULL) {
        CHECK_STR(ml_recorder_error(), why);
    }
}

static void
test_a_limit_too_small(void)
{
    make_old(path);
    refused(path, (UINT64_C(17) << 16) - 1, "allow at least 1114112");
    check_old();
    refused(path, 0, "allow at least 1114112");
    CHECK_UINT(entries(), 0);
}

/* As many as a source takes are recorded to files; then as many as there may be at all. */
static void
test_all_places_are_taken(void)
{
    ml_window *windows[ML_WINDOW_MAX];
    for (unsigned count = ML_PORT_JOURNALS; count <= ML_WINDOW_MAX;
         count += ML_WINDOW_MAX - ML_PORT_JOURNALS) {
        make_old(path);
        for (unsigned i = 0; i < count; i++) {
            char name[400];
            snprintf(name, sizeof(name), "%s.%u", path, i);
            windows[i] = sample_start(i < ML_PORT_JOURNALS ? name : NULL);
            CHECK(windows[i] != NULL);
            unlink(name);
        }
        refused(path, UINT64_MAX,
                count < ML_WINDOW_MAX
                    ? "4 recordings of script go to files already; stop one"
                    : "16 recordings are under way already; stop one");
        for (unsigned i = 0; i < count; i++) {
            ml_window_stop(windows[i]);
        }
        check_old();
    }
}

/* ---- A source of this test's own ---- */

static int devices;       /* that it has */
static int attach_result; /* of attaching to it */
static int rules_result;  /* of its rules */

static int
count_devices(void *self)
{
    (void)self;
    return devices;
}

static int
attach(void *self)
{
    (void)self;
    return attach_result;
}

static int
walk_nothing(void *self, const ml_walk_visitor *visitor)
{
    (void)self;
    (void)visitor;
    return 0;
}

static int
give_rules(void *self, int device, ml_allocator_rules *out)
{
    (void)self;
    (void)device;
    *out = (ml_allocator_rules){.max_split_bytes = UINT64_MAX};
    return rules_result;
}

static uint64_t clock_ticks = 5; /* a tick is a nanosecond, */
static int64_t clock_error;      /* and this is what the clock is off by */

static int
unix_of(void *self, uint64_t *ticks, size_t stride, size_t count)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        uint64_t *at = (uint64_t *)((char *)ticks + i * stride);
        *at += (uint64_t)clock_error;
    }
    return 0;
}

static uint64_t
now(void *self)
{
    (void)self;
    return clock_ticks;
}

static ml_source waiting = {.size = sizeof(ml_source),
                            .version = ML_ABI_VERSION,
                            .name = "waiting",
                            .device_count = count_devices,
                            .attach = attach,
                            .enable = source_enable,
                            .walk = walk_nothing,
                            .rules = give_rules,
                            .unix_ns = unix_of,
                            .now = now};

/* Recorded by nobody yet, so that a child may. */
static ml_source unused = {.size = sizeof(ml_source),
                           .version = ML_ABI_VERSION,
                           .name = "unused",
                           .ordered = 1,
                           .device_count = count_devices,
                           .attach = attach,
                           .enable = source_enable,
                           .walk = walk_nothing,
                           .rules = give_rules,
                           .unix_ns = unix_of,
                           .now = now};

static int
start_source(const ml_source *source, const char *at, ml_window **out)
{
    ml_window_options options = {.max_entries = 1000,
                                 .keep_events = true,
                                 .device = -1,
                                 .file = at,
                                 .file_bytes = UINT64_MAX};
    return ml_window_start(source, &options, out);
}

static int
start_waiting(const char *at, ml_window **out)
{
    return start_source(&waiting, at, out);
}

/* Found out after the file was made: the source refuses, or cannot tell its rules. */
static void
test_the_source_refuses(void)
{
    ml_window *window = NULL;
    for (int turn = 0; turn < 2; turn++) {
        make_old(path);
        devices = 1;
        attach_result = turn == 0 ? ML_ESOURCE : 0;
        rules_result = turn == 1 ? ML_ESOURCE : 0;
        CHECK_INT(start_waiting(path, &window), ML_ESOURCE);
        check_old();
        CHECK_INT(start_waiting(path, &window), ML_ESOURCE);
        CHECK_UINT(entries(), 0);
    }
    attach_result = rules_result = 0;
}

/* Recordings that wait for their source's devices have their places from the start: none
 * finds out later that there is none. */
static void
test_recordings_that_wait_have_their_places(void)
{
    ml_window *windows[ML_PORT_JOURNALS];
    make_old(path);
    devices = 0;
    for (unsigned i = 0; i < ML_PORT_JOURNALS; i++) {
        char name[400];
        snprintf(name, sizeof(name), "%s.%u", path, i);
        CHECK_INT(start_waiting(name, &windows[i]), 0);
        unlink(name);
    }
    ml_window *one_more = NULL;
    CHECK_INT(start_waiting(path, &one_more), ML_EFULL);
    CHECK(strstr(ml_recorder_error(), "4 recordings of waiting go to files") != NULL);
    devices = 1;
    CHECK_INT(ml_recorder_ready(&waiting), 0);
    for (unsigned i = 0; i < ML_PORT_JOURNALS; i++) {
        ml_window_stop(windows[i]);
    }
    check_old();
}

/* Nothing was there: then nothing is there afterwards. */
static void
test_running_out_of_memory(void)
{
    ml_script_reset(NULL);
    int failures = 0;
    for (long budget = 0;; budget++) {
        make_old(path);
        ml_window *window = NULL;
        budget_begin(budget);
        int result = sample_start_limited(path, UINT64_MAX, &window);
        budget_end();
        if (result == 0) {
            ml_window_stop(window);
            break;
        }
        CHECK_INT(result, ML_ENOMEM);
        check_old();
        failures++;
    }
    CHECK(failures > 3);
    unlink(path);
}

/* The clock is converted in the file by what it was seen to be now and then, each time a
 * little off: however the looks at it fall, hours later it is no more off than that much. */
static void
test_the_clock_of_a_file(void)
{
    devices = 1;
    for (uint64_t first = 1; first < UINT64_C(1) << 34; first *= 2) {
        ml_window *window = NULL;
        clock_ticks = 1000;
        clock_error = 0;
        CHECK_INT(start_waiting(path, &window), 0);
        ml_note mark = {.kind = ML_NOTE_MARK, .device = -1};
        const uint64_t times[] = {first, first + 100, (UINT64_C(1) << 30) + 10,
                                  (UINT64_C(1) << 31) + 20,
                                  (UINT64_C(1) << 35) + first};
        for (size_t i = 0; i < 5; i++) {
            clock_ticks = 1000 + times[i] > clock_ticks ? 1000 + times[i] : clock_ticks;
            clock_error = i % 2 == 0 ? 300 : -300;
            ml_recorder_note(&waiting, &mark, "x", 1);
        }
        /* No look at the clock can help the last ones. */
        uint64_t last = clock_ticks + (UINT64_C(1) << 29);
        clock_ticks = last;
        ml_recorder_note(&waiting, &mark, "x", 1);
        ml_window_stop(window);
        ml_recording *recording = sample_read(path, &info);
        CHECK(recording != NULL);
        CHECK_UINT(recording->note_count, 6);
        uint64_t read = recording->notes[5].time;
        CHECK((read > last ? read - last : last - read) <= 900);
        ml_recording_free(recording);
        ml_mlab_info_fini(&info);
        unlink(path);
    }
    clock_error = 0;
}

/* Nobody may make a file beside the old one. */
static void
test_a_folder_that_takes_no_file(void)
{
    char closed[300];
    CHECK_INT(mkdir(sample_path("closed"), 0700), 0);
    snprintf(closed, sizeof(closed), "%s", sample_path("closed/a.mlab"));
    make_old(closed);
    CHECK_INT(chmod(sample_path("closed"), 0500), 0);
    if (geteuid() == 0) {
        /* root may do everything. */
        printf("test_a_folder_that_takes_no_file: not as root\n");
    }
    else {
        refused(closed, UINT64_MAX, "no file can be made beside it: Permission denied");
    }
    CHECK_INT(chmod(sample_path("closed"), 0700), 0);
    ml_recording *recording = sample_read(closed, &info);
    CHECK(recording != NULL);
    ml_recording_free(recording);
    ml_mlab_info_fini(&info);
    unlink(closed);
    rmdir(sample_path("closed"));
}

/* While the new one begins someone puts a file of his own at the path. */
static void
test_what_others_put_there_stays(void)
{
    make_old(path);
    ml_journal *journal = NULL;
    char text[256];
    ml_journal_options options = {
        .path = path, .limit_bytes = UINT64_MAX, .device = -1};
    CHECK_INT(ml_journal_open(&journal, ml_recorder_source("script"),
                              ml_recorder_stacks(), &options, text, sizeof(text)),
              0);
    CHECK_UINT(entries(), 2);
    /* Another start waits for none of this. */
    refused(path, UINT64_MAX, "is being recorded already; choose another file");
    unlink(path);
    FILE *own = fopen(path, "w");
    fputs("mine", own);
    fclose(own);
    CHECK_INT(ml_journal_keep(journal, text, sizeof(text)), ML_ESTATE);
    CHECK(strstr(text, "replaced by others") != NULL);
    ml_journal_close(journal);
    CHECK_UINT(entries(), 1);
    struct stat status;
    CHECK(stat(path, &status) == 0 && status.st_size == 4);
    unlink(path);
}

/* A child that was forked while the recording began holds nobody up. */
static void
test_a_child_keeps_no_lock(void)
{
    ml_script_reset(NULL);
    ml_journal *journal = NULL;
    char text[256];
    ml_journal_options options = {
        .path = path, .limit_bytes = UINT64_MAX, .device = -1};
    CHECK_INT(ml_journal_open(&journal, ml_recorder_source("script"),
                              ml_recorder_stacks(), &options, text, sizeof(text)),
              0);
    int ends[2];
    CHECK_INT(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    CHECK_INT(ml_journal_keep(journal, text, sizeof(text)), 0);
    ml_journal_close(journal);
    ml_window *window = sample_start(path);
    CHECK(window != NULL);
    ml_window_stop(window);
    close(ends[0]);
    close(ends[1]);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    unlink(path);
}

/* Of a source that the parent has not recorded, and whose recording waits there. */
static int
record_in_child(ml_window *parents)
{
    char own[512];
    snprintf(own, sizeof(own), "%sb.mlab", folder);
    ml_script_reset(NULL);
    ml_recording *recording = NULL;
    bool refused = ml_window_freeze(parents, 0, &recording) == ML_ESTATE &&
                   ml_window_file_frames(parents, &recording) == 0 && recording == NULL;
    ml_window *window = sample_start(own);
    if (window == NULL) {
        return 1;
    }
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 1);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT, 7 * MIB, 2);
    /* What ends after it in the child leaves it alone. */
    ml_window_stop(parents);
    bool whole = ml_window_freeze(window, 0, &recording) == 0 &&
                 recording->devices[0].event_count == 2;
    ml_recording_free(recording);
    ml_window_stop(window);
    ml_mlab_info told;
    recording = sample_read(own, &told);
    /* And the look at it. */
    whole = whole && recording != NULL && recording->devices[0].event_count == 3;
    ml_recording_free(recording);
    unlink(own);
    return whole && refused ? 0 : 2;
}

static void
test_a_child_records_what_its_parent_has_not(void)
{
    ml_window *window = NULL;
    CHECK_INT(start_source(&unused, path, &window), 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(record_in_child(window));
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    ml_window_stop(window);
    ml_mlab_info told;
    ml_recording *recording = sample_read(path, &told);
    CHECK(recording != NULL);
    ml_recording_free(recording);
    unlink(path);
}

static void
test_a_child_records_nothing_that_its_parent_has(void)
{
    ml_window *window = sample_start(path);
    CHECK(window != NULL);
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 1);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        ml_window *own = NULL;
        int result = sample_start_limited(path, UINT64_MAX, &own);
        ml_window_stop(window);
        _exit(result == ML_ESTATE &&
                      strstr(ml_recorder_error(), "a forked child") != NULL
                  ? 0
                  : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    ml_window_stop(window);
    unlink(path);
}

static int
begin(void)
{
    return ml_recorder_init(sample_walk) < 0 || ml_script_register() < 0 ||
           ml_recorder_add_source(&waiting) < 0 || ml_recorder_add_source(&unused) < 0;
}

int
main(void)
{
    snprintf(folder, sizeof(folder), "%s", sample_path(""));
    snprintf(path, sizeof(path), "%sa.mlab", folder);
    if (UNDER_TSAN) {
        puts("skip tests of children that record: the thread sanitizer refuses threads "
             "of a "
             "child");
    }
    else {
        RUN_AFRESH(begin, test_a_child_records_what_its_parent_has_not);
        RUN_AFRESH(begin, test_a_child_records_nothing_that_its_parent_has);
    }
    RUN_AFRESH(begin, test_a_limit_too_small);
    RUN_AFRESH(begin, test_all_places_are_taken);
    RUN_AFRESH(begin, test_the_source_refuses);
    RUN_AFRESH(begin, test_recordings_that_wait_have_their_places);
    RUN_AFRESH(begin, test_running_out_of_memory);
    RUN_AFRESH(begin, test_the_clock_of_a_file);
    RUN_AFRESH(begin, test_a_folder_that_takes_no_file);
    RUN_AFRESH(begin, test_what_others_put_there_stays);
    RUN_AFRESH(begin, test_a_child_keeps_no_lock);
    sample_remove_folder();
    return TEST_RESULT();
}
