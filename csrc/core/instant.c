/* Which event of a device an instant is.  See instant.h. */
#include "instant.h"

#include "cause.h"
#include "replay.h"

#define NS_PER_US 1000

static uint64_t
microsecond(const ml_event *event)
{
    return event->time / NS_PER_US;
}

uint64_t
ml_instant_base(const ml_recording *recording)
{
    uint64_t first = UINT64_MAX;
    for (size_t d = 0; d < recording->device_count; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        if (trace->event_count != 0 && microsecond(&trace->events[0]) < first) {
            first = microsecond(&trace->events[0]);
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
            uint64_t time = microsecond(&trace->events[i]);
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
        uint64_t at = microsecond(&trace->events[count]);
        if (at > base && at - base > time) {
            break;
        }
        count++;
    }
    return (int64_t)count - 1;
}

static void
look(ml_replay *replay, const ml_causes *causes, size_t device, uint64_t step,
     int64_t *event, ml_instant_steps *steps)
{
    uint64_t most = 0;
    while (ml_replay_next(replay) != NULL) {
        size_t index = ml_replay_position(replay) - 1;
        uint32_t now = ml_causes_step(causes, device, index);
        if (index == 0) {
            *steps = (ml_instant_steps){now, now};
        }
        steps->first = now < steps->first ? now : steps->first;
        steps->last = now > steps->last ? now : steps->last;
        uint64_t allocated = ml_replay_totals(replay)->allocated;
        if (now == step && (*event < 0 || allocated > most)) {
            *event = (int64_t)index;
            most = allocated;
        }
    }
}

int
ml_instant_in_step(const ml_recording *recording, size_t device, uint64_t step,
                   int64_t *event, ml_instant_steps *steps)
{
    *event = -1;
    *steps = (ml_instant_steps){0, 0};
    ml_replay *replay;
    int error = ml_replay_new(recording, device, &replay);
    if (error < 0) {
        return error;
    }
    ml_causes *causes = NULL;
    error = ml_causes_new(recording, &causes);
    if (error == 0) {
        look(replay, causes, device, step, event, steps);
    }
    ml_causes_free(causes);
    ml_replay_free(replay);
    return error;
}
