/* Why one peak is higher than another, worked out by hand. */
#include "compare/diff/difference.h"
#include "show/draw/difference_page.h"

#include <stdlib.h>

#include "analysis/answers/peak.h"
#include "budget.h"
#include "recording_samples.h"
#include "test.h"

#define KIB UINT64_C(1024)
#define BASE UINT64_C(0x7f0000000000)

/* Blocks of one after the other, each its own segment. */
static void
add(sample *s, uint64_t bytes, uint32_t stack)
{
    sample_event(s, ML_ACTION_ALLOC, BASE + 64 * KIB * s->device.event_count, bytes,
                 stack);
}

/* ONCE more: 4 KiB at model.py:7 in each of blocks.0 and blocks.1; MORE of them in
 * blocks.1.  8 KiB at train.py:3, outside any module.  2 KiB at old.py:1 where OLD. */
static void
build(sample *s, unsigned more, bool old)
{
    sample_begin(s);
    s->recording->rules.has_segments = 0;
    uint32_t outer = sample_call(s->recording, 0, "train.py", 3, "main", NULL);
    add(s, 8 * KIB, outer);
    for (unsigned i = 0; i < 2 + more; i++) {
        const char *module = i == 0 ? "net.blocks.0" : "net.blocks.1";
        add(s, 4 * KIB,
            sample_call(s->recording, outer, "model.py", 7, "forward", module));
    }
    if (old) {
        add(s, 2 * KIB,
            sample_call(s->recording, outer, "old.py", 1, "f", "net.blocks.0"));
    }
}

/* What *OUT has of the peaks of A and B; *PART is of the peak. */
static int
compare(const sample *a, const sample *b, ml_difference **out,
        ml_difference_part **part)
{
    ml_difference_ask ask = {
        .sides = {{.recording = a->recording, .position = ML_DIFFERENCE_PEAK},
                  {.recording = b->recording, .position = ML_DIFFERENCE_PEAK}},
        .phases = true};
    int result = ml_difference_new(&ask, out);
    if (result == 0) {
        *part = &(*out)->parts[0];
    }
    return result;
}

static int64_t
more_of(const ml_two *two)
{
    return (int64_t)(two->bytes[1] - two->bytes[0]);
}

static void
test_what_is_more_and_what_is_less(void)
{
    static sample a, b;
    ml_difference *all;
    ml_difference_part *d;
    build(&a, 0, true);
    build(&b, 3, false);
    CHECK_INT(compare(&a, &b, &all, &d), 0);
    /* 8 + 8 + 2 and 8 + 20 KiB. */
    CHECK_UINT(d->whole.bytes[0], 18 * KIB);
    CHECK_UINT(d->whole.bytes[1], 28 * KIB);
    CHECK_UINT(d->whole.blocks[0], 4);
    CHECK_UINT(d->whole.blocks[1], 6);
    CHECK_UINT(d->line_count, 2);
    const ml_difference_line *line = &d->lines[0];
    for (unsigned side = 0; side < 2; side++) {
        const ml_difference_place *at = &line->at[side];
        CHECK_TEXT(at->file.bytes, at->file.length, "model.py");
        CHECK_TEXT(at->function.bytes, at->function.length, "forward");
        CHECK_INT(at->line, 7);
    }
    CHECK_INT(line->change, ML_CHANGE_GREW);
    CHECK_INT(line->rule, ML_MATCH_LINE);
    CHECK_INT(d->lines[1].change, ML_CHANGE_GONE);
    CHECK_UINT(d->lines[1].at[1].file.length, 0);
    CHECK_UINT(line->two.bytes[0], 8 * KIB);
    CHECK_UINT(line->two.bytes[1], 20 * KIB);
    CHECK_UINT(line->two.blocks[0], 2);
    CHECK_UINT(line->two.blocks[1], 5);
    /* Of its modules the one that has a part in it. */
    CHECK_STR(line->module, "net.blocks.1");
    CHECK_INT(more_of(&d->lines[1].two), -2 * (int64_t)KIB);
    CHECK_UINT(d->lines[1].two.bytes[1], 0);
    CHECK_STR(d->lines[1].module, "net.blocks.0");
    CHECK_UINT(d->module_count, 2);
    CHECK_TEXT(d->modules[0].module.bytes, d->modules[0].module.length, "net.blocks.1");
    CHECK_INT(more_of(&d->modules[0].two), 12 * (int64_t)KIB);
    CHECK_INT(more_of(&d->modules[1].two), -2 * (int64_t)KIB);
    int64_t sum = 0;
    for (unsigned i = 0; i < ML_CATEGORY_COUNT; i++) {
        sum += more_of(&d->categories[i]);
    }
    CHECK_INT(sum, 10 * (int64_t)KIB);
    ml_difference_free(all);
    sample_end(&a);
    sample_end(&b);
}

