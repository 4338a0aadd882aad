/* Makes a timeline.  See timeline.h. */
#include "show/draw/timeline.h"

#include "analysis/analysis.h"
#include "analysis/lifetimes/lifetimes_walk.h"
#include "base/base.h"

typedef struct timeline_work {
    ml_timeline *timeline;
    const ml_analysis *analysis; /* borrowed */
    ml_lifetimes_walk walk;
    uint64_t of[ML_CATEGORY_COUNT]; /* now */
    size_t column;
} timeline_work;

static void
change(void *context, const ml_lifetime *row, bool begins)
{
    timeline_work *w = context;
    size_t index = ml_lifetimes_index(&w->analysis->lifetimes, row);
    uint64_t *bytes = &w->of[ml_analysis_category(w->analysis, index)];
    *bytes = begins ? *bytes + row->bytes : *bytes - row->bytes;
}

/* The current column takes the current totals if they are larger. */
static void
raise_column(timeline_work *w, uint64_t time)
{
    const ml_lifetimes_walk *now = &w->walk;
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

/* Starts the columns up to LAST with the current totals. */
static void
enter(timeline_work *w, size_t last)
{
    while (w->column < last) {
        w->column++;
        uint64_t time = w->timeline->start + w->column * w->timeline->column_ns;
        w->timeline->columns[w->column].time = time;
        raise_column(w, time);
    }
}

static void
follow_events(timeline_work *w, const ml_device_trace *trace)
{
    ml_timeline *t = w->timeline;
    uint64_t time = t->start;
    ml_lifetimes_walk_begin(&w->walk, &w->analysis->lifetimes, change, w);
    t->columns[0].time = t->start;
    raise_column(w, t->start);
    for (size_t i = 0; i < trace->event_count; i++) {
        uint64_t now = ml_events_time(&trace->events, i);
        time = now > time ? now : time;
        enter(w, (size_t)((time - t->start) / t->column_ns));
        ml_lifetimes_walk_next(&w->walk);
        raise_column(w, time);
    }
    t->misfits = w->analysis->fit.misfits;
}

static int
make_columns(ml_timeline *t, const ml_device_trace *trace, size_t most)
{
    t->start = trace->event_count > 0 ? ml_events_time(&trace->events, 0) : 0;
    uint64_t end = t->start;
    for (size_t i = 0; i < trace->event_count; i++) {
        uint64_t time = ml_events_time(&trace->events, i);
        end = time > end ? time : end;
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
    timeline_work w = {0};
    int error = ml_analysis_of(recording, device, &w.analysis);
    if (error == 0) {
        error = ml_analysis_judge(w.analysis);
    }
    if (error < 0) {
        return error;
    }
    const ml_device_trace *trace = &recording->devices[device];
    w.timeline = ml_alloc_zeroed(1, sizeof(*w.timeline));
    error = w.timeline == NULL ? ML_ENOMEM : make_columns(w.timeline, trace, most);
    if (error == 0) {
        follow_events(&w, trace);
        find_peaks(w.timeline);
        *out = w.timeline;
    }
    else {
        ml_timeline_free(w.timeline);
    }
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
