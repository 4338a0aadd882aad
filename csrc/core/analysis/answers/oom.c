/* Describes an out of memory: the request, the supply, and the whole.  See oom.h. */
#include "analysis/answers/oom.h"

#include "analysis/answers/oom_advice.h"
#include "analysis/answers/oom_cache.h"
#include "analysis/answers/oom_growth.h"
#include "analysis/attribution/failed_pass.h"
#include "base/base.h"

typedef struct oom_work {
    ml_oom *oom;
    const ml_recording *recording;
    const ml_device_trace *trace;
    size_t device;
    ml_event event;
} oom_work;

/* ---- What was asked, and what there was to give ---- */

static uint64_t
round_up(uint64_t bytes, uint64_t unit)
{
    return bytes > UINT64_MAX - unit ? bytes : (bytes + unit - 1) / unit * unit;
}

/* The note of this OOM; NULL: none.  Its thread made it right after the event, but
 * other threads may run out of memory at the same time. */
static const ml_note *
find_note(const oom_work *w)
{
    for (size_t i = 0; i < w->recording->note_count; i++) {
        const ml_note *note = &w->recording->notes[i];
        if (note->kind == ML_NOTE_OOM && note->device == (int32_t)w->device &&
            note->thread == w->event.thread && note->time >= w->event.time &&
            note->values[1] == w->event.addr) {
            return note;
        }
    }
    return NULL;
}

static uint64_t
known_or(uint64_t value, uint64_t otherwise)
{
    return value == 0 || value == UINT64_MAX ? otherwise : value;
}

static uint64_t
less(uint64_t from, uint64_t bytes)
{
    return from > bytes ? from - bytes : 0;
}

/* Bytes of the releases right before the event, which only frees may interrupt. */
static uint64_t
released_before(const oom_work *w)
{
    uint64_t bytes = 0;
    for (uint64_t i = w->oom->event; i > 0; i--) {
        unsigned action = ml_events_action(&w->trace->events, i - 1);
        if (action == ML_ACTION_SEGMENT_FREE || action == ML_ACTION_SEGMENT_UNMAP) {
            bytes += ml_events_size(&w->trace->events, i - 1);
        }
        else if (action != ML_ACTION_FREE_COMPLETED) {
            break;
        }
    }
    return bytes;
}

static void
count_ooms(oom_work *w)
{
    for (size_t i = 0; i < w->trace->event_count; i++) {
        if (ml_events_action(&w->trace->events, i) == ML_ACTION_OOM) {
            w->oom->count++;
            w->oom->number += i <= w->oom->event;
        }
    }
}

/* By the rules for all events: a request of a backward pass has its forward line. */
static int
describe_place(oom_work *w)
{
    ml_causes *causes;
    int error = ml_causes_new(w->recording, &causes);
    if (error == 0) {
        w->oom->cause = ml_causes_of(causes, w->device, (size_t)w->oom->event);
        ml_causes_free(causes);
    }
    return error;
}

static void
describe_request(oom_work *w)
{
    ml_oom *oom = w->oom;
    const ml_event *event = &w->event;
    const ml_note *note = find_note(w);
    oom->time = event->time;
    oom->requested = event->size;
    oom->stream = event->stream;
    oom->pool[0] = event->pool[0];
    oom->pool[1] = event->pool[1];
    oom->pool_known = (event->flags & ML_EVENT_POOL_KNOWN) != 0;
    oom->small = event->size <= ML_SMALL_BLOCK_BYTES;
    oom->expandable = w->recording->rules.expandable_segments != 0;
    oom->device_free = event->addr;
    /* If no note has it. */
    oom->driver_request = ml_segment_bytes(event->size, ML_LARGE_SEGMENT_BYTES);
    oom->total = ML_OOM_UNKNOWN;
    oom->allowed = ML_OOM_UNKNOWN;
    if (note != NULL) {
        oom->driver_request = known_or(note->values[0], oom->driver_request);
        oom->total = known_or(note->values[2], ML_OOM_UNKNOWN);
        oom->allowed = known_or(note->values[3], ML_OOM_UNKNOWN);
    }
    if (oom->expandable) {
        /* These grow by pages of the size of the smallest segments. */
        oom->driver_request =
            round_up(oom->requested,
                     oom->small ? ML_SMALL_SEGMENT_BYTES : ML_LARGE_SEGMENT_BYTES);
    }
    oom->released = released_before(w);
    count_ooms(w);
}

