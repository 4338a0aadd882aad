/* The peaks of steps: each step's instant, its categories, what was reserved, and where memory
 * ran out. */
#include "analysis/answers/step_peaks.h"

#include "base/base.h"
#include "budget.h"
#include "picture_samples.h"
#include "test.h"

/* Steps 7 and 8 end at 3.5 and 5.5 ms; events are at 1, 2, 3, ... ms.  Allocated in KiB after
 * each: 0, 1, 3, 3, 2, 2, 4, 4; reserved 2 MiB, and 4 MiB from the last event on. */
static void
three_steps(sample *f)
{
    sample_begin(f);
    sample_event(f, ML_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, 0);
    sample_event(f, ML_ACTION_ALLOC, BASE, KIB, 0);
    sample_tag(f, BASE, ML_CATEGORY_PARAMETER);
    sample_event(f, ML_ACTION_ALLOC, BASE + KIB, 2 * KIB, 0);
    sample_tag(f, BASE + KIB, ML_CATEGORY_BUFFER);
    sample_event(f, ML_ACTION_OOM, 0, MIB, 0);
    sample_event(f, ML_ACTION_FREE_REQUESTED, BASE, KIB, 0);
    sample_event(f, ML_ACTION_FREE_COMPLETED, BASE, KIB, 0);
    sample_event(f, ML_ACTION_ALLOC, BASE + 8 * KIB, 2 * KIB, 0);
    sample_tag(f, BASE + 8 * KIB, ML_CATEGORY_OPTIMIZER_STATE);
    sample_event(f, ML_ACTION_SEGMENT_ALLOC, BASE + 4 * MIB, 2 * MIB, 0);
    for (uint64_t i = 0; i < 2; i++) {
        f->notes[f->recording->note_count++] = (ml_note){
            .kind = ML_NOTE_STEP, .time = 3500000 + i * 2000000, .values = {7 + i}};
    }
}

static void
check_peak(const ml_step_peak *peak, uint32_t step, size_t event, uint64_t allocated,
           uint32_t ooms)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < ML_CATEGORY_COUNT; i++) {
        sum += peak->by_category[i];
    }
    CHECK_UINT(peak->step, step);
    CHECK_UINT(peak->event, event);
    CHECK_UINT(peak->allocated, allocated);
    CHECK_UINT(sum, allocated);
    CHECK_UINT(peak->ooms, ooms);
}

static void
test_peaks_of_three_steps(void)
{
    sample f;
    three_steps(&f);
    const ml_analysis *analysis;
    ml_step_peaks peaks;
    CHECK_INT(ml_analysis_of(f.recording, 0, &analysis), 0);
    CHECK_INT(ml_step_peaks_find(analysis, &peaks), 0);
    CHECK_UINT(peaks.count, 3);
    check_peak(&peaks.list[0], 7, 2, 3 * KIB, 0);
    CHECK_UINT(peaks.list[0].by_category[ML_CATEGORY_PARAMETER], KIB);
    CHECK_UINT(peaks.list[0].by_category[ML_CATEGORY_BUFFER], 2 * KIB);
    check_peak(&peaks.list[1], 8, 3, 3 * KIB, 1);
    /* What is reserved at the step's peak, and at any instant of it. */
    check_peak(&peaks.list[2], 9, 6, 4 * KIB, 0);
    CHECK_UINT(peaks.list[2].by_category[ML_CATEGORY_OPTIMIZER_STATE], 2 * KIB);
    CHECK_UINT(peaks.list[2].reserved + 2 * MIB, peaks.list[2].most_reserved);
    ml_step_peaks_fini(&peaks);
    sample_end(&f);
}

static void
test_without_events(void)
{
    sample f;
    sample_begin(&f);
    const ml_analysis *analysis;
    ml_step_peaks peaks;
    CHECK_INT(ml_analysis_of(f.recording, 0, &analysis), 0);
    CHECK_INT(ml_step_peaks_find(analysis, &peaks), 0);
    CHECK_UINT(peaks.count, 0);
    ml_step_peaks_fini(&peaks);
    sample_end(&f);
}

static void
test_memory_failures(void)
{
    sample f;
    three_steps(&f);
    const ml_analysis *analysis;
    CHECK_INT(ml_analysis_of(f.recording, 0, &analysis), 0);
    int result = ML_ENOMEM;
    long tries = 0;
    for (; result == ML_ENOMEM && tries < 20; tries++) {
        ml_step_peaks peaks;
        budget_begin(tries);
        result = ml_step_peaks_find(analysis, &peaks);
        ml_step_peaks_fini(&peaks);
        budget_end();
    }
    CHECK_INT(result, 0);
    CHECK(tries > 1);
    sample_end(&f);
}

int
main(void)
{
    RUN(test_peaks_of_three_steps);
    RUN(test_without_events);
    RUN(test_memory_failures);
    return TEST_RESULT();
}
