/* Finds the peak of each step.  See step_peaks.h. */
#include "analysis/answers/step_peaks.h"

#include <string.h>

#include "analysis/lifetimes/lifetimes_walk.h"
#include "base/base.h"

typedef struct now {
    const ml_analysis *analysis;
    uint64_t by_category[ML_CATEGORY_COUNT];
} now;

static void
change(void *context, const ml_lifetime *row, bool begins)
{
    now *n = context;
    size_t index = ml_lifetimes_index(&n->analysis->lifetimes, row);
    uint64_t *bytes = &n->by_category[ml_analysis_category(n->analysis, index)];
    *bytes = begins ? *bytes + row->bytes : *bytes - row->bytes;
}

/* The peak of STEP, the last in PEAKS unless it begins here. */
static int
peak_of(ml_step_peaks *peaks, uint32_t step, ml_step_peak **out, bool *begins)
{
    *begins = peaks->count == 0 || peaks->list[peaks->count - 1].step != step;
    if (*begins) {
        void *list = peaks->list;
        if (ml_grow(&list, &peaks->capacity, peaks->count + 1, sizeof(ml_step_peak)) <
            0) {
            return ML_ENOMEM;
        }
        peaks->list = list;
        peaks->list[peaks->count++] = (ml_step_peak){.step = step};
    }
    *out = &peaks->list[peaks->count - 1];
    return 0;
}

int
ml_step_peaks_find(const ml_analysis *analysis, ml_step_peaks *peaks)
{
    *peaks = (ml_step_peaks){0};
    now n = {.analysis = analysis};
    int error = ml_analysis_judge(analysis);
    if (error < 0) {
        return error;
    }
    ml_lifetimes_walk walk;
    ml_lifetimes_walk_begin(&walk, &analysis->lifetimes, change, &n);
    for (size_t i = 0; i < analysis->trace->event_count && error == 0; i++) {
        ml_step_peak *peak;
        bool begins;
        ml_lifetimes_walk_next(&walk);
        error = peak_of(peaks, ml_causes_step(analysis->causes, analysis->device, i),
                        &peak, &begins);
        if (error == 0 && (begins || walk.allocated > peak->allocated)) {
            peak->event = i;
            peak->allocated = walk.allocated;
            peak->reserved = walk.reserved;
            memcpy(peak->by_category, n.by_category, sizeof(n.by_category));
        }
        if (error == 0) {
            peak->most_reserved = peak->most_reserved < walk.reserved
                                      ? walk.reserved
                                      : peak->most_reserved;
            peak->ooms +=
                ml_events_action(&analysis->trace->events, i) == ML_ACTION_OOM;
        }
    }
    return error;
}

void
ml_step_peaks_fini(ml_step_peaks *peaks)
{
    ml_free(peaks->list);
    *peaks = (ml_step_peaks){0};
}
