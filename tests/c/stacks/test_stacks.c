/* Stack interning: what goes in comes out, from many threads, when tables are full and
 * when memory is short. */

/* Barriers and limits are POSIX's, not C11's; resident.h wants more. */
#define _DEFAULT_SOURCE 1

#include "stacks/stacks.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/base.h"
#include "resident.h"
#include "stacks/stacks_records.h"
#include "stacks_samples.h"
#include "test.h"

/* gcc and clang say it differently. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* ---- interning ---- */

static void
test_equal_frames_are_one_id(void)
{
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    CHECK_UINT(ml_stacks_count(stacks), 1);

    uint32_t main_id = add(stacks, 0, 0x1000, 2, "main");
    uint32_t step = add(stacks, main_id, 0x2000, 4, "step");
    uint32_t other_line = add(stacks, main_id, 0x2000, 6, "step");
    uint32_t other_caller = add(stacks, 0, 0x2000, 4, "step");
    CHECK_UINT(main_id, 1);
    CHECK_UINT(step, 2);
    CHECK_UINT(other_line, 3);
    CHECK_UINT(other_caller, 4);
    CHECK_UINT(add(stacks, main_id, 0x2000, 4, "step"), step);
    CHECK_UINT(ml_stacks_count(stacks), 5);

    ml_frame_key known = key(0x2000, 1, 4);
    ml_frame_key unknown = key(0x2000, 1, 8);
    CHECK_UINT(ml_stacks_find(stacks, main_id, &known), step);
    CHECK_UINT(ml_stacks_find(stacks, main_id, &unknown), 0);
    CHECK_UINT(ml_stacks_find(stacks, step, &known), 0);
    ml_stacks_free(stacks);
}

static void
test_text_is_asked_for_once_a_code(void)
{
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    ml_frame_key first = key(0x1000, 1, 0);
    ml_frame_key second = key(0x1000, 1, 2);
    ml_frame_key reused = key(0x1000, 2, 0);
    ml_code_text words = code_text("f", "f.py", 1);

    CHECK_UINT(ml_stacks_add(stacks, 0, &first, NULL), 0);
    CHECK_UINT(ml_stacks_add(stacks, 0, &first, &words), 1);
    CHECK_UINT(ml_stacks_add(stacks, 0, &second, NULL), 2);
    /* Another code object at the same address. */
    CHECK_UINT(ml_stacks_add(stacks, 0, &reused, NULL), 0);
    CHECK_UINT(ml_stacks_add(stacks, 0, &reused, &words), 3);
    ml_stacks_free(stacks);
}

/* Tables as full as they get, with keys that differ in one field: most meet another's
 * slot on the way. */
static void
test_keys_that_meet_in_a_slot(void)
{
    enum {
        COUNT = 500
    };
    ml_stacks_limits limits = {.nodes = 4 * COUNT,
                               .codes = 2 * COUNT,
                               .strings = 9,
                               .objects = 9,
                               .text_bytes = 999};
    ml_code_text words = code_text("f", "f.py", 1);
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, &limits), 0);

    /* Twice: added, then found. */
    ml_frame_key everywhere = key(0x1000, 0, 0);
    for (int round = 0; round < 2; round++) {
        uint32_t next = 1;
        for (uint32_t i = 0; i < COUNT; i++) {
            ml_frame_key by_print = key(0x1000, i, 0);
            ml_frame_key by_offset = key(0x1000, 0, i + 1);
            ml_frame_key by_code = key(0x2000 + i, 0, 0);
            /* A new code object asks for its text, however many meet in its slot. */
            bool asks = round == 0;
            CHECK_UINT(ml_stacks_add(stacks, 0, &by_print, NULL), asks ? 0 : next);
            CHECK_UINT(ml_stacks_add(stacks, 0, &by_print, &words), next);
            CHECK_UINT(ml_stacks_add(stacks, 0, &by_offset, NULL), next + 1);
            CHECK_UINT(ml_stacks_add(stacks, 0, &by_code, NULL), asks ? 0 : next + 2);
            CHECK_UINT(ml_stacks_add(stacks, 0, &by_code, &words), next + 2);
            CHECK_UINT(ml_stacks_add(stacks, next, &everywhere, NULL), next + 3);
            next += 4;
        }
    }
    ml_stacks_free(stacks);
}

