/* Which site of one recording is which of another, worked out by hand. */
#include "compare/diff/match.h"

#include "budget.h"
#include "compare/diff/match_lines.h"
#include "recording_samples.h"
#include "test.h"

#define KIB UINT64_C(1024)
#define BASE UINT64_C(0x7f0000000000)

/* A frame and, in brackets, the module that it is the call of. */
typedef struct place {
    const char *file;
    int64_t line;
    const char *function;
    const char *module;
    uint64_t kib;
} place;

static void
build(sample *s, const place *places, size_t count)
{
    sample_begin(s);
    s->recording->rules.has_segments = 0;
    for (size_t i = 0; i < count; i++) {
        const place *p = &places[i];
        uint32_t stack =
            sample_call(s->recording, 0, p->file, p->line, p->function, p->module);
        sample_event(s, ML_ACTION_ALLOC, BASE + 1024 * KIB * i, p->kib * KIB, stack);
    }
}

typedef struct matched {
    sample samples[2];
    ml_string_pool texts;
    ml_sites sites[2];
    ml_match match;
} matched;

/* 0 or an error, after which there is nothing to take down but the samples. */
static int
match(matched *m, bool same_code)
{
    int result = ml_string_pool_init(&m->texts);
    for (unsigned side = 0; side < 2 && result == 0; side++) {
        result =
            ml_sites_init(&m->sites[side], &m->texts, m->samples[side].recording, 0);
    }
    if (result == 0) {
        result =
            ml_match_init(&m->match, &m->texts, &m->sites[0], &m->sites[1], same_code);
    }
    if (result < 0) {
        ml_sites_fini(&m->sites[0]);
        ml_sites_fini(&m->sites[1]);
        ml_string_pool_fini(&m->texts);
    }
    return result;
}

static void
done(matched *m)
{
    ml_match_fini(&m->match);
    for (unsigned side = 0; side < 2; side++) {
        ml_sites_fini(&m->sites[side]);
        sample_end(&m->samples[side]);
    }
    ml_string_pool_fini(&m->texts);
}

/* The line that the event at INDEX of the first recording has in the second; 0: none. */
static int64_t
line_of(const matched *m, size_t index)
{
    uint32_t partner = m->match.partner[0][m->sites[0].site[index]];
    return partner == ML_NO_SITE ? 0 : m->sites[1].items[partner].key.line;
}

static unsigned
rule_of(const matched *m, size_t index)
{
    return m->match.rule[0][m->sites[0].site[index]];
}

#define COUNT(places) (sizeof(places) / sizeof((places)[0]))
#define BUILD(m, before, after) \
    do { \
        build(&(m)->samples[0], before, COUNT(before)); \
        build(&(m)->samples[1], after, COUNT(after)); \
    } while (0)

static void
test_a_line_in_between(void)
{
    static const place before[] = {{"/a/m.py", 10, "f", NULL, 4},
                                   {"/a/m.py", 11, "f", NULL, 8},
                                   {"/a/m.py", 12, "f", NULL, 16}};
    static const place after[] = {{"/b/m.py", 10, "f", NULL, 4},
                                  {"/b/m.py", 11, "f", NULL, 64},
                                  {"/b/m.py", 12, "f", NULL, 8},
                                  {"/b/m.py", 13, "f", NULL, 16}};
    static matched m;
    BUILD(&m, before, after);
    CHECK_INT(match(&m, false), 0);
    CHECK_INT(line_of(&m, 0), 10);
    CHECK_UINT(rule_of(&m, 0), ML_MATCH_LINE);
    CHECK_INT(line_of(&m, 1), 12);
    CHECK_INT(line_of(&m, 2), 13);
    CHECK_UINT(rule_of(&m, 2), ML_MATCH_ORDER);
    CHECK_UINT(m.match.partner[1][m.sites[1].site[1]], ML_NO_SITE);
    done(&m);
    /* Of the same code, lines are what they say. */
    BUILD(&m, before, after);
    CHECK_INT(match(&m, true), 0);
    CHECK_INT(line_of(&m, 0), 0);
    done(&m);
}

/* One line calls three modules, of which the last has another name, and a fourth. */
static void
test_modules_of_a_line(void)
{
    static const place before[] = {{"m.py", 5, "f", "net.a", 4},
                                   {"m.py", 5, "f", "net.b", 4},
                                   {"m.py", 5, "f", "net.old", 4}};
    static const place after[] = {{"m.py", 5, "f", "net.b", 4},
                                  {"m.py", 5, "f", "net.new", 4},
                                  {"m.py", 5, "f", "net.a", 4},
                                  {"m.py", 5, "f", "net.more", 8}};
    static matched m;
    BUILD(&m, before, after);
    CHECK_INT(match(&m, false), 0);
    for (size_t i = 0; i < 3; i++) {
        static const size_t partners[] = {2, 0, 1};
        CHECK_UINT(m.match.partner[0][m.sites[0].site[i]],
                   m.sites[1].site[partners[i]]);
    }
    uint32_t more = m.sites[1].site[3];
    CHECK_UINT(m.match.partner[1][more], ML_NO_SITE);
    CHECK(m.match.beside[1][more] != ML_NO_SITE);
    done(&m);
}

