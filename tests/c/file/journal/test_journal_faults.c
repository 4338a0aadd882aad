/* Recordings to files whose disk is full, slow or stuck, and to files that others cut:
 * the recorder goes on, and what is missing is counted at its place. */
#define _GNU_SOURCE

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include "file/codec/mlab_format.h"
#include "journal_samples.h"
#include "test.h"
#include "plain_events.h"

#define CHUNK (UINT64_C(1) << 16)
#define PLENTY 400000u /* events that no chunks mapped ahead have room for */

/* ---- The disk ----
 *
 * All room that a recording takes is asked for here instead of from the C library. */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    unsigned calls;  /* granted */
    unsigned room;   /* calls that are granted before DISK_ERROR is answered */
    int disk_error;  /* 0: then the disk is stuck until there is more room */
    int interrupted; /* calls to be answered with EINTR first */
} disk = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

int
posix_fallocate(int descriptor, off_t offset, off_t length)
{
    pthread_mutex_lock(&disk.mutex);
    int error = disk.interrupted > 0 ? EINTR : 0;
    disk.interrupted -= disk.interrupted > 0;
    while (error == 0 && disk.calls >= disk.room) {
        error = disk.disk_error;
        if (error == 0) {
            pthread_cond_wait(&disk.changed, &disk.mutex);
        }
    }
    disk.calls += error == 0;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.mutex);
    return error == 0 && ftruncate(descriptor, offset + length) != 0 ? errno : error;
}

static void
set_disk(unsigned room, int error)
{
    pthread_mutex_lock(&disk.mutex);
    disk.calls = 0;
    disk.room = room;
    disk.disk_error = error;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.mutex);
}

static void
await_calls(unsigned calls)
{
    pthread_mutex_lock(&disk.mutex);
    while (disk.calls < calls) {
        pthread_cond_wait(&disk.changed, &disk.mutex);
    }
    pthread_mutex_unlock(&disk.mutex);
}

/* ---- Events ---- */

static uint64_t emitted; /* since begin(); each tells its number by its address */
static ml_mlab_info info;

static void
emit(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        sample_emit(0, ML_ACTION_ALLOC, SEGMENT + 512 * emitted++, 512, 1 + i % 100);
    }
}

static void
begin(unsigned room, int error)
{
    set_disk(room, error);
    ml_script_reset(NULL);
    emitted = 0;
}

/* Every event is in the file at its place or answered for by the gap in its place. */
static void
check_events(const ml_recording *recording)
{
    const ml_device_trace *trace = &recording->devices[0];
    uint64_t number = 0;
    size_t gap = 0;
    for (size_t i = 0; i <= trace->event_count; i++) {
        for (; gap < info.gap_count && info.gaps[gap].position == i; gap++) {
            number += info.gaps[gap].device == 0
                          ? info.gaps[gap].dropped + info.gaps[gap].lost
                          : 0;
        }
        if (i < trace->event_count) {
            CHECK_UINT(plain_events(trace)[i].addr, SEGMENT + 512 * number);
            number++;
        }
    }
    CHECK_UINT(number, emitted);
}

static ml_recording *
stop_and_read(ml_window *window, const char *path)
{
    ml_window_stop(window);
    return sample_read(path, &info);
}

static void
forget(ml_recording *recording, const char *path)
{
    ml_recording_free(recording);
    ml_mlab_info_fini(&info);
    unlink(path);
}

/* ---- Tests ---- */

static void
test_a_full_disk(void)
{
    static const int errors[] = {ENOSPC, EDQUOT, EFBIG, EIO};
    for (size_t i = 0; i < (UNDER_TSAN ? 1 : sizeof(errors) / sizeof(errors[0])); i++) {
        const char *path = sample_path("full.mlab");
        begin(20, errors[i]);
        disk.interrupted = 3;
        ml_window *window = sample_start(path);
        CHECK(window != NULL);
        emit(PLENTY);
        ml_recording *recording = stop_and_read(window, path);
        CHECK(recording != NULL);
        CHECK(recording != NULL);
        CHECK(info.ended);
        CHECK_INT(info.stop, ML_MLAB_STOP_DISK);
        CHECK_INT(info.stop_errno, errors[i]);
        CHECK(info.bytes <= 20 * CHUNK);
        CHECK_UINT(info.gaps[0].position, recording->devices[0].event_count);
        CHECK_UINT(info.gaps[0].lost, 0);
        check_events(recording);
        forget(recording, path);
    }
}

/* No room for the header, or for what lies ready at the start: nothing is left behind. */
static void
test_a_disk_that_is_full_from_the_start(void)
{
    for (unsigned room = 0; room < 17; room += 4) {
        const char *path = sample_path("none.mlab");
        begin(room, ENOSPC);
        ml_window *window = NULL;
        CHECK(sample_start_limited(path, UINT64_MAX, &window) < 0);
        CHECK(strstr(ml_recorder_error(), strerror(ENOSPC)) != NULL);
        CHECK(access(path, F_OK) != 0);
    }
}