static void
test_strings_are_one_id_each(void)
{
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    CHECK_UINT(ml_stacks_string(stacks, "", 0), 0);
    uint32_t long_one = ml_stacks_string(stacks, "epoch 1", 7);
    uint32_t short_one = ml_stacks_string(stacks, "epoch 1", 5);
    CHECK_UINT(long_one, 1);
    CHECK_UINT(short_one, 2);
    CHECK_UINT(ml_stacks_string(stacks, "epoch 1, step 5", 7), long_one);
    CHECK_UINT(ml_stacks_string_count(stacks), 3);
    ml_stacks_free(stacks);
}

/* ---- full tables ---- */

static void
test_full_tables_lose(void)
{
    ml_stacks_limits limits = {
        .nodes = 3, .codes = 2, .strings = 8, .objects = 9, .text_bytes = 100};
    ml_stacks *stacks;

    CHECK_INT(ml_stacks_new(&stacks, &limits), 0);
    CHECK_UINT(add(stacks, 0, 0x1000, 0, "a"), 1);
    CHECK_UINT(add(stacks, 1, 0x2000, 0, "b"), 2);
    CHECK_UINT(add(stacks, 2, 0x3000, 0, "c"), ML_STACK_LOST); /* third code */
    CHECK_UINT(ml_stacks_native(stacks, 2, 0xabc), 3);
    CHECK_UINT(ml_stacks_native(stacks, 2, 0xdef), ML_STACK_LOST); /* fourth node */
    CHECK_UINT(add(stacks, 1, 0x2000, 2, "b"), ML_STACK_LOST);
    /* What is there stays there. */
    CHECK_UINT(add(stacks, 1, 0x2000, 0, "b"), 2);
    CHECK_UINT(ml_stacks_native(stacks, 2, 0xabc), 3);
    CHECK_UINT(ml_stacks_count(stacks), 4);
    ml_stacks_free(stacks);
}

static void
test_full_text_loses(void)
{
    ml_stacks_limits limits = {
        .nodes = 9, .codes = 9, .strings = 2, .objects = 9, .text_bytes = 10};
    ml_stacks *stacks;

    CHECK_INT(ml_stacks_new(&stacks, &limits), 0);
    CHECK_UINT(ml_stacks_string(stacks, "0123456789a", 11), ML_STACK_LOST);
    CHECK_UINT(ml_stacks_string(stacks, "0123", 4), 1);
    CHECK_UINT(ml_stacks_string(stacks, "0123456", 7), ML_STACK_LOST); /* 11 bytes */
    CHECK_UINT(ml_stacks_string(stacks, "012345", 6), 2);
    CHECK_UINT(ml_stacks_string(stacks, "0", 1), ML_STACK_LOST); /* third string */
    CHECK_UINT(ml_stacks_string(stacks, "0123", 4), 1);
    CHECK_UINT(ml_stacks_string_count(stacks), 3);
    ml_stacks_free(stacks);
}

static void
test_senseless_limits_are_refused(void)
{
    const ml_stacks_limits wrong[] = {
        {.nodes = 0, .codes = 1, .strings = 1, .objects = 9, .text_bytes = 1},
        {.nodes = 1, .codes = 0, .strings = 1, .objects = 9, .text_bytes = 1},
        {.nodes = 1, .codes = 1, .strings = 0, .objects = 9, .text_bytes = 1},
        {.nodes = 1, .codes = 1, .strings = 1, .objects = 9, .text_bytes = 0},
        {.nodes = SIZE_MAX, .codes = 1, .strings = 1, .objects = 9, .text_bytes = 1},
        {.nodes = 1,
         .codes = 1,
         .strings = 1,
         .objects = 9,
         .text_bytes = (size_t)1 << 32},
    };
    for (size_t i = 0; i < LENGTH(wrong); i++) {
        ml_stacks *stacks = NULL;
        CHECK_INT(ml_stacks_new(&stacks, &wrong[i]), ML_EINVALID);
        CHECK_PTR(stacks, NULL);
    }
    ml_stacks_free(NULL);
}