static void
describe_supply(oom_work *w)
{
    ml_oom *oom = w->oom;
    uint64_t reserved = oom->state->totals.reserved;
    oom->headroom = oom->device_free;
    if (oom->allowed != ML_OOM_UNKNOWN &&
        less(oom->allowed, reserved) < oom->headroom) {
        oom->headroom = less(oom->allowed, reserved);
    }
    oom->outside = ML_OOM_UNKNOWN;
    if (oom->total != ML_OOM_UNKNOWN) {
        oom->outside = less(less(oom->total, oom->device_free), reserved);
    }
}

/* ---- The whole ---- */

static int
replay_to_event(oom_work *w, ml_replay *replay, ml_oom_steps *steps)
{
    int error = 0;
    for (uint64_t i = 0; i < w->oom->event && error == 0; i++) {
        error = ml_oom_steps_add(steps, ml_replay_peek(replay), i,
                                 ml_replay_totals(replay)->allocated);
        ml_replay_next(replay);
    }
    if (error == 0) {
        error = ml_oom_fill_cache(w->oom, w->recording, w->device,
                                  ml_replay_ledger(replay));
    }
    if (error == 0) {
        error =
            ml_oom_steps_judge(steps, w->oom->state->totals.allocated, &w->oom->growth);
    }
    return error;
}

static int
fill_oom(oom_work *w)
{
    ml_oom *oom = w->oom;
    int error = ml_peak_new_at(w->recording, w->device, oom->event, &oom->state);
    if (error == 0) {
        error = describe_place(w);
    }
    if (error < 0) {
        return error;
    }
    const ml_analysis *analysis;
    ml_replay *replay;
    error = ml_analysis_of(w->recording, w->device, &analysis);
    if (error == 0) {
        error = ml_analysis_replay(analysis, 0, &replay);
    }
    if (error < 0) {
        return error;
    }
    ml_oom_steps steps;
    ml_oom_steps_init(&steps, w->recording, w->device);
    describe_request(w);
    error = replay_to_event(w, replay, &steps);
    ml_oom_steps_fini(&steps);
    ml_replay_free(replay);
    if (error < 0) {
        return error;
    }
    describe_supply(w);
    ml_oom_judge(oom);
    return ml_oom_advise(oom, w->recording, &w->event);
}

int64_t
ml_oom_last(const ml_recording *recording, size_t device)
{
    return device < recording->device_count
               ? (int64_t)ml_failed_events(&recording->devices[device]) - 1
               : -1;
}

int
ml_oom_new(const ml_recording *recording, size_t device, uint64_t event, ml_oom **out)
{
    if (device >= recording->device_count ||
        event >= recording->devices[device].event_count ||
        ml_events_action(&recording->devices[device].events, event) != ML_ACTION_OOM) {
        return ML_EINVALID;
    }
    oom_work w = {.oom = ml_alloc_zeroed(1, sizeof(ml_oom)),
                  .recording = recording,
                  .trace = &recording->devices[device],
                  .device = device,
                  .event = ml_events_at(&recording->devices[device].events, event)};
    if (w.oom == NULL) {
        return ML_ENOMEM;
    }
    w.oom->event = event;
    int error = fill_oom(&w);
    if (error < 0) {
        ml_oom_free(w.oom);
        return error;
    }
    *out = w.oom;
    return 0;
}

void
ml_oom_free(ml_oom *oom)
{
    if (oom != NULL) {
        ml_peak_free(oom->state);
        ml_free(oom);
    }
}

const char *
ml_oom_verdict_text(unsigned verdict)
{
    static const char *const texts[] = {ML_OOM_VERDICTS(ML_LISTED_TEXT)};
    return verdict < ML_OOM_VERDICT_COUNT ? texts[verdict] : "";
}

const char *
ml_oom_unused_text(unsigned kind)
{
    static const char *const texts[] = {ML_OOM_UNUSED(ML_LISTED_TEXT)};
    return kind < ML_OOM_UNUSED_COUNT ? texts[kind] : "";
}

const char *
ml_oom_advice_text(unsigned kind)
{
    static const char *const texts[] = {ML_OOM_ADVICES(ML_LISTED_TEXT)};
    return kind < ML_OOM_ADVICE_COUNT ? texts[kind] : "";
}
