/* An event is packed once: the files that a recording goes to hold copies of the records in
 * memory, from whatever event on each of them was begun. */
#define _GNU_SOURCE

#include <pthread.h>
#include <sched.h>

#include "journal_samples.h"
#include "source_samples.h"
#include "test.h"
#include "plain_events.h"

static ml_mlab_info info;

/* ---- An ordered source ---- */

#define PART 4000u /* events: more than a chunk of a file holds */

/* The next of a run whose fields change now and then, near and far. */
static void
emit(uint64_t number)
{
    uint64_t wide = number * UINT64_C(0x9e3779b97f4a7c15);
    next_line = (uint32_t)(wide >> 60);
    ml_event event = {
        .action = number % 3 == 0 ? ML_ACTION_ALLOC : ML_ACTION_OOM,
        .addr = number % 3 == 0 ? SEGMENT + number * 512 : wide >> 40,
        .size = number % 3 == 0 ? 512 : wide >> 50,
        .time = number * 1000 + 1,
        .stream = wide >> 61,
        .sequence = number % 7 == 0 ? UINT64_MAX : wide >> 32,
        .next = number % 11 == 0 ? wide : 0,
        .next_thread = number % 11 == 0,
        .pool = {(uint32_t)(wide >> 62), 0},
        .autograd_thread = (uint16_t)(wide >> 63),
        .flags = number % 5 == 0 ? ML_EVENT_BACKWARD : 0,
    };
    ml_script_emit(0, &event, NULL);
}

static void
emit_part(uint64_t part)
{
    for (uint64_t i = part * PART; i < (part + 1) * PART; i++) {
        emit(i);
    }
}

static bool
same(const ml_event *a, const ml_event *b)
{
    return a->action == b->action && a->addr == b->addr && a->size == b->size &&
           a->time == b->time && a->block_bytes == b->block_bytes &&
           a->stream == b->stream && a->sequence == b->sequence && a->next == b->next &&
           a->next_thread == b->next_thread && a->pool[0] == b->pool[0] &&
           a->autograd_thread == b->autograd_thread && a->thread == b->thread &&
           a->flags == b->flags && (a->stack == 0) == (b->stack == 0);
}

/* The file at PATH has the events of MEMORY from PART FIRST up to LAST, and no others. */
static void
check_parts(const char *path, const ml_recording *memory, uint64_t first, uint64_t last)
{
    ml_recording *recording = sample_read(path, &info);
    CHECK(recording != NULL);
    CHECK_UINT(info.gap_count, 0);
    CHECK_UINT(info.damaged_chunks, 0);
    CHECK_UINT(info.unread_records, 0);
    const ml_device_trace *trace = &recording->devices[0];
    CHECK_UINT(trace->event_count, (last - first) * PART);
    uint64_t different = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        different += !same(&plain_events(trace)[i],
                           &plain_events(&memory->devices[0])[first * PART + i]);
    }
    CHECK_UINT(different, 0);
    ml_recording_free(recording);
    ml_mlab_info_fini(&info);
    unlink(path);
}

static void
test_files_begun_one_after_the_other(void)
{
    char paths[3][256];
    ml_window *files[3];
    ml_window *window = NULL;
    ml_recording *memory = NULL;
    ml_window_options options = {.max_entries = 10 * PART,
                                 .context = ML_CONTEXT_ALL,
                                 .keep_events = true,
                                 .device = -1};
    ml_script_reset(NULL);
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 40 * MIB, 0);
    CHECK_INT(ml_window_start(ml_recorder_source("script"), &options, &window), 0);
    for (uint64_t i = 0; i < 3; i++) {
        snprintf(paths[i], sizeof(paths[i]), "%s", sample_path("abc.mlab"));
        paths[i][strlen(paths[i]) - 6] = (char)('0' + i);
        emit_part(i);
        files[i] = sample_start(paths[i]);
        CHECK(files[i] != NULL);
    }
    emit_part(3);
    for (uint64_t i = 0; i < 3; i++) {
        ml_window_stop(files[i]);
        emit_part(4 + i);
    }
    CHECK_INT(ml_window_freeze(window, 0, &memory), 0);
    ml_window_stop(window);
    CHECK(memory->devices[0].event_count >= 7 * PART);
    for (uint64_t i = 0; i < 3; i++) {
        check_parts(paths[i], memory, i + 1, i + 4);
    }
    ml_recording_free(memory);
}