static size_t
touched_bytes(const ml_stacks *stacks)
{
    const ml_stack_table *tables[] = {&stacks->nodes, &stacks->codes, &stacks->strings,
                                      &stacks->objects};
    size_t bytes = resident_bytes(&stacks->text);

    for (size_t i = 0; i < LENGTH(tables); i++) {
        bytes +=
            resident_bytes(&tables[i]->records) + resident_bytes(&tables[i]->slots);
    }
    return bytes;
}

static void
test_memory_grows_with_use_only(void)
{
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    CHECK(touched_bytes(stacks) < 65536);
    for (uint32_t i = 0; i < 10000; i++) {
        add(stacks, 0, 0x1000, i, "f");
    }
    /* 32 bytes a node, and pages of 4 bytes a slot spread over the whole table. */
    size_t used = touched_bytes(stacks);
    CHECK(used >= 320000 && used < 64000000);
    ml_stacks_free(stacks);
}

/* ---- short memory ---- */

static void
test_every_allocation_of_new_may_fail(void)
{
    ml_stacks *stacks = NULL;
    int error = ML_ENOMEM;

    ml_set_realloc(failing_realloc);
    for (size_t allowed = 0; error != 0 && allowed < 100; allowed++) {
        budget = allowed;
        error = ml_stacks_new(&stacks, NULL);
        if (error != 0 && (error != ML_ENOMEM || live != 0 || stacks != NULL)) {
            break;
        }
    }
    int left = live;
    ml_stacks_free(stacks);
    ml_set_realloc(NULL);
    CHECK_INT(error, 0);
    CHECK_INT(left, 1);
    CHECK_INT(live, 0);
}

/* Sanitizers and valgrind map memory of their own and die of such a limit. */
static bool
address_space_may_be_limited(void)
{
#ifdef SANITIZED
    return false;
#else
    const char *preloaded = getenv("LD_PRELOAD");
    return preloaded == NULL || strstr(preloaded, "vgpreload") == NULL;
#endif
}

/* With ever more address space allowed: first nothing, then smaller tables, and these
 * work. */
static void
test_address_space_may_be_short(void)
{
    if (!address_space_may_be_limited()) {
        printf("skipped test_address_space_may_be_short: a sanitizer or valgrind "
               "cannot work in little address space\n");
        return;
    }
    struct rlimit before;
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm != NULL);
    CHECK_INT(fscanf(statm, "%lu", &pages), 1);
    fclose(statm);
    CHECK_INT(getrlimit(RLIMIT_AS, &before), 0);

    ml_stacks *stacks = NULL;
    int error = ML_ENOMEM;
    int failures = 0;
    for (rlim_t kib = 0; error == ML_ENOMEM && kib <= 1024; kib += 16) {
        struct rlimit now = {pages * 4096 + kib * 1024, before.rlim_max};
        setrlimit(RLIMIT_AS, &now);
        error = ml_stacks_new(&stacks, NULL);
        failures += error != 0;
    }
    uint32_t ids[3] = {0, 0, 0};
    if (error == 0) {
        ids[0] = add(stacks, 0, 0x1000, 2, "main");
        ids[1] = add(stacks, ids[0], 0x2000, 2, "step");
        ids[2] = add(stacks, ids[0], 0x2000, 2, "step");
    }
    setrlimit(RLIMIT_AS, &before);
    CHECK_INT(error, 0);
    CHECK(failures > 5);
    CHECK_UINT(ids[0], 1);
    CHECK_UINT(ids[1], 2);
    CHECK_UINT(ids[2], 2);
    /* Far fewer fit than by default, and the one too many is lost, not written. */
    uint32_t last = 0;
    for (uint32_t i = 0; i < 1000000 && last != ML_STACK_LOST; i++) {
        last = ml_stacks_native(stacks, 0, i);
    }
    CHECK_UINT(last, ML_STACK_LOST);
    CHECK(ml_stacks_count(stacks) < 100000);
    ml_stacks_free(stacks);
}

/* ---- many threads ---- */

#define THREADS 4
#define PATHS 20000
#define DEPTH 6
#define CODES 5
#define OFFSETS 2

typedef struct worker {
    pthread_barrier_t *start; /* so that all begin at the same time */
    ml_stacks *stacks;
    uint64_t seed;
    uint32_t ids[PATHS];
    size_t wrong;
} worker;

