/* Qualified names of functions, by the lines of code that a recording has. */
#include "recording/code_names.h"

#include "budget.h"
#include "recording_samples.h"
#include "test.h"

static sample s;

static uint32_t
add_frame(const char *file, int64_t line, const char *name)
{
    uint32_t stack = sample_call(s.recording, 0, file, line, name, NULL);
    return s.recording->stacks[stack].frame;
}

/* The line of FRAME, of the function QUALNAME; NULL: the file has no such function. */
static void
add_line(uint32_t frame, const char *qualname)
{
    ml_frame of = s.recording->frames[frame];
    ml_code_line line = {
        .filename = of.filename,
        .name = of.name,
        .line = of.line,
        .qualname = qualname == NULL ? 0 : sample_string(s.recording, qualname)};
    CHECK_INT(ml_recording_add_code_line(s.recording, line), 0);
}

#define CHECK_NAME(frame, want) \
    do { \
        ml_string name_ = s.recording->strings[ml_code_name(&names, frame)]; \
        CHECK_TEXT(name_.bytes, name_.length, want); \
    } while (0)

static void
test_names(void)
{
    sample_begin(&s);
    uint32_t mlp = add_frame("net.py", 3, "forward");
    uint32_t attention = add_frame("net.py", 9, "forward");
    uint32_t unlike = add_frame("net.py", 12, "forward");
    uint32_t unknown = add_frame("other.py", 3, "forward");
    add_line(mlp, "MLP.forward");
    add_line(attention, "Attention.forward");
    add_line(unlike, NULL);
    ml_code_names names;
    CHECK_INT(ml_code_names_init(&names, s.recording), 0);
    CHECK_NAME(mlp, "MLP.forward");
    CHECK_NAME(attention, "Attention.forward");
    CHECK_NAME(unlike, "forward");
    CHECK_NAME(unknown, "forward");
    CHECK_NAME(0, "");
    ml_code_names_fini(&names);
    sample_end(&s);
}

static void
test_no_memory(void)
{
    sample_begin(&s);
    for (int64_t line = 1; line < 40; line++) {
        add_line(add_frame("net.py", line, "forward"), "Net.forward");
    }
    int error = ML_ENOMEM;
    for (long budget = 0; error == ML_ENOMEM && budget < 100; budget++) {
        ml_code_names names;
        budget_begin(budget);
        error = ml_code_names_init(&names, s.recording);
        if (error == 0) {
            ml_code_names_fini(&names);
        }
        budget_end();
        CHECK_INT(budget_alive, 0);
    }
    CHECK_INT(error, 0);
    sample_end(&s);
}

int
main(void)
{
    RUN(test_names);
    RUN(test_no_memory);
    return TEST_RESULT();
}
