/* The shared analysis: made once, by whoever comes first; categories by event, from before,
 * and of what is not known. */
#include "analysis/analysis.h"

#include <pthread.h>

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
    const ml_analysis *of;
    CHECK_INT(ml_analysis_of(f.recording, 0, &of), 0);
    CHECK_INT(ml_analysis_judge(of), 0);
    const ml_lifetimes *lifetimes = &of->lifetimes;
    CHECK_UINT(lifetimes->earlier_count, 2);
    CHECK_INT(ml_analysis_category(of, ml_lifetimes_earlier(lifetimes, BASE)),
              ML_CATEGORY_BUFFER);
    CHECK_INT(ml_analysis_category(of, ml_lifetimes_earlier(lifetimes, BASE + KIB)),
              ML_CATEGORY_BEFORE_RECORDING);
    CHECK_INT(ml_analysis_category(of, ml_lifetimes_row(lifetimes, 0)),
              ML_CATEGORY_PARAMETER);
    sample_end(&f);
}

/* A workspace that is older than the recording is one where owners are known; 32 MiB are
 * one only if backward passes do not free them. */
static void
test_workspaces_from_before(void)
{
    static const uint64_t sizes[] = {8519680, 32 * MIB};
    for (int known = 0; known < 2; known++) {
        sample f;
        three_blocks(&f);
        sample_segment(&f, BASE + 64 * MIB, 0);
        sample_block(&f, sizes[0], sizes[0], ML_BLOCK_ALLOCATED, 0);
        sample_block(&f, sizes[1], sizes[1], ML_BLOCK_ALLOCATED, 0);
        f.tags[1].category = known ? ML_CATEGORY_PARAMETER : ML_CATEGORY_BUFFER;
        const ml_analysis *of;
        CHECK_INT(ml_analysis_of(f.recording, 0, &of), 0);
        CHECK_INT(ml_analysis_judge(of), 0);
        size_t row = ml_lifetimes_earlier(&of->lifetimes, BASE + 64 * MIB);
        CHECK_INT(ml_analysis_category(of, row),
                  known ? ML_CATEGORY_WORKSPACE : ML_CATEGORY_BEFORE_RECORDING);
        CHECK_INT(ml_analysis_category(of, row + 1), ML_CATEGORY_BEFORE_RECORDING);
        sample_end(&f);
    }
}

static void
test_made_once(void)
{
    sample f;
    three_blocks(&f);
    const ml_analysis *first, *second;
    const ml_causes *causes;
    CHECK_INT(ml_analysis_of(f.recording, 0, &first), 0);
    CHECK_INT(ml_analysis_of(f.recording, 0, &second), 0);
    CHECK(first == second);
    CHECK_INT(ml_analysis_causes(f.recording, &causes), 0);
    CHECK(causes == first->causes);
    CHECK_INT(ml_analysis_of(f.recording, 1, &second), ML_EINVALID);
    sample_end(&f);
}

/* Two that come first get the same one, and nothing is lost of the other. */
static void *
ask(void *recording)
{
    const ml_analysis *of = NULL;
    return ml_analysis_of(recording, 0, &of) == 0 && ml_analysis_judge(of) == 0
               ? (void *)(uintptr_t)of
               : NULL;
}

static void
test_threads(void)
{
    for (int i = 0; i < 50; i++) {
        sample f;
        three_blocks(&f);
        pthread_t threads[4];
        void *got[4];
        for (int t = 0; t < 4; t++) {
            CHECK_INT(pthread_create(&threads[t], NULL, ask, f.recording), 0);
        }
        for (int t = 0; t < 4; t++) {
            pthread_join(threads[t], &got[t]);
        }
        CHECK(got[0] != NULL && got[0] == got[1] && got[1] == got[2] &&
              got[2] == got[3]);
        sample_end(&f);
    }
}

static void
test_memory_failures(void)
{
    sample f;
    three_blocks(&f);
    int result = ML_ENOMEM;
    long tries = 0;
    for (; result == ML_ENOMEM && tries < 200; tries++) {
        const ml_analysis *of;
        budget_begin(tries);
        result = ml_analysis_of(f.recording, 0, &of);
        if (result == 0) {
            result = ml_analysis_judge(of);
        }
        ml_recording_detach(f.recording);
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
    RUN(test_workspaces_from_before);
    RUN(test_made_once);
    RUN(test_threads);
    RUN(test_memory_failures);
    return TEST_RESULT();
}
