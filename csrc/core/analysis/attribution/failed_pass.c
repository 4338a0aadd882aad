/* The last request that failed.  See failed_pass.h. */
#include "analysis/attribution/failed_pass.h"

#include <stdlib.h>

#include "base/base.h"

uint64_t
ml_failed_events(const ml_device_trace *trace)
{
    size_t end = trace->event_count;
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

static int
take_sizes(ml_failed_pass *pass, const ml_events *events, const ml_lifetimes *lifetimes)
{
    pass->sizes = ml_alloc((lifetimes->count + 1) * sizeof(uint64_t));
    if (pass->sizes == NULL) {
        return ML_ENOMEM;
    }
    for (size_t i = 0; i < lifetimes->count; i++) {
        const ml_lifetime *row = &lifetimes->rows[i];
        if (row->tag == ML_CATEGORY_PARAMETER) {
            pass->sizes[pass->count++] = row->birth == 0
                                             ? lifetimes->earlier[row->earlier].size
                                             : ml_events_size(events, row->birth - 1);
        }
    }
    qsort(pass->sizes, pass->count, sizeof(uint64_t), ml_compare_u64);
    return 0;
}

int
ml_failed_pass_init(ml_failed_pass *pass, const ml_causes *causes,
                    const ml_recording *recording, size_t device,
                    const ml_lifetimes *lifetimes)
{
    const ml_device_trace *trace = &recording->devices[device];
    *pass = (ml_failed_pass){.events = ml_failed_events(trace)};
    pass->backward =
        pass->events != 0 && ml_causes_is_backward(causes, device, pass->events - 1);
    return pass->backward ? take_sizes(pass, &trace->events, lifetimes) : 0;
}

void
ml_failed_pass_fini(ml_failed_pass *pass)
{
    ml_free(pass->sizes);
    *pass = (ml_failed_pass){0};
}

bool
ml_failed_pass_has_parameter(const ml_failed_pass *pass, uint64_t size)
{
    return bsearch(&size, pass->sizes, pass->count, sizeof(size), ml_compare_u64) !=
           NULL;
}