/* Many modules ran on a line, of which none has its name any more: the line is the same. */
static void
test_renamed_modules_of_a_line(void)
{
    enum {
        MANY = 20
    };
    static char names[2][MANY][16];
    static place places[2][MANY + 1];
    for (unsigned side = 0; side < 2; side++) {
        for (int i = 0; i < MANY; i++) {
            snprintf(names[side][i], sizeof(names[side][i]), "%s.%d",
                     side == 0 ? "net" : "all.net", i);
            places[side][i] =
                (place){"m.py", 5 + 2 * side, "f", names[side][i], 4 + (uint64_t)i};
        }
    }
    places[0][MANY] = places[1][MANY] = (place){"m.py", 9, "g", "one", 1};
    static matched m;
    BUILD(&m, places[0], places[1]);
    CHECK_INT(match(&m, false), 0);
    for (size_t i = 0; i <= MANY; i++) {
        CHECK_UINT(m.match.partner[0][m.sites[0].site[i]], m.sites[1].site[i]);
    }
    CHECK_UINT(m.match.rule[0][m.sites[0].site[0]], ML_MATCH_ORDER);
    done(&m);
}

/* A module that both have is paired with no other, whatever lines say. */
static void
test_no_other_module(void)
{
    static const place before[] = {{"m.py", 5, "f", "net.a", 4},
                                   {"m.py", 6, "f", "net.b", 4}};
    static const place after[] = {{"m.py", 5, "f", "net.b", 4},
                                  {"m.py", 6, "f", "net.a", 4}};
    static matched m;
    BUILD(&m, before, after);
    CHECK_INT(match(&m, false), 0);
    for (size_t i = 0; i < 2; i++) {
        uint32_t site = m.sites[0].site[i];
        uint32_t partner = m.match.partner[0][site];
        CHECK(partner != ML_NO_SITE);
        CHECK_UINT(m.sites[1].items[partner].key.module,
                   m.sites[0].items[site].key.module);
    }
    done(&m);
}

static void
test_tails(void)
{
    static const struct {
        const char *a;
        const char *b;
        size_t same;
    } cases[] = {
        {"/a/x/train.py", "/b/x/train.py", 2},
        {"/a/train.py", "/b/train.py", 1},
        {"train.py", "/b/train.py", 1},
        {"train.py", "train.py", 1},
        {"/a/train.py", "/a/main.py", 0},
        {"/a/xtrain.py", "/a/train.py", 0},
        {"/train.py", "/train.py", 2},
        {"", "", 0},
        {"", "/a", 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        ml_string a = {cases[i].a, (uint32_t)strlen(cases[i].a)};
        ml_string b = {cases[i].b, (uint32_t)strlen(cases[i].b)};
        CHECK_UINT(ml_match_tail(a, b), cases[i].same);
        CHECK_UINT(ml_match_tail(b, a), cases[i].same);
    }
}

/* torch 2.15's router of operators is not the operation: a product of the program's has no
 * other site with its frame than without, and torch.einsum's is einsum()'s. */
static void
test_the_router_of_operators(void)
{
    static const char functional[] = "/p/site-packages/torch/functional.py";
    static const char router[] = "/p/site-packages/torch/_native/registry.py";
    static sample s;
    ml_string_pool texts;
    ml_sites sites;
    sample_begin(&s);
    s.recording->rules.has_segments = 0;
    uint32_t user = sample_call(s.recording, 0, "/a/m.py", 10, "f", NULL);
    uint32_t einsum = sample_call(s.recording, user, functional, 370, "einsum", NULL);
    const uint32_t stacks[] = {
        user, sample_call(s.recording, user, router, 1145, "eager_router", NULL),
        einsum, sample_call(s.recording, einsum, router, 1145, "eager_router", NULL)};
    for (unsigned i = 0; i < 4; i++) {
        sample_event(&s, ML_ACTION_ALLOC, BASE + 1024 * KIB * i, KIB, stacks[i]);
    }
    CHECK_INT(ml_string_pool_init(&texts), 0);
    CHECK_INT(ml_sites_init(&sites, &texts, s.recording, 0), 0);
    CHECK_UINT(sites.site[0], sites.site[1]);
    CHECK_UINT(sites.site[2], sites.site[3]);
    CHECK(sites.site[0] != sites.site[2]);
    ml_sites_fini(&sites);
    ml_string_pool_fini(&texts);
    sample_end(&s);
}

static void
test_no_memory(void)
{
    static const place before[] = {{"/a/m.py", 10, "f", "net.a", 4},
                                   {"/a/m.py", 11, "g", NULL, 8},
                                   {"/a/n.py", 12, "h", NULL, 16}};
    static const place after[] = {{"/a/m.py", 11, "f", "net.b", 4},
                                  {"/a/m.py", 14, "g", NULL, 8},
                                  {"/a/o.py", 12, "h", NULL, 16}};
    static matched m;
    BUILD(&m, before, after);
    int result = ML_ENOMEM;
    long tries = 0;
    for (; result == ML_ENOMEM && budget_alive == 0 && tries < 400; tries++) {
        budget_begin(tries);
        result = match(&m, false);
        if (result == 0) {
            ml_match_fini(&m.match);
            ml_sites_fini(&m.sites[0]);
            ml_sites_fini(&m.sites[1]);
            ml_string_pool_fini(&m.texts);
        }
        ml_recording_detach(m.samples[0].recording);
        ml_recording_detach(m.samples[1].recording);
        budget_end();
    }
    CHECK_INT(result, 0);
    CHECK_INT(budget_alive, 0);
    CHECK(tries > 20);
    sample_end(&m.samples[0]);
    sample_end(&m.samples[1]);
}

int
main(void)
{
    RUN(test_a_line_in_between);
    RUN(test_modules_of_a_line);
    RUN(test_renamed_modules_of_a_line);
    RUN(test_no_other_module);
    RUN(test_tails);
    RUN(test_the_router_of_operators);
    RUN(test_no_memory);
    return TEST_RESULT();
}
