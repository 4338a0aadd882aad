/* Lists of places: which modules they have, and how they are told. */
#include "lab/advice/advice_places.h"

#include <string.h>

#include "base/base.h"
#include "budget.h"
#include "test.h"

static char *
copy(const char *text)
{
    char *bytes = ml_alloc(strlen(text) + 1);
    return bytes == NULL ? NULL : strcpy(bytes, text);
}

static void
test_a_module_within_or_around_a_place_nests(void)
{
    static const char places[] = "up.*, down.0.resnets.*";
    CHECK(ml_places_nest(places, "up.*"));
    CHECK(ml_places_nest(places, "down.0"));
    CHECK(ml_places_nest(places, "down.0.resnets.*.conv.*"));
    CHECK(!ml_places_nest(places, "down.1"));
    CHECK(!ml_places_nest(places, "up"
                                  "stairs.*"));
    CHECK(!ml_places_nest(places, "down.0.resnet"));
}

static void
test_places_are_added(void)
{
    char *places = copy("a.*");
    CHECK_INT(ml_places_add(&places, "b.*"), 0);
    CHECK_STR(places, "a.*, b.*");
    ml_free(places);
}

static void
check_fold(const char *from, const char *to)
{
    char *places = copy(from);
    CHECK_INT(ml_places_fold(&places), 0);
    CHECK_STR(places, to);
    ml_free(places);
}

static void
test_places_that_differ_in_a_number_are_one(void)
{
    check_fold("a.*", "a.*");
    check_fold("up.*, down.*", "up.*, down.*");
    check_fold("up.3.resnets.*, down.*, up.10.resnets.*, up.2.resnets.*",
               "up.{2,3,10}.resnets.*, down.*");
    /* Of two numbers the one in which most differ. */
    check_fold("a.0.b.1.c, a.1.b.0.c, a.2.b.1.c, a.0.b.2.c, a.3.b.1.c",
               "a.{0,2,3}.b.1.c, a.1.b.0.c, a.0.b.2.c");
    /* More than a number differs; no number is there. */
    check_fold("up.0.resnets.*, up.1.attentions.*, layer1.*, layer2.*",
               "up.0.resnets.*, up.1.attentions.*, layer1.*, layer2.*");
    check_fold("block_0.*, block_1.*", "block_{0,1}.*");
}

static void
check_widen(const char *const *paths, const char *to)
{
    char *places = NULL;
    for (; *paths != NULL; paths++) {
        ml_string path = {*paths, (uint32_t)strlen(*paths)};
        CHECK_INT(ml_places_widen(&places, path), 0);
    }
    CHECK_STR(places, to);
    ml_free(places);
}

static void
test_each_part_of_a_program_has_its_place(void)
{
    static const char *const one[] = {"net.0.conv", "net.1.conv", NULL};
    static const char *const two[] = {"vae.0", "text.layers.0", "vae.1", "text.norm",
                                      NULL};
    static const char *const numbers[] = {"0.conv", "1.conv", NULL};
    static const char *const many[] = {"a.x", "b.x", "c.x", "d.x", "e.x", "f", NULL};
    check_widen(one, "net.*.conv");
    check_widen(two, "vae.*, text.*");
    check_widen(numbers, "*.conv");
    check_widen(many, "*");
}

static int
widen(char **places)
{
    return ml_places_widen(places, (ml_string){"a.2", 3});
}

static void
test_each_allocation_can_fail(void)
{
    for (int what = 0; what < 3; what++) {
        char *places = copy("a.0.*, a.1.*");
        int result = ML_ENOMEM;
        for (long tries = 0; result == ML_ENOMEM; tries++) {
            budget_begin(tries);
            result = what == 0   ? ml_places_fold(&places)
                     : what == 1 ? ml_places_add(&places, "b")
                                 : widen(&places);
            budget_end();
            CHECK(result == 0 || strcmp(places, "a.0.*, a.1.*") == 0);
        }
        CHECK_STR(places, what == 0   ? "a.{0,1}.*"
                          : what == 1 ? "a.0.*, a.1.*, b"
                                      : "a.*, a.1.*");
        ml_free(places);
    }
}

int
main(void)
{
    RUN(test_a_module_within_or_around_a_place_nests);
    RUN(test_places_are_added);
    RUN(test_places_that_differ_in_a_number_are_one);
    RUN(test_each_part_of_a_program_has_its_place);
    RUN(test_each_allocation_can_fail);
    return TEST_RESULT();
}
