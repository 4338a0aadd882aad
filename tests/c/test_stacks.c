/* Stack interning and naming: what goes in comes out, from many threads, when tables
 * are full, when memory is short, and in torch's order. */

/* Barriers and limits are POSIX's, not C11's. */
#define _POSIX_C_SOURCE 200809L

#include "stacks.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base.h"
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

/* ---- an allocator that fails after a number of allocations ---- */

static size_t budget;
static int live;

static void *
failing_realloc(void *pointer, size_t bytes)
{
    if (bytes == 0) {
        live -= pointer != NULL;
        free(pointer);
        return NULL;
    }
    if (budget == 0) {
        return NULL;
    }
    budget--;
    void *grown = realloc(pointer, bytes);
    live += pointer == NULL && grown != NULL;
    return grown;
}

/* ---- short ways to write stacks ---- */

static ml_frame_key
key(uint64_t code, uint64_t fingerprint, uint32_t offset)
{
    return (ml_frame_key){.code = code, .fingerprint = fingerprint, .offset = offset};
}

static ml_slice
text(const char *string)
{
    return (ml_slice){.bytes = string, .length = strlen(string)};
}

/* One instruction a line, 16 of them, starting at line FIRST; a 3.11 table. */
static ml_code_text
code_text(const char *name, const char *filename, int32_t first)
{
    static const char table[] = {
        (char)0xd0, 1, 1, (char)0xd8, 1, 1, (char)0xd8, 1, 1, (char)0xd8, 1, 1,
        (char)0xd8, 1, 1, (char)0xd8, 1, 1, (char)0xd8, 1, 1, (char)0xd8, 1, 1,
    };
    return (ml_code_text){.name = text(name),
                          .filename = text(filename),
                          .linetable = {.bytes = table, .length = sizeof(table)},
                          .firstlineno = first,
                          .python_minor = 11};
}

static uint32_t
add(ml_stacks *stacks, uint32_t parent, uint64_t code, uint32_t offset,
    const char *name)
{
    ml_frame_key frame = key(code, 1, offset);
    ml_code_text words = code_text(name, "model.py", 10);
    return ml_stacks_add(stacks, parent, &frame, &words);
}

/* "name:line name:line ...", innermost first, of a stack of RECORDING. */
static const char *
written(const ml_recording *recording, uint32_t stack)
{
    static char line[4096];
    size_t used = 0;

    line[0] = '\0';
    for (; stack != 0 && used < sizeof(line); stack = recording->stacks[stack].parent) {
        const ml_frame *frame = &recording->frames[recording->stacks[stack].frame];
        const ml_string *name = &recording->strings[frame->name];
        used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%.*s:%lld",
                                 used != 0 ? " " : "", (int)name->length,
                                 name->length != 0 ? name->bytes : "",
                                 (long long)frame->line);
    }
    return line;
}

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
    CHECK_UINT(ml_stacks_lost(stacks), 0);
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

static void
test_whole_stacks_are_found(void)
{
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    uint32_t outer = add(stacks, 0, 0x1000, 2, "outer");
    uint32_t middle = add(stacks, outer, 0x2000, 2, "middle");
    uint32_t inner = add(stacks, middle, 0x3000, 2, "inner");
    ml_frame_key path[] = {key(0x3000, 1, 2), key(0x2000, 1, 2), key(0x1000, 1, 2)};
    size_t known;

    /* Twice: the second time by the remembered hint. */
    for (int i = 0; i < 2; i++) {
        CHECK_UINT(ml_stacks_find_path(stacks, path, 3, &known), inner);
        CHECK_UINT(known, 3);
        CHECK_UINT(ml_stacks_find_path(stacks, path + 1, 2, &known), middle);
        CHECK_UINT(known, 2);
    }
    CHECK_UINT(ml_stacks_find_path(stacks, path, 2, &known), 0);
    CHECK_UINT(known, 0);
    path[0].offset = 4;
    for (int i = 0; i < 2; i++) {
        CHECK_UINT(ml_stacks_find_path(stacks, path, 3, &known), middle);
        CHECK_UINT(known, 2);
    }
    CHECK_UINT(ml_stacks_find_path(stacks, path, 0, &known), 0);
    CHECK_UINT(known, 0);
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
    ml_stacks_limits limits = {
        .nodes = 4 * COUNT, .codes = 2 * COUNT, .strings = 9, .text_bytes = 999};
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
    CHECK_UINT(ml_stacks_lost(stacks), 0);
    ml_stacks_free(stacks);
}

