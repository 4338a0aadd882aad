/* Memory that grows from step to step until there is none. */
#include "analysis/answers/oom_growth.h"

#include "analysis/answers/oom.h"
#include "oom_samples.h"
#include "test.h"

static void
test_growth(void)
{
    for (int marked = 0; marked < 2; marked++) {
        fixture f;
        set_up(&f);
        add_steps(&f, 6, true, marked != 0);
        OOM(&f, 0, 50 * MIB);
        ANSWER(&f);
        const ml_oom_growth *growth = &f.oom->growth;
        CHECK_INT(growth->marked, marked);
        /* Passes: the lowest between two of the six, 12 MiB up to 20; the last pass is in
         * no whole step.  Marks: those after the first mark, 12 MiB before the second
         * step's block up to 20 before the sixth's; the same. */
        CHECK_UINT(growth->steps, 4);
        CHECK_UINT(growth->first, 12 * MIB);
        CHECK_UINT(growth->last, 20 * MIB);
        CHECK_UINT(growth->line_count, 1);
        CHECK_INT(growth->lines[0].line, 7);
        CHECK_UINT(growth->lines[0].before, 2 * MIB);
        CHECK_UINT(growth->lines[0].after, 10 * MIB);
        CHECK_VERDICT(&f, "full");
        CHECK(strncmp(advice_text(f.oom), "growth:8", 8) == 0);
        tear_down(&f);
    }
}

/* Three steps are too few to say, and a level that once falls has not grown. */
static void
test_no_growth(void)
{
    fixture f;
    set_up(&f);
    add_steps(&f, 4, true, false);
    OOM(&f, 0, 60 * MIB);
    ANSWER(&f);
    CHECK_UINT(f.oom->growth.steps, 0);
    tear_down(&f);

    set_up(&f);
    add_steps(&f, 6, true, false);
    add_free(&f, BASE + 10 * MIB, 2 * MIB);
    add_free(&f, BASE + 12 * MIB, 2 * MIB);
    add_alloc(&f, BASE + 10 * MIB, 2 * MIB, 0);
    f.flags |= ML_EVENT_BACKWARD;
    add_free(&f, BASE + 14 * MIB, 2 * MIB);
    OOM(&f, 0, 60 * MIB);
    ANSWER(&f);
    CHECK_UINT(f.oom->growth.steps, 0);
    tear_down(&f);
}

int
main(void)
{
    RUN(test_growth);
    RUN(test_no_growth);
    return TEST_RESULT();
}
