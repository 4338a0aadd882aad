/* Rows of module trees worked out by hand. */
#include "analysis/answers/module_rows.h"

#include "budget.h"
#include "recording_samples.h"
#include "test.h"

typedef struct module {
    const char *path; /* NULL: a library's workspace */
    uint64_t bytes;
} module;

/* "PATH BYTES share; " of each of the MOST rows or fewer of COUNT modules. */
static void
write_rows(const module *list, size_t count, size_t most, ml_buffer *out)
{
    static sample s;
    ml_peak_module modules[64];
    ml_module_row rows[ML_MODULE_ROWS];
    ml_module_tree *tree;
    uint64_t total = 0;
    sample_begin(&s);
    for (size_t i = 0; i < count; i++) {
        modules[i] = (ml_peak_module){.bytes = list[i].bytes, .blocks = 1};
        if (list[i].path != NULL) {
            modules[i].module = sample_string(s.recording, list[i].path);
        }
        else {
            modules[i].no_module = ML_NO_MODULE_LIBRARY;
        }
        total += list[i].bytes;
    }
    if (ml_module_tree_new(s.recording, modules, count, &tree) < 0) {
        return;
    }
    size_t found = 0;
    if (ml_module_rows(tree, rows, most, &found) < 0) {
        return;
    }
    for (size_t i = 0; i < found; i++) {
        char text[96];
        const char *reason = ml_no_module_text(tree->nodes[rows[i].node].no_module);
        ml_module_path(tree, rows[i].node, out);
        int length = snprintf(text, sizeof(text), "%s %llu %s; ", reason,
                              (unsigned long long)rows[i].sum.bytes,
                              ml_module_share_text(rows[i].share));
        ml_buffer_append(out, text, (size_t)length);
        total -= rows[i].sum.bytes;
    }
    if (total != 0 && found != 0) {
        ml_buffer_append(out, "MISSING", 7);
    }
    ml_module_tree_free(tree);
    sample_end(&s);
}

#define CHECK_ROWS(most, want, ...) \
    do { \
        const module list_[] = {__VA_ARGS__}; \
        ml_buffer out_ = {0}; \
        write_rows(list_, sizeof(list_) / sizeof(list_[0]), most, &out_); \
        bool same_ = out_.length == strlen(want) && \
                     (out_.length == 0 || memcmp(out_.bytes, want, out_.length) == 0); \
        if (!same_) { \
            fprintf(stderr, "%.*s\n", (int)out_.length, out_.bytes); \
        } \
        ml_buffer_fini(&out_); \
        CHECK(same_); \
    } while (0)

#define NET \
    {"net.l.0.mlp", 200}, {"net.l.1.mlp", 200}, {"net.l.0.attn", 100}, \
        {"net.l.1.attn", 60}, {"net.l.1", 40}, {"net.head", 300}, {"net.head.act", 0}, \
    { \
        NULL, 100 \
    }

/* All in 1000.  A path of one child each is no row more; of modules that have no room the
 * bytes are the rest of the one around them. */
static void
test_unfolds(void)
{
    CHECK_ROWS(10,
               "net.l.*.mlp 400 all; net.head 300 all; net.l.*.attn 160 all; "
               "workspace of a library 100 all; net.l.* 40 own; ",
               NET);
    CHECK_ROWS(5,
               "net.l.*.mlp 400 all; net.head 300 all; net.l.*.attn 160 all; "
               "workspace of a library 100 all; net.l.* 40 own; ",
               NET);
    CHECK_ROWS(4,
               "net.l.*.mlp 400 all; net.head 300 all; net.l.* 200 rest; "
               "workspace of a library 100 all; ",
               NET);
    CHECK_ROWS(3, "net.l.* 600 all; net 300 rest; workspace of a library 100 all; ",
               NET);
    CHECK_ROWS(2, "net 900 all; workspace of a library 100 all; ", NET);
    CHECK_ROWS(1, " 1000 all; ", NET);
}

/* Of 980 of net its layers have 960: they are named, and the 20 go to the rest.  Of 1000, 940 are
 * not nearly all; with no row for the rest the whole stays. */
static void
test_names_the_child_that_has_nearly_all(void)
{
    CHECK_ROWS(3, "net.l.* 960 all; other 100 all;  30 rest; ", {"net.l.0", 480},
               {"net.l.1", 480}, {"net.e", 20}, {"other", 100}, {"x", 10});
    CHECK_ROWS(3, "net 1000 all; other 100 all;  10 rest; ", {"net.l.0", 470},
               {"net.l.1", 470}, {"net.e", 60}, {"other", 100}, {"x", 10});
    CHECK_ROWS(2, "net 980 all; workspace of a library 100 all; ", {"net.l.0", 480},
               {"net.l.1", 480}, {"net.e", 20}, {NULL, 100});
}

/* More children than rows: the largest, and the rest; of equal ones some. */
static void
test_wide(void)
{
    CHECK_ROWS(4, "d 40 all; c 30 all; b 20 all;  15 rest; ", {"a", 10}, {"b", 20},
               {"c", 30}, {"d", 40}, {"e", 5});
    CHECK_ROWS(3, "a 10 all; b 10 all;  20 rest; ", {"a", 10}, {"b", 10}, {"c", 10},
               {"d", 10});
    CHECK_ROWS(5, "f.4 50 all; f.3 40 all; f 30 rest; f.2 30 all; z 20 all; ",
               {"f.0", 10}, {"f.1", 20}, {"f.2", 30}, {"f.3", 40}, {"f.4", 50},
               {"z", 20});
}