/* So many stacks end in one frame that the hint of some is found for the frame alone,
 * as it is for each other. */
static void
test_hints_are_verified_to_the_root(void)
{
    enum {
        COUNT = 400000
    };
    ml_stacks *stacks;
    size_t known;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    uint32_t alone = add(stacks, 0, 0x1000, 0, "f");
    add(stacks, 0, 0x2000, 0, "caller");
    ml_frame_key path[] = {key(0x1000, 1, 0), key(0x2000, 1, 0)};

    for (uint32_t i = 0; i < COUNT; i++) {
        path[1].offset = i;
        uint32_t caller = ml_stacks_add(stacks, 0, &path[1], NULL);
        uint32_t id = ml_stacks_add(stacks, caller, &path[0], NULL);
        CHECK_UINT(ml_stacks_find_path(stacks, path, 2, &known), id);
    }
    CHECK_UINT(ml_stacks_find_path(stacks, path, 1, &known), alone);
    CHECK_UINT(known, 1);
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
test_full_tables_lose_and_count(void)
{
    ml_stacks_limits limits = {.nodes = 3, .codes = 2, .strings = 8, .text_bytes = 100};
    ml_stacks *stacks;

    CHECK_INT(ml_stacks_new(&stacks, &limits), 0);
    CHECK_UINT(add(stacks, 0, 0x1000, 0, "a"), 1);
    CHECK_UINT(add(stacks, 1, 0x2000, 0, "b"), 2);
    CHECK_UINT(add(stacks, 2, 0x3000, 0, "c"), ML_STACK_LOST); /* third code */
    CHECK_UINT(ml_stacks_lost(stacks), 1);
    CHECK_UINT(ml_stacks_native(stacks, 2, 0xabc), 3);
    CHECK_UINT(ml_stacks_native(stacks, 2, 0xdef), ML_STACK_LOST); /* fourth node */
    CHECK_UINT(add(stacks, 1, 0x2000, 2, "b"), ML_STACK_LOST);
    CHECK_UINT(ml_stacks_lost(stacks), 3);
    /* What is there stays there. */
    CHECK_UINT(add(stacks, 1, 0x2000, 0, "b"), 2);
    CHECK_UINT(ml_stacks_native(stacks, 2, 0xabc), 3);
    CHECK_UINT(ml_stacks_count(stacks), 4);
    ml_stacks_free(stacks);
}

static void
test_full_text_loses_and_counts(void)
{
    ml_stacks_limits limits = {.nodes = 9, .codes = 9, .strings = 2, .text_bytes = 10};
    ml_stacks *stacks;

    CHECK_INT(ml_stacks_new(&stacks, &limits), 0);
    CHECK_UINT(ml_stacks_string(stacks, "0123456789a", 11), ML_STACK_LOST);
    CHECK_UINT(ml_stacks_string(stacks, "0123", 4), 1);
    CHECK_UINT(ml_stacks_string(stacks, "0123456", 7), ML_STACK_LOST); /* 11 bytes */
    CHECK_UINT(ml_stacks_string(stacks, "012345", 6), 2);
    CHECK_UINT(ml_stacks_string(stacks, "0", 1), ML_STACK_LOST); /* third string */
    CHECK_UINT(ml_stacks_string(stacks, "0123", 4), 1);
    CHECK_UINT(ml_stacks_lost(stacks), 3);
    CHECK_UINT(ml_stacks_string_count(stacks), 3);
    ml_stacks_free(stacks);
}

static void
test_senseless_limits_are_refused(void)
{
    const ml_stacks_limits wrong[] = {
        {.nodes = 0, .codes = 1, .strings = 1, .text_bytes = 1},
        {.nodes = 1, .codes = 0, .strings = 1, .text_bytes = 1},
        {.nodes = 1, .codes = 1, .strings = 0, .text_bytes = 1},
        {.nodes = 1, .codes = 1, .strings = 1, .text_bytes = 0},
        {.nodes = SIZE_MAX, .codes = 1, .strings = 1, .text_bytes = 1},
        {.nodes = 1, .codes = 1, .strings = 1, .text_bytes = (size_t)1 << 32},
    };
    for (size_t i = 0; i < LENGTH(wrong); i++) {
        ml_stacks *stacks = NULL;
        CHECK_INT(ml_stacks_new(&stacks, &wrong[i]), ML_EINVALID);
        CHECK_PTR(stacks, NULL);
    }
    ml_stacks_free(NULL);
}

static void
test_memory_grows_with_use_only(void)
{
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    size_t empty = ml_stacks_bytes(stacks);
    CHECK(empty < 65536);
    for (uint32_t i = 0; i < 10000; i++) {
        add(stacks, 0, 0x1000, i, "f");
    }
    /* 32 bytes a node, and pages of 4 bytes a slot spread over the whole table. */
    size_t used = ml_stacks_bytes(stacks);
    CHECK(used >= empty + 320000 && used < 64000000);
    ml_stacks_free(stacks);
}

/* ---- naming ---- */

static void
test_names_what_was_asked_for(void)
{
    ml_stacks *stacks;
    ml_recording *recording;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    uint32_t main_id = add(stacks, 0, 0x1000, 2, "main");
    uint32_t step = add(stacks, main_id, 0x2000, 0, "step");
    add(stacks, main_id, 0x4000, 0, "not asked for");
    uint32_t after_the_table = add(stacks, step, 0x3000, 16, "forward");
    uint32_t map[5] = {9, 0, 1, 0, 77};
    CHECK_UINT(after_the_table, 4);

    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_INT(ml_stacks_resolve(stacks, recording, map, 5, NULL), 0);
    CHECK_INT(ml_recording_validate(recording), 0);
    CHECK_UINT(map[0], 0);
    CHECK_UINT(map[1], 0);
    CHECK_UINT(map[3], 0);
    CHECK_STR(written(recording, map[2]), "step:10 main:11");
    CHECK_STR(written(recording, map[4]), "forward:0 step:10 main:11");
    /* The empty one, main, step, forward. */
    CHECK_UINT(recording->stack_count, 4);
    CHECK_UINT(recording->frame_count, 4);
    /* "", model.py, main, step, forward */
    CHECK_UINT(recording->string_count, 5);
    const ml_frame *frame = &recording->frames[recording->stacks[map[2]].frame];
    CHECK_TEXT(recording->strings[frame->filename].bytes,
               recording->strings[frame->filename].length, "model.py");
    ml_recording_free(recording);
    ml_stacks_free(stacks);
}

/* Two code objects, or two instructions of one line: the same to a reader. */
static void
test_equal_looking_frames_become_one(void)
{
    ml_stacks *stacks;
    ml_recording *recording;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    uint32_t first = add(stacks, 0, 0x1000, 2, "main");
    uint32_t same_line = add(stacks, 0, 0x1000, 3, "main");
    uint32_t recompiled = add(stacks, 0, 0x9000, 2, "main");
    uint32_t below = add(stacks, first, 0x2000, 0, "step");
    uint32_t below_too = add(stacks, recompiled, 0x2000, 0, "step");
    uint32_t map[6] = {0, 1, 1, 1, 1, 1};

    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_INT(ml_stacks_resolve(stacks, recording, map, 6, NULL), 0);
    CHECK_UINT(map[same_line], map[first]);
    CHECK_UINT(map[recompiled], map[first]);
    CHECK_UINT(map[below_too], map[below]);
    CHECK_UINT(recording->stack_count, 3);
    CHECK_UINT(recording->frame_count, 3);
    ml_recording_free(recording);
    ml_stacks_free(stacks);
}

static void
test_adds_to_what_a_recording_holds(void)
{
    ml_stacks *stacks;
    ml_recording *recording;
    uint32_t name, filename, frame, stack;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    add(stacks, 0, 0x1000, 2, "main");
    add(stacks, 1, 0x2000, 2, "step");

    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_INT(ml_recording_add_string(recording, "main", 4, &name), 0);
    CHECK_INT(ml_recording_add_string(recording, "model.py", 8, &filename), 0);
    ml_frame main_frame = {.name = name, .filename = filename, .line = 11};
    CHECK_INT(ml_recording_add_frame(recording, main_frame, &frame), 0);
    CHECK_INT(ml_recording_add_stack(recording, (ml_stack){.frame = frame}, &stack), 0);

    /* Twice: nothing is doubled. */
    for (int i = 0; i < 2; i++) {
        uint32_t map[3] = {0, 1, 1};
        CHECK_INT(ml_stacks_resolve(stacks, recording, map, 3, NULL), 0);
        CHECK_UINT(map[1], stack);
        CHECK_UINT(map[2], stack + 1);
        CHECK_UINT(recording->string_count, 4);
        CHECK_UINT(recording->frame_count, 3);
        CHECK_UINT(recording->stack_count, 3);
    }
    ml_recording_free(recording);
    ml_stacks_free(stacks);
}

static void
test_a_code_without_table_gives_its_offset_as_line(void)
{
    ml_stacks *stacks;
    ml_recording *recording;
    ml_frame_key frame = key(0x1000, 1, 123);
    ml_code_text words = {.name = text("f"), .filename = text("f.py")};
    uint32_t map[2] = {0, 1};

    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    CHECK_UINT(ml_stacks_add(stacks, 0, &frame, &words), 1);
    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_INT(ml_stacks_resolve(stacks, recording, map, 2, NULL), 0);
    CHECK_STR(written(recording, map[1]), "f:123");
    ml_recording_free(recording);
    ml_stacks_free(stacks);
}

static void
test_asks_for_known_ids_only(void)
{
    ml_stacks *stacks;
    ml_recording *recording;
    uint32_t map[2] = {0, 1};
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_INT(ml_stacks_resolve(stacks, recording, map, 2, NULL), ML_EINVALID);
    CHECK_INT(ml_stacks_resolve(stacks, recording, map, 0, NULL), 0);
    CHECK_INT(ml_stacks_resolve_strings(stacks, recording, map, 2), ML_EINVALID);
    CHECK_UINT(map[1], 1);
    ml_recording_free(recording);
    ml_stacks_free(stacks);
}

static void
test_metadata_strings(void)
{
    ml_stacks *stacks;
    ml_recording *recording;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    ml_stacks_string(stacks, "not asked for", 13);
    uint32_t wanted = ml_stacks_string(stacks, "epoch 1", 7);
    uint32_t map[3] = {5, 0, 1};

    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_INT(ml_stacks_resolve_strings(stacks, recording, map, 3), 0);
    CHECK_UINT(map[0], 0);
    CHECK_UINT(map[1], 0);
    CHECK_UINT(recording->string_count, 2);
    const ml_string *string = &recording->strings[map[wanted]];
    CHECK_TEXT(string->bytes, string->length, "epoch 1");
    ml_recording_free(recording);
    ml_stacks_free(stacks);
}

/* ---- native frames ---- */

enum {
    PC_ALLOC = 0x10,
    PC_CALL = 0x20,
    PC_EVAL = 0x30,
    PC_MAIN = 0x40
};

typedef struct symbols {
    int calls;
    size_t pcs;
    int result;
} symbols;

static int
name_pcs(void *context, const uint64_t *pcs, size_t count, ml_native_text *out)
{
    symbols *seen = context;
    seen->calls++;
    seen->pcs += count;
    for (size_t i = 0; i < count && seen->result == 0; i++) {
        out[i].filename = "native.cpp";
        out[i].line = 7;
        out[i].name = pcs[i] == PC_ALLOC  ? "alloc"
                      : pcs[i] == PC_CALL ? "call"
                      : pcs[i] == PC_EVAL ? "_PyEval_EvalFrameDefault"
                                          : "main";
    }
    return seen->result;
}

/* Native frames, outermost first, on PARENT. */
static uint32_t
add_natives(ml_stacks *stacks, uint32_t parent, const uint64_t *pcs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        parent = ml_stacks_native(stacks, parent, pcs[i]);
    }
    return parent;
}

