/* What allocations are for: by event, from before, and of what is not known. */
#include "analysis/attribution/purposes.h"

#include "ledger/blocks.h"
#include "picture_samples.h"
#include "test.h"

/* A block from before that is a buffer, one without a tag, and a parameter. */
static void
three_blocks(sample *f)
{
    sample_begin(f);
    sample_tag(f, BASE + 8, ML_CATEGORY_BUFFER);
    sample_event(f, ML_ACTION_ALLOC, BASE + 2 * KIB, 1000, 0);
    sample_tag(f, BASE + 2 * KIB, ML_CATEGORY_PARAMETER);
    sample_segment(f, BASE, 0);
    sample_block(f, KIB, KIB, ML_BLOCK_ALLOCATED, 0);
    sample_block(f, KIB, KIB, ML_BLOCK_ALLOCATED, 0);
    sample_block(f, KIB, 1000, ML_BLOCK_ALLOCATED, 0);
    sample_block(f, 2 * MIB - 3 * KIB, 0, ML_BLOCK_INACTIVE, 0);
}

static void
test_categories(void)
{
    sample f;
    three_blocks(&f);
    ml_purposes of;
    CHECK_INT(ml_purposes_init(&of, f.recording, 0), 0);
    CHECK_INT(ml_purposes_category(&of, BASE, ML_BEFORE_EVENTS), ML_CATEGORY_BUFFER);
    CHECK_INT(ml_purposes_category(&of, BASE + KIB, ML_BEFORE_EVENTS),
              ML_CATEGORY_BEFORE_RECORDING);
    CHECK_INT(ml_purposes_category(&of, BASE + 2 * KIB, 0), ML_CATEGORY_PARAMETER);
    /* Nothing was there; no such event. */
    CHECK_INT(ml_purposes_category(&of, BASE + 1, ML_BEFORE_EVENTS),
              ML_CATEGORY_UNKNOWN);
    CHECK_INT(ml_purposes_category(&of, BASE, 1), ML_CATEGORY_UNKNOWN);
    ml_purposes_fini(&of);
    sample_end(&f);
}

static void
test_memory_failures(void)
{
    sample f;
    three_blocks(&f);
    int result = ML_ENOMEM;
    long tries = 0;
    for (; result == ML_ENOMEM && tries < 200; tries++) {
        ml_purposes of;
        budget_begin(tries);
        result = ml_purposes_init(&of, f.recording, 0);
        if (result == 0) {
            ml_purposes_fini(&of);
        }
        budget_end();
        CHECK_INT(budget_alive, 0);
    }
    CHECK_INT(result, 0);
    CHECK(tries > 10);
    sample_end(&f);
}

int
main(void)
{
    RUN(test_categories);
    RUN(test_memory_failures);
    return TEST_RESULT();
}