/* Differences of several modules of a line are one, named by what they share. */
static void
test_modules_of_a_line(void)
{
    static sample a, b;
    ml_difference *all;
    ml_difference_part *d;
    sample_begin(&a);
    a.recording->rules.has_segments = 0;
    build(&b, 0, false);
    CHECK_INT(compare(&a, &b, &all, &d), 0);
    CHECK_UINT(d->line_count, 2);
    /* Of one size: by file. */
    CHECK_STR(d->lines[0].module, "net.blocks.*");
    CHECK_PTR(d->lines[1].module, NULL);
    CHECK_UINT(d->module_count, 3);
    ml_difference_free(all);
    sample_end(&a);
    sample_end(&b);
}

static void
test_what_is_the_same(void)
{
    static sample a, b;
    ml_difference *all;
    ml_difference_part *d;
    build(&a, 1, true);
    build(&b, 1, true);
    CHECK_INT(compare(&a, &b, &all, &d), 0);
    CHECK_UINT(d->line_count, 0);
    CHECK_UINT(d->module_count, 0);
    CHECK_UINT(d->whole.bytes[0], d->whole.bytes[1]);
    ml_difference_free(all);
    ml_difference_free(NULL);
    sample_end(&a);
    sample_end(&b);
}

static int64_t
peak_of(const sample *s)
{
    ml_peak *peak;
    if (ml_peak_new(s->recording, 0, &peak) < 0) {
        return -1;
    }
    int64_t allocated = (int64_t)peak->totals.allocated;
    ml_peak_free(peak);
    return allocated;
}

/* Of random memory each grouping adds up to the whole. */
static void
test_all_groupings_add_up(void)
{
    uint64_t state = 7;
    for (unsigned round = 0; round < 50; round++) {
        static sample s[2];
        ml_difference *all;
        ml_difference_part *d;
        for (unsigned k = 0; k < 2; k++) {
            sample_begin(&s[k]);
            s[k].recording->rules.has_segments = 0;
            for (unsigned i = 0; i < 60; i++) {
                state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
                unsigned pick = (unsigned)(state >> 40);
                char module[32];
                snprintf(module, sizeof(module), "net.%u.x", pick % 3);
                uint32_t stack = sample_call(s[k].recording, 0, "m.py", pick % 5, "f",
                                             pick % 4 == 0 ? NULL : module);
                add(&s[k], 512 * (1 + pick % 7), pick % 11 == 0 ? 0 : stack);
            }
        }
        CHECK_INT(compare(&s[0], &s[1], &all, &d), 0);
        int64_t whole = more_of(&d->whole);
        CHECK_INT(whole, peak_of(&s[1]) - peak_of(&s[0]));
        int64_t lines = 0, modules = 0;
        for (size_t i = 0; i < d->line_count; i++) {
            lines += more_of(&d->lines[i].two);
        }
        for (size_t i = 0; i < d->module_count; i++) {
            modules += more_of(&d->modules[i].two);
        }
        CHECK_INT(lines, whole);
        CHECK_INT(modules, whole);
        ml_difference_free(all);
        sample_end(&s[0]);
        sample_end(&s[1]);
    }
}

static void
test_no_memory(void)
{
    static sample a, b;
    build(&a, 0, true);
    build(&b, 3, false);
    int result = ML_ENOMEM;
    long tries = 0;
    for (; result == ML_ENOMEM && budget_alive == 0 && tries < 400; tries++) {
        ml_difference *all;
        ml_difference_part *d;
        budget_begin(tries);
        result = compare(&a, &b, &all, &d);
        if (result == 0) {
            ml_buffer page = {0};
            ml_string text = {"a", 1};
            result = ml_difference_page_write(all, text, text, &page);
            ml_buffer_fini(&page);
            ml_difference_free(all);
        }
        ml_recording_detach(a.recording);
        ml_recording_detach(b.recording);
        budget_end();
    }
    CHECK_INT(result, 0);
    CHECK_INT(budget_alive, 0);
    CHECK(tries > 10);
    sample_end(&a);
    sample_end(&b);
}

int
main(void)
{
    RUN(test_what_is_more_and_what_is_less);
    RUN(test_modules_of_a_line);
    RUN(test_what_is_the_same);
    RUN(test_all_groupings_add_up);
    RUN(test_no_memory);
    return TEST_RESULT();
}