/* The disk takes nothing for a while: a gap in the middle, and what comes after it. */
static void
test_a_slow_disk(void)
{
    const char *path = sample_path("slow.mlab");
    begin(17, 0);
    ml_window *window = sample_start(path);
    CHECK(window != NULL);
    emit(PLENTY);
    set_disk(UINT32_MAX, 0);
    await_calls(16);
    emit(1000);
    ml_recording *recording = stop_and_read(window, path);
    CHECK(recording != NULL);
    CHECK_INT(info.stop, ML_MLAB_STOP_NONE);
    CHECK_UINT(info.gap_count, 1);
    CHECK(info.gaps[0].dropped > 0);
    CHECK_UINT(info.gaps[0].lost, 0);
    CHECK(info.gaps[0].position > 1000);
    CHECK_UINT(recording->devices[0].event_count + info.gaps[0].dropped, PLENTY + 1000);
    check_events(recording);
    forget(recording, path);
}

/* The memory at the start finds no room: it is not waited for block by block. */
static void
test_a_disk_that_is_stuck_at_the_start(void)
{
    const char *path = sample_path("stuck.mlab");
    begin(17, 0);
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, UINT64_C(40000) * 512, 0);
    emit(40000);
    ml_window *window = sample_start(path);
    CHECK(window != NULL);
    set_disk(UINT32_MAX, 0);
    ml_recording *recording = stop_and_read(window, path);
    CHECK(recording != NULL);
    CHECK(info.ended);
    CHECK(info.unknown_starts > 0);
    CHECK(info.lost_records > 0);
    forget(recording, path);
}

static void
test_a_file_that_is_cut(void)
{
    /* Within the header, behind it, within the first chunks. */
    static const uint64_t kept[] = {0, 4096, CHUNK, 2 * CHUNK, 3 * CHUNK + 100};
    for (size_t i = UNDER_TSAN ? 4 : 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        const char *path = sample_path("cut.mlab");
        begin(UINT32_MAX, 0);
        ml_window *window = sample_start(path);
        CHECK(window != NULL);
        emit(20000);
        CHECK_INT(truncate(path, (off_t)kept[i]), 0);
        emit(PLENTY);
        ml_window_stop(window);
        ml_mlab_info_fini(&info);
        info = (ml_mlab_info){0};
        ml_recording *recording = sample_read(path, &info);
        if (kept[i] < CHUNK) {
            CHECK(recording == NULL);
        }
        else {
            CHECK(recording != NULL);
            CHECK_INT(info.stop, ML_MLAB_STOP_CUT);
            check_events(recording);
        }
        forget(recording, path);
    }
}

static void
test_a_file_that_is_removed(void)
{
    const char *path = sample_path("gone.mlab");
    begin(UINT32_MAX, 0);
    ml_window *window = sample_start(path);
    CHECK(window != NULL);
    int descriptor = open(path, O_RDONLY);
    CHECK_INT(unlink(path), 0);
    emit(PLENTY);
    ml_window_stop(window);
    CHECK(access(path, F_OK) != 0);
    ml_mlab_input input;
    ml_read_error error;
    ml_recording *recording = NULL;
    CHECK_INT(ml_mlab_input_of(&input, &descriptor), 0);
    CHECK_INT(ml_mlab_read(&input, &recording, &info, &error), 0);
    CHECK_INT(info.stop, ML_MLAB_STOP_CUT);
    check_events(recording);
    close(descriptor);
    forget(recording, path);
}

static sigjmp_buf jump;

static void
on_bus_error(int number)
{
    (void)number;
    siglongjmp(jump, 1);
}

/* A SIGBUS of the program's own is the program's. */
static void
test_other_bus_errors_are_passed_on(void)
{
    const char *path = sample_path("bus.mlab");
    struct sigaction action = {.sa_handler = on_bus_error}, before;
    sigaction(SIGBUS, &action, &before);
    begin(UINT32_MAX, 0);
    ml_window *window = sample_start(path);
    CHECK(window != NULL);
    FILE *own = tmpfile();
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(own), 0);
    CHECK(at != MAP_FAILED);
    volatile int caught = sigsetjmp(jump, 1);
    if (caught == 0) {
        *(volatile char *)at = 1;
    }
    CHECK_INT(caught, 1);
    munmap(at, 4096);
    fclose(own);
    emit(1000);
    ml_recording *recording = stop_and_read(window, path);
    CHECK(recording != NULL);
    CHECK_UINT(info.gap_count, 0);
    check_events(recording);
    struct sigaction after;
    sigaction(SIGBUS, &before, &after);
    CHECK(after.sa_handler == on_bus_error);
    forget(recording, path);
}

int
main(void)
{
    if (ml_recorder_init(sample_walk) < 0 || ml_script_register() < 0) {
        return 1;
    }
    RUN(test_a_full_disk);
    RUN(test_a_disk_that_is_full_from_the_start);
    RUN(test_a_slow_disk);
    RUN(test_a_disk_that_is_stuck_at_the_start);
    RUN(test_a_file_that_is_cut);
    RUN(test_a_file_that_is_removed);
    RUN(test_other_bus_errors_are_passed_on);
    sample_remove_folder();
    return TEST_RESULT();
}
