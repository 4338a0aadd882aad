/* The requests that failed.  See failed_pass.h. */
#include "analysis/attribution/failed_pass.h"

#include <stdlib.h>

#include "base/base.h"

/* The events of TRACE up to and with the last failed request of the first END; 0: none. */
static uint64_t
last_before(const ml_device_trace *trace, size_t end)
{
    while (end > 0) {
        size_t first = (end - 1) / ML_EVENTS_CHUNK * ML_EVENTS_CHUNK;
        bool may = ml_events_most(&trace->events, trace->event_count, first,
                                  ML_EVENT_MEMBER_action) >= ML_ACTION_OOM;
        for (; may && end > first; end--) {
            if (ml_events_action(&trace->events, end - 1) == ML_ACTION_OOM) {
                return end;
            }
        }
        end = first;
    }
    return 0;
}

uint64_t
ml_failed_events(const ml_device_trace *trace)
{
    return last_before(trace, trace->event_count);
}

int
ml_failed_passes_init(ml_failed_passes *passes, const ml_causes *causes,
                      const ml_recording *recording, size_t device,
                      const ml_lifetimes *lifetimes)
{
    const ml_device_trace *trace = &recording->devices[device];
    bool backward = false;
    *passes = (ml_failed_passes){0};
    uint64_t end = ml_failed_events(trace);
    for (; end != 0; end = last_before(trace, end - 1)) {
        void *of = passes->of;
        if (ml_grow(&of, &passes->capacity, passes->count + 1, sizeof(ml_failed_pass)) <
            0) {
            return ML_ENOMEM;
        }
        passes->of = of;
        ml_failed_pass failed = {end, ml_causes_is_backward(causes, device, end - 1)};
        passes->of[passes->count++] = failed;
        backward = backward || failed.backward;
    }
    return backward
               ? ml_lifetimes_parameters(lifetimes, &passes->sizes, &passes->size_count)
               : 0;
}

void
ml_failed_passes_fini(ml_failed_passes *passes)
{
    ml_free(passes->of);
    ml_free(passes->sizes);
    *passes = (ml_failed_passes){0};
}

const ml_failed_pass *
ml_failed_passes_during(const ml_failed_passes *passes, const ml_lifetime *life)
{
    size_t later = 0;
    ML_SEARCH(later, passes->count, passes->of[later].events > life->birth);
    const ml_failed_pass *first = later != 0 ? &passes->of[later - 1] : NULL;
    return first != NULL && life->requested > first->events ? first : NULL;
}

bool
ml_failed_passes_have_parameter(const ml_failed_passes *passes, uint64_t size)
{
    return bsearch(&size, passes->sizes, passes->size_count, sizeof(size),
                   ml_compare_u64) != NULL;
}