/* Of numbers alike in size all are shown, or none; of others the largest. */
static void
test_numbers(void)
{
    CHECK_ROWS(5, "s.* 600 all; z 100 all; ", {"s.0", 101}, {"s.1", 100}, {"s.2", 100},
               {"s.3", 100}, {"s.4", 100}, {"s.5", 99}, {"z", 100});
    CHECK_ROWS(5, "s.0 201 all; s.1 200 all; s.2 199 all; z 100 all; ", {"s.0", 201},
               {"s.1", 200}, {"s.2", 199}, {"z", 100});
    CHECK_ROWS(4, "s.0 240 all; s.1 240 all; s 190 rest; z 100 all; ", {"s.0", 240},
               {"s.1", 240}, {"s.2", 100}, {"s.3", 50}, {"s.4", 40}, {"z", 100});
}

/* What is left to the rest of all is a twentieth at most, if that costs no larger row. */
static void
test_rest(void)
{
    /* By size alone n.a to n.c, 70 each, would come first and leave m and o, 120. */
    CHECK_ROWS(4, "z 670 all; n 210 all; m 60 all; o 60 all; ", {"z", 670}, {"n.a", 70},
               {"n.b", 70}, {"n.c", 70}, {"m", 60}, {"o", 60});
    /* n whole would be larger than any row now. */
    CHECK_ROWS(4, "n.a 300 all; n.b 300 all; n.c 280 all;  120 rest; ", {"n.a", 300},
               {"n.b", 300}, {"n.c", 280}, {"m", 60}, {"o", 60});
    /* Larger by no more than the rest that it takes the place of, 360. */
    CHECK_ROWS(3, "n 640 all; m 200 all; o 160 all; ", {"n.a", 330}, {"n.b", 310},
               {"m", 200}, {"o", 160});
}

/* Less than a hundredth has no row, neither a module nor what is left of one. */
static void
test_small(void)
{
    CHECK_ROWS(10, "a 991 all;  9 rest; ", {"a", 991}, {"b", 9});
    CHECK_ROWS(10, "a 990 all; b 10 all; ", {"a", 990}, {"b", 10});
    CHECK_ROWS(10, "n.a 600 all; m 395 all;  5 rest; ", {"n.a", 600}, {"n.b", 3},
               {"n", 2}, {"m", 395});
    CHECK_ROWS(10, "n.a 600 all; m 385 all; n 10 own;  5 rest; ", {"n.a", 600},
               {"n", 10}, {"m", 385}, {"o", 5});
    CHECK_ROWS(10, "n.a.x 600 all; m 380 all; n 20 rest; ", {"n.a.x", 600}, {"n.a", 9},
               {"n", 11}, {"m", 380});
}

static void
test_nothing(void)
{
    CHECK_ROWS(10, "", {"a", 0});
    CHECK_ROWS(0, "", {"a", 1});
}

static void
test_no_memory(void)
{
    static sample s;
    sample_begin(&s);
    ml_peak_module only = {.module = sample_string(s.recording, "a.x"), .bytes = 1};
    ml_module_row rows[ML_MODULE_ROWS];
    ml_module_tree *tree;
    CHECK_INT(ml_module_tree_new(s.recording, &only, 1, &tree), 0);
    for (long budget = 0; budget < 4; budget++) {
        size_t count = 0;
        budget_begin(budget);
        int error = ml_module_rows(tree, rows, ML_MODULE_ROWS, &count);
        budget_end();
        CHECK_INT(budget_alive, 0);
        CHECK_INT(error, budget < 3 ? ML_ENOMEM : 0);
    }
    ml_module_tree_free(tree);
    sample_end(&s);
}

static void
test_row_of(void)
{
    static sample s;
    sample_begin(&s);
    ml_peak_module modules[] = {
        {.module = sample_string(s.recording, "a.x"), .bytes = 500, .blocks = 1},
        {.module = sample_string(s.recording, "a.y"), .bytes = 490, .blocks = 1},
        {.module = sample_string(s.recording, "b"), .bytes = 9, .blocks = 1},
        {.module = sample_string(s.recording, "a.z"), .bytes = 1, .blocks = 1},
    };
    ml_module_row rows[ML_MODULE_ROWS];
    ml_module_tree *tree;
    CHECK_INT(ml_module_tree_new(s.recording, modules, 4, &tree), 0);
    size_t count;
    CHECK_INT(ml_module_rows(tree, rows, ML_MODULE_ROWS, &count), 0);
    CHECK_UINT(count, 3);
    /* a.x, a.y, and the rest: what is left of a has no row of its own. */
    static const size_t want[] = {0, 1, 2, 2};
    for (size_t i = 0; i < 4; i++) {
        uint32_t node = tree->of_module[modules[i].module];
        CHECK_UINT(ml_module_row_of(tree, rows, 3, node), want[i]);
    }
    /* Of rows that leave out the root there is none. */
    CHECK_UINT(ml_module_row_of(tree, rows, 2, tree->of_module[modules[2].module]), 2);
    ml_module_tree_free(tree);
    sample_end(&s);
}

int
main(void)
{
    RUN(test_unfolds);
    RUN(test_names_the_child_that_has_nearly_all);
    RUN(test_wide);
    RUN(test_numbers);
    RUN(test_rest);
    RUN(test_small);
    RUN(test_nothing);
    RUN(test_row_of);
    RUN(test_no_memory);
    return TEST_RESULT();
}