/* The next path of a seed, innermost first; few enough that threads collide a lot. */
static size_t
next_path(uint64_t *seed, ml_frame_key *path)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    uint64_t random = *seed >> 11;
    size_t depth = 1 + random % DEPTH;
    random /= DEPTH;
    for (size_t i = 0; i < depth; i++) {
        path[i] =
            key(0x1000 + random % CODES, 1, (uint32_t)(random / CODES % OFFSETS * 2));
        random /= CODES * OFFSETS;
    }
    return depth;
}

static uint32_t
intern_path(ml_stacks *stacks, const ml_frame_key *path, size_t depth)
{
    static const char *const names[CODES] = {"a", "b", "c", "d", "e"};
    uint32_t id = 0;

    for (size_t left = depth; left > 0; left--) {
        const ml_frame_key *frame = &path[left - 1];
        ml_code_text words = code_text(names[frame->code - 0x1000], "model.py", 10);
        id = ml_stacks_add(stacks, id, frame, &words);
    }
    return id;
}

static uint32_t
find_path(const ml_stacks *stacks, const ml_frame_key *path, size_t depth)
{
    uint32_t id = 0;

    while (depth > 0) {
        id = ml_stacks_find(stacks, id, &path[--depth]);
        if (id == 0) {
            break;
        }
    }
    return id;
}

static void *
work(void *argument)
{
    worker *self = argument;
    uint64_t seed = self->seed;

    pthread_barrier_wait(self->start);
    for (size_t i = 0; i < PATHS; i++) {
        ml_frame_key path[DEPTH];
        size_t depth = next_path(&seed, path);
        uint32_t id = intern_path(self->stacks, path, depth);
        uint32_t native = ml_stacks_native(self->stacks, id, seed % 3 + 1);
        uint32_t string = ml_stacks_string(self->stacks, "0123456789", seed % 11);
        self->wrong += native <= id || native == ML_STACK_LOST || string > 10 * THREADS;
        self->wrong += find_path(self->stacks, path, depth) != id;
        self->ids[i] = id;
    }
    return NULL;
}

static void
test_threads_agree(void)
{
    static worker workers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    ml_stacks *stacks;
    ml_recording *recording;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    CHECK_INT(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (size_t i = 0; i < THREADS; i++) {
        /* Two threads of each seed insert the very same at the same time. */
        workers[i] = (worker){.start = &start, .stacks = stacks, .seed = 1 + i / 2};
        CHECK_INT(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    }
    pthread_barrier_destroy(&start);

    uint32_t count = ml_stacks_count(stacks);
    uint32_t *map = malloc(count * sizeof(*map));
    CHECK(map != NULL);
    memset(map, 1, count * sizeof(*map));
    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_INT(ml_stacks_resolve(stacks, recording, map, count, NULL), 0);
    CHECK_INT(ml_recording_validate(recording), 0);
    for (size_t i = 0; i < THREADS; i++) {
        uint64_t seed = workers[i].seed;
        CHECK_UINT(workers[i].wrong, 0);
        for (size_t k = 0; k < PATHS; k++) {
            ml_frame_key path[DEPTH];
            char want[DEPTH * 8] = "";
            size_t used = 0;
            size_t depth = next_path(&seed, path);
            uint32_t id = workers[i].ids[k];
            CHECK_UINT(find_path(stacks, path, depth), id);
            for (size_t j = 0; j < depth; j++) {
                used += (size_t)snprintf(
                    want + used, sizeof(want) - used, "%s%c:%u", j != 0 ? " " : "",
                    "abcde"[path[j].code - 0x1000], 10 + path[j].offset / 2);
            }
            CHECK_STR(written(recording, map[id]), want);
        }
    }
    ml_recording_free(recording);
    ml_stacks_free(stacks);
    free(map);
}

int
main(void)
{
    RUN(test_equal_frames_are_one_id);
    RUN(test_text_is_asked_for_once_a_code);
    RUN(test_keys_that_meet_in_a_slot);
    RUN(test_strings_are_one_id_each);
    RUN(test_full_tables_lose);
    RUN(test_full_text_loses);
    RUN(test_senseless_limits_are_refused);
    RUN(test_memory_grows_with_use_only);
    RUN(test_every_allocation_of_new_may_fail);
    RUN(test_address_space_may_be_short);
    RUN(test_threads_agree);
    return TEST_RESULT();
}
