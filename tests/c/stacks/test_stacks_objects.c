/* Objects of frames and their names: one id each, names that come later, addresses that
 * another object takes. */
#include "stacks/stacks.h"

#include <pthread.h>

#include "stacks/stacks_records.h"
#include "stacks_samples.h"
#include "test.h"

static uint32_t
object(ml_stacks *stacks, uint64_t address, uint64_t type, const char *type_name)
{
    ml_slice name = text(type_name);
    return ml_stacks_object(stacks, (ml_object_key){address, type}, &name);
}

/* A stack of one frame that works on OBJECT. */
static uint32_t
stack_on(ml_stacks *stacks, uint32_t object_id)
{
    ml_frame_key frame = key(0x1000, 1, 2);
    frame.object = object_id;
    ml_code_text words = code_text("call", "module.py", 10);
    return ml_stacks_add(stacks, 0, &frame, &words);
}

/* The module of the one frame of STACK. */
static const char *
module_of(const ml_stacks *stacks, uint32_t stack)
{
    static char name[1024];
    ml_recording *recording;
    size_t count = ml_stacks_count(stacks);
    uint32_t *map = calloc(count, sizeof(*map));

    map[stack] = 1;
    if (ml_recording_new(&recording) < 0 ||
        ml_stacks_resolve(stacks, recording, map, count, NULL) < 0 ||
        ml_recording_validate(recording) < 0) {
        return "not resolved";
    }
    const ml_string *found = &recording->strings[recording->stacks[map[stack]].module];
    snprintf(name, sizeof(name), "%.*s", (int)found->length,
             found->length != 0 ? found->bytes : "");
    ml_recording_free(recording);
    free(map);
    return name;
}

static void
test_an_object_has_one_id(void)
{
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    ml_object_key unknown = {0x10, 0x20};

    CHECK_UINT(ml_stacks_object(stacks, unknown, NULL), 0);
    uint32_t first = object(stacks, 0x10, 0x20, "Linear");
    CHECK(first != 0 && first != ML_STACK_LOST);
    CHECK_UINT(object(stacks, 0x10, 0x20, "Linear"), first);
    CHECK(object(stacks, 0x10, 0x20, "Conv2d") !=
          first); /* at the addresses of dead ones */
    CHECK_UINT(ml_stacks_object(stacks, unknown, NULL), first);
    CHECK(object(stacks, 0x11, 0x20, "Linear") != first);
    CHECK(object(stacks, 0x10, 0x21, "Other") != first);
    CHECK_UINT(ml_stacks_object_count(stacks), 5);
    ml_stacks_free(stacks);
}

static void
test_names_reach_stacks_seen_before(void)
{
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    uint32_t id = object(stacks, 0x10, 0x20, "Linear");
    uint32_t stack = stack_on(stacks, id);

    CHECK(stack != stack_on(stacks, 0));
    CHECK_STR(module_of(stacks, stack), "<Linear>");
    CHECK_STR(module_of(stacks, stack_on(stacks, 0)), "");
    CHECK_INT(ml_stacks_name_object(stacks, id, "h.0.fc", 6), 0);
    CHECK_STR(module_of(stacks, stack), "h.0.fc");
    CHECK_INT(ml_stacks_name_object(stacks, id, "h.1.fc", 6), 0);
    CHECK_STR(module_of(stacks, stack), "h.1.fc");
    CHECK_INT(ml_stacks_name_object(stacks, 0, "x", 1), ML_EINVALID);
    CHECK_INT(ml_stacks_name_object(stacks, id + 1, "x", 1), ML_EINVALID);
    ml_stacks_free(stacks);
}

static void
test_a_forgotten_object_keeps_its_name_and_gives_its_address_up(void)
{
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    uint32_t dead = object(stacks, 0x10, 0x20, "Linear");
    uint32_t swapped = object(stacks, 0x10, 0x30, "Swapped");
    uint32_t neighbour = object(stacks, 0x18, 0x20, "Linear");
    uint32_t stack = stack_on(stacks, dead);
    uint64_t epoch = stacks_epoch(stacks);

    ml_stacks_name_object(stacks, dead, "old", 3);
    CHECK_UINT(stacks_epoch(stacks), epoch);
    ml_stacks_forget_object(stacks, 0x10);
    CHECK(stacks_epoch(stacks) != epoch);
    uint32_t alive = object(stacks, 0x10, 0x20, "Linear");
    CHECK(alive != dead);
    CHECK(object(stacks, 0x10, 0x30, "Swapped") != swapped);
    CHECK_UINT(object(stacks, 0x18, 0x20, "Linear"), neighbour);
    ml_stacks_name_object(stacks, alive, "new", 3);
    CHECK_STR(module_of(stacks, stack), "old");
    CHECK_STR(module_of(stacks, stack_on(stacks, alive)), "new");
    ml_stacks_free(stacks);
}