/* The order that torch 2.11 gave for such stacks: the innermost Python frame before the
 * innermost interpreter frame, and so on; frames left over after everything. */
static void
test_python_frames_among_native_ones(void)
{
    static const uint64_t one_eval[] = {PC_MAIN, PC_EVAL, PC_CALL, PC_ALLOC};
    static const uint64_t two_evals[] = {PC_EVAL, PC_CALL, PC_EVAL, PC_ALLOC};
    static const uint64_t no_eval[] = {PC_MAIN, PC_ALLOC};
    ml_stacks *stacks;
    ml_recording *recording;
    symbols seen = {0};
    ml_symbolizer symbolizer = {.context = &seen, .symbolize = name_pcs};
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    uint32_t module = add(stacks, 0, 0x1000, 0, "module");
    uint32_t step = add(stacks, module, 0x2000, 2, "step");
    uint32_t forward = add(stacks, step, 0x3000, 4, "forward");
    uint32_t with_one = add_natives(stacks, forward, one_eval, 4);
    uint32_t with_two = add_natives(stacks, forward, two_evals, 4);
    uint32_t with_none = add_natives(stacks, forward, no_eval, 2);
    uint32_t no_python = add_natives(stacks, 0, two_evals, 4);
    uint32_t count = ml_stacks_count(stacks);
    uint32_t *map = calloc(count, sizeof(*map));
    CHECK(map != NULL);
    map[with_one] = map[with_two] = map[with_none] = map[no_python] = 1;

    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_INT(ml_stacks_resolve(stacks, recording, map, count, &symbolizer), 0);
    CHECK_INT(ml_recording_validate(recording), 0);
    CHECK_STR(written(recording, map[with_one]),
              "alloc:7 call:7 forward:12 _PyEval_EvalFrameDefault:7 main:7 step:11 "
              "module:10");
    CHECK_STR(written(recording, map[with_two]),
              "alloc:7 forward:12 _PyEval_EvalFrameDefault:7 call:7 step:11 "
              "_PyEval_EvalFrameDefault:7 module:10");
    CHECK_STR(written(recording, map[with_none]),
              "alloc:7 main:7 forward:12 step:11 module:10");
    CHECK_STR(written(recording, map[no_python]),
              "alloc:7 _PyEval_EvalFrameDefault:7 call:7 _PyEval_EvalFrameDefault:7");
    CHECK_INT(seen.calls, 1);
    CHECK_UINT(seen.pcs, 4);
    ml_recording_free(recording);
    ml_stacks_free(stacks);
    free(map);
}

