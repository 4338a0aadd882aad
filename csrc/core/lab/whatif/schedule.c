/* Orders a workload's steps.  See schedule.h.
 *
 * The recording's events are already in order.  Moved steps are sorted and merged with
 * them. */
#include "lab/whatif/schedule.h"

#include <stdlib.h>

#include "base/base.h"

/* The order of steps at one event. */
enum rank {
    RANK_CACHE, /* cache or a pool is given back */
    RANK_FREES, /* moved */
    RANK_BIRTHS,
    RANK_FAILURES,
    RANK_RECORDED
};

static int
move(ml_schedule *s, size_t event, size_t item, enum ml_step_kind kind, enum rank rank)
{
    void *list = s->moved;
    if (ml_grow(&list, &s->capacity, s->count + 1, sizeof(ml_moved_step)) < 0) {
        return ML_ENOMEM;
    }
    s->moved = list;
    s->moved[s->count] = (ml_moved_step){.step = {.event = (uint32_t)event,
                                                  .item = (uint32_t)item,
                                                  .kind = (uint32_t)kind},
                                         .rank = (uint32_t)rank,
                                         .place = (uint32_t)s->count};
    s->count++;
    return 0;
}

static int
compare_moved(const void *a, const void *b)
{
    const ml_moved_step *x = a;
    const ml_moved_step *y = b;
    if (x->step.event != y->step.event) {
        return x->step.event < y->step.event ? -1 : 1;
    }
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Whether the recording has an event of demand ITEM at EVENT. */
static bool
is_recorded(const ml_workload *workload, size_t event, size_t item)
{
    return event < workload->trace->event_count &&
           workload->of_event[event] == (uint32_t)item + 1;
}

/* Whether DEMAND's free is one step. */
static bool
is_whole(const ml_demand *demand)
{
    return demand->freed != ML_NO_EVENT && demand->completed != ML_NO_EVENT &&
           demand->completed - demand->freed <= 1;
}

/* Adds the steps of demand ITEM that the recording lacks. */
static int
move_demand(ml_schedule *s, size_t item)
{
    const ml_workload *workload = s->workload;
    const ml_demand *demand = &workload->demands[item];
    bool whole = is_whole(demand);
    int error = 0;
    if (demand->born != ML_NO_EVENT && !is_recorded(workload, demand->born, item)) {
        error = move(s, demand->born, item, ML_STEP_ALLOC, RANK_BIRTHS);
    }
    if (error == 0 && demand->freed != ML_NO_EVENT &&
        !is_recorded(workload, demand->freed, item)) {
        error = move(s, demand->freed, item, whole ? ML_STEP_FREE : ML_STEP_REQUEST,
                     RANK_FREES);
    }
    if (error == 0 && demand->completed != ML_NO_EVENT && !whole &&
        !is_recorded(workload, demand->completed, item)) {
        error = move(s, demand->completed, item, ML_STEP_COMPLETE, RANK_FREES);
    }
    return error;
}

static int
move_marks(ml_schedule *s)
{
    const ml_workload *workload = s->workload;
    int error = 0;
    for (size_t i = 0; error == 0 && i < workload->mark_count; i++) {
        bool cache = workload->marks[i].kind != ML_MARK_OOM;
        error = move(s, workload->marks[i].event, i, ML_STEP_MARK,
                     cache ? RANK_CACHE : RANK_FAILURES);
    }
    return error;
}

/* The recorded step at EVENT; false: none. */
static bool
recorded_step(const ml_workload *workload, size_t event, ml_step *out)
{
    uint32_t number = workload->of_event[event];
    if (number == 0 || workload->demands[number - 1].bytes == 0) {
        return false;
    }
    const ml_demand *demand = &workload->demands[number - 1];
    *out = (ml_step){.event = (uint32_t)event, .item = number - 1};
    bool whole = is_whole(demand);
    if (event == demand->born) {
        out->kind = ML_STEP_ALLOC;
    }
    else if (event == demand->freed) {
        out->kind = whole ? ML_STEP_FREE : ML_STEP_REQUEST;
    }
    else if (event == demand->completed && !whole) {
        out->kind = ML_STEP_COMPLETE;
    }
    else {
        return false;
    }
    return true;
}

bool
ml_schedule_next(ml_schedule_walk *walk, ml_step *out)
{
    const ml_schedule *s = walk->schedule;
    size_t events = s->workload->trace->event_count;
    size_t moved = walk->next < s->count ? s->moved[walk->next].step.event : SIZE_MAX;
    for (; walk->event < moved && walk->event < events; walk->event++) {
        if (recorded_step(s->workload, walk->event, out)) {
            walk->event++;
            return true;
        }
    }
    if (moved != SIZE_MAX) {
        *out = s->moved[walk->next++].step;
    }
    return moved != SIZE_MAX;
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
    *schedule = (ml_schedule){.workload = workload};
    int error = move_marks(schedule);
    for (size_t i = 0; error == 0 && i < workload->count; i++) {
        const ml_demand *demand = &workload->demands[i];
        if (demand->bytes == 0) {
            continue;
        }
        error = is_sound(workload, demand) ? move_demand(schedule, i) : ML_EINVALID;
    }
    if (error == 0 && schedule->count > 1) {
        qsort(schedule->moved, schedule->count, sizeof(ml_moved_step), compare_moved);
    }
    if (error < 0) {
        ml_schedule_fini(schedule);
    }
    return error;
}

void
ml_schedule_fini(ml_schedule *schedule)
{
    ml_free(schedule->moved);
    *schedule = (ml_schedule){0};
}