/* A call's module that did not fit is not known: it is not its caller's, nor none. */
static void
test_an_object_that_does_not_fit(void)
{
    ml_stacks_limits limits = {
        .nodes = 9, .codes = 9, .strings = 9, .objects = 1, .text_bytes = 99};
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, &limits), 0);
    uint32_t first = object(stacks, 0x10, 0x20, "Linear");
    CHECK_UINT(ml_stacks_lost_names(stacks), 0);
    uint32_t lost = object(stacks, 0x11, 0x20, "Linear");
    CHECK_UINT(lost, ML_STACK_LOST);
    CHECK_UINT(ml_stacks_lost_names(stacks), 1);
    uint32_t stack = stack_on(stacks, lost);
    CHECK(stack != stack_on(stacks, first) && stack != stack_on(stacks, 0));
    CHECK_STR(module_of(stacks, stack), "<lost>");
    CHECK_INT(ml_stacks_name_object(stacks, lost, "h.0", 3), ML_EINVALID);
    ml_stacks_free(stacks);
}

static void
test_long_type_names_are_cut(void)
{
    char name[600];
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    uint32_t id = object(stacks, 0x10, 0x20, name);
    CHECK_UINT(strlen(module_of(stacks, stack_on(stacks, id))), 255);
    ml_stacks_name_object(stacks, id, name, sizeof(name) - 1);
    CHECK_STR(module_of(stacks, stack_on(stacks, id)), name);
    ml_stacks_free(stacks);
}

static void
test_a_full_table_says_so(void)
{
    ml_stacks_limits limits = {
        .nodes = 9, .codes = 9, .strings = 9, .objects = 2, .text_bytes = 99};
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, &limits), 0);
    uint32_t first = object(stacks, 0x10, 0x20, "A");
    object(stacks, 0x11, 0x20, "A");
    CHECK_UINT(object(stacks, 0x12, 0x20, "A"), ML_STACK_LOST);
    CHECK_UINT(object(stacks, 0x10, 0x20, "A"), first);
    CHECK_UINT(ml_stacks_object_count(stacks), 3);
    ml_stacks_free(stacks);
}

/* ---- threads ---- */

enum {
    ADDRESSES = 8,
    ROUNDS = 2000,
    WALKERS = 3
};

static ml_stacks *shared;

/* As the callback does: stacks on objects, by addresses that others name and forget. */
static void *
walk_main(void *argument)
{
    uint64_t at = (uintptr_t)argument;

    for (int i = 0; i < ROUNDS; i++) {
        uint32_t id = object(shared, 0x10 + (at++ % ADDRESSES) * 8, 0x20, "Linear");
        stack_on(shared, id != ML_STACK_LOST ? id : 0);
    }
    return NULL;
}

static void
test_naming_while_others_walk(void)
{
    pthread_t walkers[WALKERS];
    ml_stacks_limits limits = {.nodes = 1 << 16,
                               .codes = 9,
                               .strings = 999,
                               .objects = 1 << 15,
                               .text_bytes = 9999};
    CHECK_INT(ml_stacks_new(&shared, &limits), 0);
    for (uintptr_t i = 0; i < WALKERS; i++) {
        CHECK_INT(pthread_create(&walkers[i], NULL, walk_main, (void *)i), 0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t address = 0x10 + (uint64_t)(i % ADDRESSES) * 8;
        char name[16];
        int length = snprintf(name, sizeof(name), "m.%d", i % ADDRESSES);
        uint32_t id = object(shared, address, 0x20, "Linear");
        ml_stacks_name_object(shared, id, name, (size_t)length);
        if (i % 50 == 0) {
            CHECK_STR(module_of(shared, stack_on(shared, id)), name);
        }
        if (i % 7 == 0) {
            ml_stacks_forget_object(shared, address);
        }
    }
    for (int i = 0; i < WALKERS; i++) {
        CHECK_INT(pthread_join(walkers[i], NULL), 0);
    }
    ml_stacks_free(shared);
}

int
main(void)
{
    RUN(test_an_object_has_one_id);
    RUN(test_names_reach_stacks_seen_before);
    RUN(test_a_forgotten_object_keeps_its_name_and_gives_its_address_up);
    RUN(test_an_object_that_does_not_fit);
    RUN(test_long_type_names_are_cut);
    RUN(test_a_full_table_says_so);
    RUN(test_naming_while_others_walk);
    return TEST_RESULT();
}
