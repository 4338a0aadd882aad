/* Naming of interned stacks: lines and names from copies, each once, native frames in
 * torch's order, and what happens when memory is short. */

#include "stacks/stacks.h"

#include <stdlib.h>

#include "base/base.h"
#include "stacks/origins.h"
#include "stacks_samples.h"
#include "test.h"

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

/* What made a line of compiled code is its caller, and its own frames are left together
 * where Python frames go among native ones: torch 2.11's order. */
static void
test_frames_of_compiled_code_have_those_that_made_it(void)
{
    static const uint64_t two_evals[] = {PC_EVAL, PC_CALL, PC_EVAL, PC_ALLOC};
    ml_stacks *stacks;
    ml_recording *recording;
    symbols seen = {0};
    ml_symbolizer symbolizer = {.context = &seen, .symbolize = name_pcs};
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    ml_frame_key made = key(0x7000, 1, 0);
    ml_code_text words = code_text("call", "/tmp/made.py", 10);
    uint32_t module = add(stacks, 0, 0x1000, 0, "module");
    /* Lines 10 to 13 of one function, and what it calls. */
    uint32_t at[4];
    for (uint32_t i = 0; i < 4; i++) {
        made.offset = 2 * i;
        at[i] = ml_stacks_add(stacks, module, &made, &words);
    }
    uint32_t empty = add(stacks, at[2], 0x2000, 2, "empty");
    uint32_t native = add_natives(stacks, empty, two_evals, 4);
    ml_origins *origins = ml_stacks_origins(stacks);
    uint32_t outer, first, second;
    CHECK_INT(ml_origins_add_frame(origins, 0, text("model"), text("m.py"), 3, &outer),
              0);
    CHECK_INT(
        ml_origins_add_frame(origins, outer, text("block"), text("m.py"), 5, &first),
        0);
    CHECK_INT(
        ml_origins_add_frame(origins, outer, text("block"), text("m.py"), 6, &second),
        0);
    CHECK_INT(ml_origins_add_line(origins, text("/tmp/made.py"), 11, first), 0);
    CHECK_INT(ml_origins_add_line(origins, text("/tmp/made.py"), 12, second), 0);
    CHECK_INT(ml_origins_add_line(origins, text("/tmp/made.py"), 13, 0), 0);
    CHECK_INT(ml_origins_add_line(origins, text("model.py"), 99, first), 0);
    uint32_t count = ml_stacks_count(stacks);
    uint32_t *map = calloc(count, sizeof(*map));
    CHECK(map != NULL);
    for (size_t i = 0; i < 4; i++) {
        map[at[i]] = 1;
    }
    map[empty] = map[native] = 1;
    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_INT(ml_stacks_resolve(stacks, recording, map, count, &symbolizer), 0);
    CHECK_INT(ml_recording_validate(recording), 0);
    CHECK_STR(written(recording, map[at[0]]), "call:10 module:10");
    CHECK_STR(written(recording, map[at[1]]), "call:11 block:5 model:3 module:10");
    CHECK_STR(written(recording, map[at[2]]), "call:12 block:6 model:3 module:10");
    CHECK_STR(written(recording, map[at[3]]), "call:13 module:10");
    CHECK_STR(written(recording, map[empty]),
              "empty:11 call:12 block:6 model:3 module:10");
    CHECK_STR(written(recording, map[native]),
              "alloc:7 empty:11 _PyEval_EvalFrameDefault:7 call:7 call:12 block:6 "
              "model:3 _PyEval_EvalFrameDefault:7 module:10");
    ml_recording_free(recording);
    ml_stacks_free(stacks);
    free(map);
}

/* One frame stands for those between both ends of a deep stack, named or not; the one who
 * names is not asked about it. */
static void
test_native_frames_left_out(void)
{
    static const uint64_t pcs[] = {PC_MAIN, ML_NATIVE_LEFT_OUT | 1234, PC_ALLOC};
    static const uint64_t alone[] = {ML_NATIVE_LEFT_OUT | (ML_NATIVE_LEFT_OUT - 1)};
    ml_stacks *stacks;
    ml_recording *recording;
    symbols seen = {0};
    ml_symbolizer symbolizer = {.context = &seen, .symbolize = name_pcs};
    CHECK_INT(ml_stacks_new(&stacks, NULL), 0);
    uint32_t python = add(stacks, 0, 0x1000, 0, "module");
    uint32_t native = add_natives(stacks, python, pcs, 3);
    CHECK_UINT(native, 4);
    uint32_t map[5] = {0, 0, 0, 0, 1};
    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_INT(ml_stacks_resolve(stacks, recording, map, 5, &symbolizer), 0);
    CHECK_STR(written(recording, map[native]),
              "alloc:7 <1234 frames left out>:0 main:7 module:10");
    CHECK_UINT(seen.pcs, 2);
    ml_recording_free(recording);

    uint32_t only = add_natives(stacks, 0, alone, 1);
    CHECK_UINT(only, 5);
    uint32_t other[6] = {0, 0, 0, 0, 1, 1};
    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_INT(ml_stacks_resolve(stacks, recording, other, 6, NULL), 0);
    CHECK_STR(written(recording, other[native]),
              "0x10:0 <1234 frames left out>:0 0x40:0 module:10");
    CHECK_STR(written(recording, other[only]),
              "<9223372036854775807 frames left out>:0");
    ml_recording_free(recording);
    ml_stacks_free(stacks);
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
    uint32_t origin;
    CHECK_INT(ml_origins_add_frame(ml_stacks_origins(stacks), 0, text("origin"),
                                   text("m.py"), 1, &origin),
              0);
    CHECK_INT(
        ml_origins_add_line(ml_stacks_origins(stacks), text("model.py"), 1, origin), 0);
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

int
main(void)
{
    RUN(test_names_what_was_asked_for);
    RUN(test_equal_looking_frames_become_one);
    RUN(test_adds_to_what_a_recording_holds);
    RUN(test_a_code_without_table_gives_its_offset_as_line);
    RUN(test_asks_for_known_ids_only);
    RUN(test_metadata_strings);
    RUN(test_python_frames_among_native_ones);
    RUN(test_frames_of_compiled_code_have_those_that_made_it);
    RUN(test_native_frames_without_symbols);
    RUN(test_native_frames_left_out);
    RUN(test_the_symbolizers_error_is_handed_on);
    RUN(test_every_allocation_of_resolve_may_fail);
    RUN(test_every_allocation_of_resolve_strings_may_fail);
    return TEST_RESULT();
}
