/* Finds the event of an instant.  See instant.h. */
#include "analysis/answers/instant.h"

#include "analysis/analysis.h"
#include "analysis/lifetimes/lifetimes_walk.h"

#define NS_PER_US 1000

static uint64_t
microsecond(const ml_device_trace *trace, size_t event)
{
    return ml_events_time(&trace->events, event) / NS_PER_US;
}

uint64_t
ml_instant_base(const ml_recording *recording)
{
    uint64_t first = UINT64_MAX;
    for (size_t d = 0; d < recording->device_count; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        if (trace->event_count != 0 && microsecond(trace, 0) < first) {
            first = microsecond(trace, 0);
        }
    }
    return first == UINT64_MAX ? 0 : first;
}

uint64_t
ml_instant_length(const ml_recording *recording)
{
    uint64_t base = ml_instant_base(recording);
    uint64_t last = base;
    for (size_t d = 0; d < recording->device_count; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        for (size_t i = 0; i < trace->event_count; i++) {
            uint64_t time = microsecond(trace, i);
            last = last < time ? time : last;
        }
    }
    return last - base;
}

int64_t
ml_instant_at(const ml_recording *recording, size_t device, uint64_t time)
{
    const ml_device_trace *trace = &recording->devices[device];
    uint64_t base = ml_instant_base(recording);
    size_t count = 0;
    while (count < trace->event_count) {
        uint64_t at = microsecond(trace, count);
        if (at > base && at - base > time) {
            break;
        }
        count++;
    }
    return (int64_t)count - 1;
}

/* Of the events of OF's device: *EVENT as ml_instant_in_step() says, if it has one in STEP. */
static void
find_most(const ml_analysis *of, uint64_t step, int64_t *event)
{
    uint64_t most = 0;
    ml_lifetimes_walk walk;
    ml_lifetimes_walk_begin(&walk, &of->lifetimes, NULL, NULL);
    for (size_t i = 0; i < of->trace->event_count; i++) {
        ml_lifetimes_walk_next(&walk);
        if (ml_causes_step(of->causes, of->device, i) == step &&
            (*event < 0 || walk.allocated > most)) {
            *event = (int64_t)i;
            most = walk.allocated;
        }
    }
}

/* Whether any device has an event in STEP; *STEPS of all events. */
static bool
has_step(const ml_recording *recording, const ml_causes *causes, uint64_t step,
         ml_instant_steps *steps)
{
    bool found = false, any = false;
    for (size_t d = 0; d < recording->device_count; d++) {
        for (size_t i = 0; i < recording->devices[d].event_count; i++) {
            uint32_t now = ml_causes_step(causes, d, i);
            steps->first = !any || now < steps->first ? now : steps->first;
            steps->last = !any || now > steps->last ? now : steps->last;
            any = true;
            found = found || now == step;
        }
    }
    return found;
}

/* The last event of DEVICE in a step before STEP; -1 without one. */
static int64_t
last_before(const ml_recording *recording, const ml_causes *causes, size_t device,
            uint64_t step)
{
    size_t count = recording->devices[device].event_count;
    while (count > 0 && ml_causes_step(causes, device, count - 1) >= step) {
        count--;
    }
    return (int64_t)count - 1;
}

int
ml_instant_in_step(const ml_recording *recording, size_t device, uint64_t step,
                   int64_t *event, ml_instant_steps *steps)
{
    *event = ML_INSTANT_NO_STEP;
    *steps = (ml_instant_steps){0, 0};
    const ml_analysis *analysis;
    int error = ml_analysis_of(recording, device, &analysis);
    if (error < 0 || !has_step(recording, analysis->causes, step, steps)) {
        return error;
    }
    find_most(analysis, step, event);
    if (*event < 0) {
        *event = last_before(recording, analysis->causes, device, step);
    }
    return 0;
}
