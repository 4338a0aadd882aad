/* The lines behind the code that a compiler wrote: traces taken apart, lines found, and what
 * makes no sense refused. */

#include "stacks/origins.h"

#include "stacks_samples.h"
#include "test.h"

static const char trace[] =
    "  File \"/home/u/train.py\", line 30, in main\n"
    "    loss = model(x)\n"
    "  File \"/home/u/a \"b\", line 3, in c.py\", line 8, in forward\n"
    "    h = self.a(x)  # File \"no.py\", line 1, in no\n"
    "\n"
    " # File: other.py:7 in f, code: return 1\n";

/* "name:line name:line ...", innermost first. */
static const char *
told(const ml_origins *origins, uint32_t frame)
{
    static char line[4096];
    size_t used = 0;
    line[0] = '\0';
    for (; frame != 0; frame = origins->frames[frame].caller) {
        ml_slice name = ml_origins_text(origins, origins->frames[frame].name);
        used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%.*s:%lld",
                                 used != 0 ? " " : "", (int)name.length, name.bytes,
                                 (long long)origins->frames[frame].line);
    }
    return line;
}

static void
test_a_trace_as_python_writes_it(void)
{
    ml_origins origins = {0};
    uint32_t id, again;
    CHECK_INT(ml_origins_add_trace(&origins, text(trace), &id), 0);
    CHECK_STR(told(&origins, id), "forward:8 main:30");
    ml_slice file = ml_origins_text(&origins, origins.frames[id].filename);
    CHECK_TEXT(file.bytes, file.length, "/home/u/a \"b\", line 3, in c.py");
    size_t frames = origins.frame_table.count;
    CHECK_INT(ml_origins_add_trace(&origins, text(trace), &again), 0);
    CHECK_UINT(again, id);
    CHECK_UINT(origins.frame_table.count, frames);
    /* The same callers, and one line further on. */
    CHECK_INT(ml_origins_add_frame(&origins, origins.frames[id].caller, text("forward"),
                                   text("x.py"), 9, &again),
              0);
    CHECK_STR(told(&origins, again), "forward:9 main:30");
    ml_origins_fini(&origins);
}

static void
test_traces_of_no_frame(void)
{
    static const char *const none[] = {
        "",
        "\n\n",
        "nothing",
        "  File \"",
        "  File \"a.py\"",
        "  File \"a.py\", line ",
        "  File \"a.py\", line x, in f\n",
        "  File \"a.py\", line 5, in ",
        "  File \"a.py\", line 5",
        "  File \"\", line 5, in f",
        "  File \"a.py\", line 123456789012345678901, in f",
    };
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        ml_origins origins = {0};
        uint32_t id = 7;
        CHECK_INT(ml_origins_add_trace(&origins, text(none[i]), &id), 0);
        CHECK_UINT(id, 0);
        ml_origins_fini(&origins);
    }
}

static void
test_a_line_is_of_what_began_before_it(void)
{
    ml_origins origins = {0};
    uint32_t first, second;
    CHECK_INT(ml_origins_add_frame(&origins, 0, text("f"), text("m.py"), 1, &first), 0);
    CHECK_INT(ml_origins_add_frame(&origins, 0, text("g"), text("m.py"), 2, &second),
              0);
    CHECK(ml_origins_file(&origins, text("made.py")) == NULL);
    CHECK_INT(ml_origins_add_line(&origins, text("made.py"), 10, first), 0);
    CHECK_INT(ml_origins_add_line(&origins, text("made.py"), 20, 0), 0);
    CHECK_INT(ml_origins_add_line(&origins, text("made.py"), 30, first), 0);
    CHECK_INT(ml_origins_add_line(&origins, text("made.py"), 30, second), 0);
    CHECK_INT(ml_origins_add_line(&origins, text("more.py"), 1, second), 0);
    const ml_origin_file *file = ml_origins_file(&origins, text("made.py"));
    CHECK(file != NULL);
    static const int64_t lines[] = {0, 9, 10, 19, 20, 29, 30, 1000};
    uint32_t expected[] = {0, 0, first, first, 0, 0, second, second};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        CHECK_UINT(ml_origins_of(&origins, file, lines[i]), expected[i]);
    }
    file = ml_origins_file(&origins, text("more.py"));
    CHECK_UINT(ml_origins_of(&origins, file, 0), 0);
    CHECK_UINT(ml_origins_of(&origins, file, 5), second);
    CHECK(ml_origins_file(&origins, text("made.p")) == NULL);
    ml_origins_fini(&origins);
}

static void
test_what_makes_no_sense_is_refused(void)
{
    ml_origins origins = {0};
    uint32_t id;
    CHECK_INT(ml_origins_add_frame(&origins, 1, text("f"), text("m.py"), 1, &id),
              ML_EINVALID);
    CHECK_INT(ml_origins_add_line(&origins, text("a.py"), 1, 1), ML_EINVALID);
    CHECK_INT(ml_origins_add_line(&origins, text(""), 1, 0), ML_EINVALID);
    CHECK_INT(ml_origins_add_frame(&origins, 0, text(""), text(""), 0, &id), 0);
    CHECK_UINT(id, 1);
    CHECK_STR(told(&origins, id), ":0");
    CHECK_INT(ml_origins_add_line(&origins, text("a.py"), 5, 1), 0);
    CHECK_INT(ml_origins_add_line(&origins, text("a.py"), 4, 1), ML_EINVALID);
    CHECK_INT(ml_origins_add_line(&origins, text("b.py"), 1, 1), 0);
    /* Behind another file's. */
    CHECK_INT(ml_origins_add_line(&origins, text("a.py"), 6, 1), ML_EINVALID);
    const ml_origin_file *file = ml_origins_file(&origins, text("a.py"));
    CHECK_UINT(ml_origins_of(&origins, file, 6), 1);
    ml_origins_fini(&origins);
}

/* Many of each, so that all tables grow. */
static int
add_many(ml_origins *origins)
{
    int error = 0;
    for (unsigned i = 0; i < 100 && error == 0; i++) {
        char path[32], name[32];
        uint32_t id = 0;
        snprintf(path, sizeof(path), "made%u.py", i);
        snprintf(name, sizeof(name), "function%u", i);
        error = ml_origins_add_frame(origins, i > 0 ? 1 : 0, text(name), text("m.py"),
                                     1, &id);
        if (error == 0) {
            error = ml_origins_add_line(origins, text(path), 1, id);
        }
    }
    return error;
}

static void
test_every_allocation_may_fail(void)
{
    int error = ML_ENOMEM;
    size_t failures = 0;
    for (size_t allowed = 0; error != 0 && allowed < 10000; allowed++) {
        ml_origins origins = {0};
        ml_set_realloc(failing_realloc);
        budget = allowed;
        live = 0;
        error = add_many(&origins);
        if (error != 0) {
            failures++;
            CHECK_INT(error, ML_ENOMEM);
            /* And goes on with what is there. */
            budget = 10000;
            CHECK_INT(add_many(&origins) == 0 || origins.file_table.count > 0, 1);
        }
        ml_origins_fini(&origins);
        ml_set_realloc(NULL);
        CHECK_INT(live, 0);
    }
    CHECK_INT(error, 0);
    CHECK(failures > 100);
}

int
main(void)
{
    RUN(test_a_trace_as_python_writes_it);
    RUN(test_traces_of_no_frame);
    RUN(test_a_line_is_of_what_began_before_it);
    RUN(test_what_makes_no_sense_is_refused);
    RUN(test_every_allocation_may_fail);
    return TEST_RESULT();
}
