/* The order of a workload's steps.  See schedule.h.
 *
 * A counting sort by event; the passes over marks and demands come in the order that steps
 * of one event have. */
#include "lab/whatif/schedule.h"

#include "base/base.h"

enum pass {
    PASS_CACHE, /* given back, or a pool is */
    PASS_FREES, /* moved */
    PASS_BIRTHS,
    PASS_RECORDED,
    PASS_COUNT
};

typedef struct sorter {
    const ml_workload *workload;
    uint32_t *next; /* per event: of its steps the next place */
    ml_step *steps; /* NULL: they are counted */
    size_t count;
} sorter;

static void
put(sorter *s, size_t event, size_t item, enum ml_step_kind kind)
{
    if (s->steps == NULL) {
        s->next[event]++;
        s->count++;
        return;
    }
    s->steps[s->next[event]++] = (ml_step){
        .event = (uint32_t)event, .item = (uint32_t)item, .kind = (uint32_t)kind};
}

/* Whether the recording has an event of demand ITEM at EVENT. */
static bool
is_recorded(const ml_workload *workload, size_t event, size_t item)
{
    return event < workload->trace->event_count &&
           workload->of_event[event] == (uint32_t)item + 1;
}

static void
put_demand(sorter *s, size_t item, enum pass pass)
{
    const ml_workload *workload = s->workload;
    const ml_demand *demand = &workload->demands[item];
    if (demand->bytes == 0) {
        return;
    }
    if (demand->born != ML_NO_EVENT) {
        bool there = is_recorded(workload, demand->born, item);
        if (pass == (there ? PASS_RECORDED : PASS_BIRTHS)) {
            put(s, demand->born, item, ML_STEP_ALLOC);
        }
    }
    bool whole = demand->freed != ML_NO_EVENT && demand->completed != ML_NO_EVENT &&
                 demand->completed - demand->freed <= 1;
    if (demand->freed != ML_NO_EVENT) {
        bool there = is_recorded(workload, demand->freed, item);
        if (pass == (there ? PASS_RECORDED : PASS_FREES)) {
            put(s, demand->freed, item, whole ? ML_STEP_FREE : ML_STEP_REQUEST);
        }
    }
    if (demand->completed != ML_NO_EVENT && !whole) {
        bool there = is_recorded(workload, demand->completed, item);
        if (pass == (there ? PASS_RECORDED : PASS_FREES)) {
            put(s, demand->completed, item, ML_STEP_COMPLETE);
        }
    }
}

static void
put_pass(sorter *s, enum pass pass)
{
    const ml_workload *workload = s->workload;
    for (size_t i = 0; i < workload->mark_count; i++) {
        bool cache = workload->marks[i].kind != ML_MARK_OOM;
        if (pass == (cache ? PASS_CACHE : PASS_RECORDED)) {
            put(s, workload->marks[i].event, i, ML_STEP_MARK);
        }
    }
    for (size_t i = 0; pass != PASS_CACHE && i < workload->count; i++) {
        put_demand(s, i, pass);
    }
}

static bool
is_sound(const ml_workload *workload, const ml_demand *demand)
{
    size_t limit = workload->trace->event_count;
    size_t earliest = demand->born == ML_NO_EVENT ? 0 : demand->born + 1;
    return (demand->born == ML_NO_EVENT || demand->born <= limit) &&
           (demand->freed == ML_NO_EVENT ||
            (demand->freed >= earliest && demand->freed <= limit)) &&
           (demand->completed == ML_NO_EVENT ||
            (demand->completed >= earliest && demand->completed <= limit &&
             (demand->freed == ML_NO_EVENT || demand->completed >= demand->freed)));
}

int
ml_schedule_init(ml_schedule *schedule, const ml_workload *workload)
{
    *schedule = (ml_schedule){0};
    for (size_t i = 0; i < workload->count; i++) {
        const ml_demand *demand = &workload->demands[i];
        if (demand->bytes != 0 && !is_sound(workload, demand)) {
            return ML_EINVALID;
        }
        schedule->demands += demand->bytes != 0 && demand->born != ML_NO_EVENT;
    }
    size_t events = workload->trace->event_count;
    sorter s = {.workload = workload,
                .next = ml_alloc_zeroed(events + 2, sizeof(uint32_t))};
    if (s.next == NULL) {
        return ML_ENOMEM;
    }
    for (enum pass pass = 0; pass < PASS_COUNT; pass++) {
        put_pass(&s, pass);
    }
    s.steps = ml_alloc_zeroed(s.count + 1, sizeof(ml_step));
    uint32_t before = 0;
    for (size_t i = 0; s.steps != NULL && i <= events; i++) {
        uint32_t here = s.next[i];
        s.next[i] = before;
        before += here;
    }
    for (enum pass pass = 0; s.steps != NULL && pass < PASS_COUNT; pass++) {
        put_pass(&s, pass);
    }
    ml_free(s.next);
    schedule->steps = s.steps;
    schedule->count = s.count;
    return s.steps == NULL ? ML_ENOMEM : 0;
}

void
ml_schedule_fini(ml_schedule *schedule)
{
    ml_free(schedule->steps);
    *schedule = (ml_schedule){0};
}