/* ---- A source that no lock orders ---- */

#define THREADS 6u
#define EACH (ML_DEBUG > 0 ? 4000u : 40000u)

static _Atomic unsigned reached; /* threads that are through half of theirs */
static _Atomic bool begun;       /* the second file; odd threads wait for it */

static int
loose_walk(void *self, const ml_walk_visitor *visitor)
{
    (void)self;
    (void)visitor;
    return 0;
}

static int
loose_rules(void *self, int device, ml_allocator_rules *out)
{
    (void)self;
    (void)device;
    *out = (ml_allocator_rules){.max_split_bytes = UINT64_MAX};
    return 0;
}

static uint64_t
loose_now(void *self)
{
    (void)self;
    return 1;
}

static ml_source loose = {SOURCE_SAMPLE,      .name = "loose",
                          .walk = loose_walk, .rules = loose_rules,
                          .now = loose_now,   .unix_ns = source_unix_ns};

static void *
emit_own(void *context)
{
    uint64_t thread = (uint64_t)(uintptr_t)context;
    for (uint64_t i = 0; i < EACH; i++) {
        ml_event event = {.action = ML_ACTION_ALLOC,
                          .addr = (thread << 32 | (i + 1)) * 512,
                          .size = thread + i + 1,
                          .block_bytes = 512,
                          .time = i + 1};
        ml_recorder_record(&loose, 0, &event, NULL);
        if (i == EACH / 2) {
            atomic_fetch_add(&reached, 1);
        }
        while (i == EACH / 2 && thread % 2 != 0 && !atomic_load(&begun)) {
            sched_yield();
        }
    }
    return NULL;
}

static ml_window *
start_loose(const char *path)
{
    ml_window *window = NULL;
    ml_window_options options = {.max_entries = 1000,
                                 .keep_events = true,
                                 .device = -1,
                                 .file = path,
                                 .file_bytes = UINT64_MAX};
    return ml_window_start(&loose, &options, &window) == 0 ? window : NULL;
}

/* Every event of the file at PATH is one that a thread made, and those of one thread are in
 * their order; how many there are, with those that the file counts as dropped. */
static void
count_own(const char *path, uint64_t *count)
{
    *count = 0;
    ml_recording *recording = sample_read(path, &info);
    CHECK(recording != NULL);
    CHECK_UINT(info.damaged_chunks, 0);
    const ml_device_trace *trace = &recording->devices[0];
    uint64_t last[THREADS] = {0}, wrong = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const ml_event *event = &plain_events(trace)[i];
        uint64_t thread = event->addr / 512 >> 32;
        uint64_t number = event->addr / 512 & UINT32_MAX;
        bool own = thread < THREADS && event->size == thread + number &&
                   event->time == number &&
                   number > last[thread < THREADS ? thread : 0];
        wrong += !own;
        if (own) {
            last[thread] = number;
        }
    }
    CHECK_UINT(wrong, 0);
    *count = trace->event_count + trace->dropped_events;
    ml_recording_free(recording);
    ml_mlab_info_fini(&info);
    unlink(path);
}

static void
test_a_file_begun_while_threads_record(void)
{
    char path[256];
    snprintf(path, sizeof(path), "%s", sample_path("first.mlab"));
    ml_window *first = start_loose(path);
    CHECK(first != NULL);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, emit_own, (void *)i), 0);
    }
    while (atomic_load(&reached) == 0) {
        sched_yield();
    }
    const char *later = sample_path("second.mlab");
    ml_window *second = start_loose(later);
    atomic_store(&begun, true);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(second != NULL);
    ml_window_stop(first);
    ml_window_stop(second);
    uint64_t all = THREADS * (uint64_t)EACH, count;
    count_own(path, &count);
    CHECK_UINT(count, all);
    count_own(later, &count);
    CHECK(count >= all / 4 - THREADS && count < all);
}

int
main(void)
{
    if (ml_recorder_init(sample_walk) < 0 || ml_script_register() < 0 ||
        ml_recorder_add_source(&loose) < 0) {
        return 1;
    }
    RUN(test_files_begun_one_after_the_other);
    RUN(test_a_file_begun_while_threads_record);
    sample_remove_folder();
    return TEST_RESULT();
}
