/* A timeline.  See timeline.h.
 *
 * Sums by category follow the blocks that the replay has: what an event frees is looked
 * up there before it is applied.  Where events do not fit, the replay's total is right
 * and the difference is nobody's. */
#include "show/draw/timeline.h"

#include "analysis/analysis.h"
#include "base/base.h"
#include "ledger/replay/replay.h"

typedef struct work {
    ml_timeline *timeline;
    const ml_analysis *analysis; /* borrowed */
    ml_replay *replay;
    uint64_t of[ML_CATEGORY_COUNT]; /* now */
    uint64_t sum;                   /* of these */
    size_t column;
} work;

static void
add(work *w, unsigned category, uint64_t bytes)
{
    w->of[category] += bytes;
    w->sum += bytes;
}

static void
take(work *w, unsigned category, uint64_t bytes)
{
    uint64_t there = w->of[category];
    uint64_t taken = bytes < there ? bytes : there;
    w->of[category] -= taken;
    w->sum -= taken;
}

/* Makes the categories add up to the replay's total. */
static void
settle(work *w)
{
    uint64_t allocated = ml_replay_totals(w->replay)->allocated;
    if (w->sum < allocated) {
        add(w, ML_CATEGORY_UNKNOWN, allocated - w->sum);
    }
    for (unsigned i = ML_CATEGORY_COUNT; i-- > 0 && w->sum > allocated;) {
        take(w, i, w->sum - allocated);
    }
}

static unsigned
category_at(const work *w, const ml_ledger_place *place)
{
    return ml_analysis_category(w->analysis, place->block.addr, place->birth);
}

/* The block that EVENT, which is not applied yet, ends or takes the place of. */
static void
take_ended(work *w, const ml_event *event)
{
    ml_ledger_place place;
    if (event->action <= ML_ACTION_FREE_COMPLETED &&
        ml_ledger_locate(ml_replay_ledger(w->replay), event->addr, &place) &&
        place.block.state == ML_BLOCK_ALLOCATED &&
        (event->action == ML_ACTION_ALLOC || place.block.addr == event->addr)) {
        take(w, category_at(w, &place), place.block.size);
    }
}

/* Its column becomes NOW's where that has more. */
static void
look(work *w, uint64_t time)
{
    const ml_totals *now = ml_replay_totals(w->replay);
    ml_timeline_column *column = &w->timeline->columns[w->column];
    if (column->reserved < now->reserved) {
        column->reserved = now->reserved;
    }
    if (column->allocated < now->allocated) {
        column->time = time;
        column->allocated = now->allocated;
        for (size_t i = 0; i < ML_CATEGORY_COUNT; i++) {
            column->of[i] = w->of[i];
        }
    }
}

/* The columns up to LAST begin, each with what there is. */
static void
enter(work *w, size_t last)
{
    while (w->column < last) {
        w->column++;
        uint64_t time = w->timeline->start + w->column * w->timeline->column_ns;
        w->timeline->columns[w->column].time = time;
        look(w, time);
    }
}

static void
begin(work *w)
{
    size_t count;
    const ml_block *blocks = ml_replay_initial(w->replay, &count);
    for (size_t i = 0; i < count; i++) {
        if (blocks[i].state == ML_BLOCK_ALLOCATED) {
            add(w, ml_analysis_category(w->analysis, blocks[i].addr, ML_BEFORE_EVENTS),
                blocks[i].size);
        }
    }
    settle(w);
    w->timeline->columns[0].time = w->timeline->start;
    look(w, w->timeline->start);
}

static void
follow(work *w, const ml_device_trace *trace)
{
    ml_timeline *t = w->timeline;
    uint64_t time = t->start;
    begin(w);
    for (size_t i = 0; i < trace->event_count; i++) {
        const ml_event *event = &trace->events[i];
        time = event->time > time ? event->time : time;
        enter(w, (size_t)((time - t->start) / t->column_ns));
        take_ended(w, event);
        const ml_event *applied = ml_replay_next(w->replay);
        if (event->action == ML_ACTION_ALLOC) {
            add(w, ml_analysis_category(w->analysis, event->addr, i),
                applied->block_bytes);
        }
        settle(w);
        look(w, time);
    }
    t->misfits = w->analysis->fit.misfits;
}

static int
make_columns(ml_timeline *t, const ml_device_trace *trace, size_t most)
{
    t->start = trace->event_count > 0 ? trace->events[0].time : 0;
    uint64_t end = t->start;
    for (size_t i = 0; i < trace->event_count; i++) {
        end = trace->events[i].time > end ? trace->events[i].time : end;
    }
    t->span_ns = end - t->start;
    t->column_ns = t->span_ns / most + 1;
    t->column_count = (size_t)(t->span_ns / t->column_ns) + 1;
    t->columns = ml_alloc_zeroed(t->column_count, sizeof(*t->columns));
    return t->columns == NULL ? ML_ENOMEM : 0;
}

static void
find_peaks(ml_timeline *t)
{
    for (size_t i = 0; i < t->column_count; i++) {
        const ml_timeline_column *column = &t->columns[i];
        if (column->allocated > t->columns[t->peak].allocated) {
            t->peak = i;
        }
        if (column->reserved > t->max_reserved) {
            t->max_reserved = column->reserved;
        }
    }
}

int
ml_timeline_new(const ml_recording *recording, size_t device, size_t most,
                ml_timeline **out)
{
    work w = {0};
    int error = ml_analysis_of(recording, device, &w.analysis);
    if (error == 0) {
        error = ml_analysis_judge(w.analysis);
    }
    if (error == 0) {
        error = ml_analysis_replay(w.analysis, 0, &w.replay);
    }
    if (error < 0) {
        return error;
    }
    const ml_device_trace *trace = &recording->devices[device];
    w.timeline = ml_alloc_zeroed(1, sizeof(*w.timeline));
    error = w.timeline == NULL ? ML_ENOMEM : make_columns(w.timeline, trace, most);
    if (error == 0) {
        follow(&w, trace);
        find_peaks(w.timeline);
        *out = w.timeline;
    }
    else {
        ml_timeline_free(w.timeline);
    }
    ml_replay_free(w.replay);
    return error;
}

void
ml_timeline_free(ml_timeline *timeline)
{
    if (timeline != NULL) {
        ml_free(timeline->columns);
        ml_free(timeline);
    }
}