static void
test_native_frames_without_symbols(void)
{
    static const uint64_t pcs[] = {PC_EVAL, 0xdeadbeef};
    ml_stacks *stacks;
    ml_recording *recording;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    uint32_t python = add(stacks, 0, 0x1000, 0, "module");
    uint32_t native = add_natives(stacks, python, pcs, 2);
    uint32_t map[4] = {0, 0, 0, 1};
    CHECK_UINT(native, 3);

    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_INT(ml_stacks_resolve(stacks, recording, map, 4, NULL), 0);
    CHECK_STR(written(recording, map[native]), "0xdeadbeef:0 0x30:0 module:10");
    ml_recording_free(recording);
    ml_stacks_free(stacks);
}

static void
test_the_symbolizers_error_is_handed_on(void)
{
    ml_stacks *stacks;
    ml_recording *recording;
    symbols seen = {.result = ML_EIO};
    ml_symbolizer symbolizer = {.context = &seen, .symbolize = name_pcs};
    uint32_t map[2] = {0, 1};
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    ml_stacks_native(stacks, 0, PC_MAIN);
    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_INT(ml_stacks_resolve(stacks, recording, map, 2, &symbolizer), ML_EIO);
    CHECK_UINT(map[1], 1);
    ml_recording_free(recording);
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

static void
test_every_allocation_of_resolve_may_fail(void)
{
    static const uint64_t pcs[] = {PC_MAIN, PC_EVAL, PC_ALLOC};
    ml_stacks *stacks;
    symbols seen = {0};
    ml_symbolizer symbolizer = {.context = &seen, .symbolize = name_pcs};
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    uint32_t leaf = 0;
    for (uint32_t i = 0; i < 20; i++) {
        char name[8];
        snprintf(name, sizeof(name), "f%u", i);
        leaf = add(stacks, leaf, 0x1000 + i, 0, name);
    }
    uint32_t native = add_natives(stacks, leaf, pcs, 3);
    uint32_t count = ml_stacks_count(stacks);
    int failures = 0;
    int error = ML_ENOMEM;

    for (size_t allowed = 0; error != 0 && allowed < 10000; allowed++) {
        ml_recording *recording;
        uint32_t map[64] = {0};
        map[leaf] = map[native] = 1;
        CHECK_INT(ml_recording_new(&recording), 0);
        ml_set_realloc(failing_realloc);
        budget = allowed;
        live = 0;
        error = ml_stacks_resolve(stacks, recording, map, count, &symbolizer);
        budget = 10000;
        int own = live;
        ml_recording_free(recording);
        ml_set_realloc(NULL);
        if (error != 0) {
            failures++;
            CHECK_INT(error, ML_ENOMEM);
            CHECK_UINT(map[leaf], 1);
            /* What is live belongs to the recording, which can be freed. */
            CHECK(own >= 0);
        }
    }
    CHECK_INT(error, 0);
    CHECK(failures > 10);
    ml_stacks_free(stacks);
}

static void
test_every_allocation_of_resolve_strings_may_fail(void)
{
    ml_stacks *stacks;
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    uint32_t id = ml_stacks_string(stacks, "epoch 1", 7);
    int error = ML_ENOMEM;

    for (size_t allowed = 0; error != 0 && allowed < 100; allowed++) {
        ml_recording *recording;
        uint32_t map[2] = {0, 1};
        CHECK_INT(ml_recording_new(&recording), 0);
        ml_set_realloc(failing_realloc);
        budget = allowed;
        error = ml_stacks_resolve_strings(stacks, recording, map, 2);
        budget = 100;
        ml_recording_free(recording);
        ml_set_realloc(NULL);
        if (error != 0) {
            CHECK_INT(error, ML_ENOMEM);
            CHECK_UINT(map[id], 1);
        }
    }
    CHECK_INT(error, 0);
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
    size_t known;
    uint32_t id = ml_stacks_find_path(stacks, path, depth, &known);

    for (size_t left = depth - known; left > 0; left--) {
        const ml_frame_key *frame = &path[left - 1];
        ml_code_text words = code_text(names[frame->code - 0x1000], "model.py", 10);
        id = ml_stacks_add(stacks, id, frame, &words);
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
        size_t known;
        size_t depth = next_path(&seed, path);
        uint32_t id = intern_path(self->stacks, path, depth);
        uint32_t native = ml_stacks_native(self->stacks, id, seed % 3 + 1);
        uint32_t string = ml_stacks_string(self->stacks, "0123456789", seed % 11);
        self->wrong += native <= id || native == ML_STACK_LOST || string > 10 * THREADS;
        self->wrong += ml_stacks_find_path(self->stacks, path, depth, &known) != id;
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
    CHECK_UINT(ml_stacks_lost(stacks), 0);

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
            size_t known;
            size_t depth = next_path(&seed, path);
            uint32_t id = workers[i].ids[k];
            CHECK_UINT(ml_stacks_find_path(stacks, path, depth, &known), id);
            CHECK_UINT(known, depth);
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
    RUN(test_whole_stacks_are_found);
    RUN(test_keys_that_meet_in_a_slot);
    RUN(test_hints_are_verified_to_the_root);
    RUN(test_strings_are_one_id_each);
    RUN(test_full_tables_lose_and_count);
    RUN(test_full_text_loses_and_counts);
    RUN(test_senseless_limits_are_refused);
    RUN(test_memory_grows_with_use_only);
    RUN(test_names_what_was_asked_for);
    RUN(test_equal_looking_frames_become_one);
    RUN(test_adds_to_what_a_recording_holds);
    RUN(test_a_code_without_table_gives_its_offset_as_line);
    RUN(test_asks_for_known_ids_only);
    RUN(test_metadata_strings);
    RUN(test_python_frames_among_native_ones);
    RUN(test_native_frames_without_symbols);
    RUN(test_the_symbolizers_error_is_handed_on);
    RUN(test_every_allocation_of_new_may_fail);
    RUN(test_address_space_may_be_short);
    RUN(test_every_allocation_of_resolve_may_fail);
    RUN(test_every_allocation_of_resolve_strings_may_fail);
    RUN(test_threads_agree);
    return TEST_RESULT();
}
