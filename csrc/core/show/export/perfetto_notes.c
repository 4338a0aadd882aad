/* Writes notes into a Perfetto trace.  See perfetto_notes.h.
 *
 * Most slices of a thread nest, and share its track.  A slice that crosses another's
 * end goes to a track of its own name below. */
#include "show/export/perfetto_notes.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct slice {
    uint64_t begin;
    uint64_t end;
    uint64_t number;
    size_t order;
    uint32_t name;
    uint32_t thread;
    uint8_t kind; /* kind of the begin: enum ml_note_kind */
    bool open;
} slice;

typedef struct perfetto_notes_work {
    ml_perfetto *trace;
    const ml_recording *part;
    uint32_t pid;
    slice *slices; /* owned */
    size_t count;
    size_t capacity;
    ml_intern by_number;
    uint32_t *waiting; /* owned; by id of by_number: the slice begun last */
    size_t waiting_capacity;
    uint64_t first;
    uint64_t last;
} perfetto_notes_work;

/* ---- Begins and ends ---- */

typedef struct sought_note {
    const perfetto_notes_work *w;
    uint64_t number;
    uint8_t kind;
} sought_note;

static int
add_slice(perfetto_notes_work *w, slice s)
{
    s.order = w->count;
    if (ml_grow((void **)&w->slices, &w->capacity, w->count + 1, sizeof(*w->slices)) <
        0) {
        return ML_ENOMEM;
    }
    w->slices[w->count++] = s;
    return 0;
}

static bool
is_number(const void *context, uint32_t id)
{
    const sought_note *a = context;
    const slice *s = &a->w->slices[a->w->waiting[id]];
    return s->number == a->number && s->kind == a->kind;
}

static int
begin_slice(perfetto_notes_work *w, const ml_note *note)
{
    uint32_t index = (uint32_t)w->count;
    int error = add_slice(w, (slice){.begin = note->time,
                                     .end = w->last,
                                     .number = note->values[0],
                                     .name = note->name,
                                     .thread = note->thread,
                                     .kind = note->kind,
                                     .open = true});
    sought_note a = {.w = w, .number = note->values[0], .kind = note->kind};
    uint64_t hash = ml_hash_u64(note->values[0] ^ (uint64_t)note->kind << 56);
    uint32_t id;
    if (error < 0) {
        return error;
    }
    if (ml_intern_find(&w->by_number, hash, is_number, &a, &id)) {
        w->waiting[id] = index;
        return 0;
    }
    if (ml_grow((void **)&w->waiting, &w->waiting_capacity, w->by_number.count + 1,
                sizeof(*w->waiting)) < 0) {
        return ML_ENOMEM;
    }
    w->waiting[w->by_number.count] = index;
    return ml_intern_add(&w->by_number, hash);
}

/* An end without a begin was open from the start. */
static int
end_slice(perfetto_notes_work *w, const ml_note *note)
{
    uint8_t kind = (uint8_t)(note->kind - 1);
    sought_note a = {.w = w, .number = note->values[0], .kind = kind};
    uint64_t hash = ml_hash_u64(note->values[0] ^ (uint64_t)kind << 56);
    uint32_t id;
    if (ml_intern_find(&w->by_number, hash, is_number, &a, &id) &&
        w->slices[w->waiting[id]].open) {
        slice *s = &w->slices[w->waiting[id]];
        s->end = note->time > s->begin ? note->time : s->begin;
        s->open = false;
        return 0;
    }
    return add_slice(w, (slice){.begin = w->first < note->time ? w->first : note->time,
                                .end = note->time,
                                .name = note->name,
                                .thread = note->thread,
                                .kind = kind});
}

static int
collect_slices(perfetto_notes_work *w)
{
    int error = 0;
    for (size_t i = 0; i < w->part->note_count && error == 0; i++) {
        const ml_note *note = &w->part->notes[i];
        if (note->kind == ML_NOTE_PHASE_BEGIN || note->kind == ML_NOTE_REGION_BEGIN) {
            error = begin_slice(w, note);
        }
        else if (note->kind == ML_NOTE_PHASE_END || note->kind == ML_NOTE_REGION_END) {
            error = end_slice(w, note);
        }
    }
    return error;
}

/* ---- Slices of a thread ---- */

/* A track, and the ends of its open slices. */
typedef struct lane {
    uint64_t track;
    uint64_t *ends; /* owned */
    size_t count;
    size_t capacity;
} lane;

/* No program has more crossing slices; any beyond are ended with those around them. */
#define MOST_LANES 16u

static int
compare_slices(const void *left, const void *right)
{
    const slice *a = left;
    const slice *b = right;
    if (a->thread != b->thread) {
        return a->thread < b->thread ? -1 : 1;
    }
    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    if (a->end != b->end) {
        return a->end > b->end ? -1 : 1;
    }
    return a->order < b->order ? -1 : a->order > b->order;
}

static void
end_until(ml_perfetto *trace, lane *l, uint64_t time)
{
    while (l->count > 0 && l->ends[l->count - 1] <= time) {
        ml_perfetto_event_begin(trace, ML_PERFETTO_END, l->track);
        ml_perfetto_event_end(trace, l->ends[--l->count]);
    }
}

static int
put_slice(perfetto_notes_work *w, lane *l, const slice *s)
{
    if (ml_grow((void **)&l->ends, &l->capacity, l->count + 1, sizeof(*l->ends)) < 0) {
        return ML_ENOMEM;
    }
    ml_perfetto_event_begin(w->trace, ML_PERFETTO_BEGIN, l->track);
    ml_perfetto_name_string(w->trace, s->name);
    ml_perfetto_text(w->trace, "kind",
                     s->kind == ML_NOTE_PHASE_BEGIN ? "phase" : "region");
    ml_perfetto_event_end(w->trace, s->begin);
    uint64_t around = l->count > 0 ? l->ends[l->count - 1] : UINT64_MAX;
    l->ends[l->count++] = s->end < around ? s->end : around;
    return 0;
}

/* The lane for S; the last of MOST_LANES takes all that fit nowhere. */
static lane *
lane_for(perfetto_notes_work *w, lane lanes[MOST_LANES], const slice *s,
         uint64_t thread_track)
{
    for (size_t i = 0; i < MOST_LANES; i++) {
        lane *l = &lanes[i];
        if (l->track == 0) {
            l->track =
                i == 0 ? thread_track
                       : ml_perfetto_track(w->trace, thread_track, "crossing slices");
        }
        end_until(w->trace, l, s->begin);
        if (l->count == 0 || s->end <= l->ends[l->count - 1] || i + 1 == MOST_LANES) {
            return l;
        }
    }
    return NULL;
}

/* Writes the COUNT slices of one thread. */
static int
put_thread(perfetto_notes_work *w, const slice *slices, size_t count, uint64_t track)
{
    lane lanes[MOST_LANES] = {{0}};
    int error = 0;
    for (size_t i = 0; i < count && error == 0; i++) {
        error = put_slice(w, lane_for(w, lanes, &slices[i], track), &slices[i]);
    }
    for (size_t i = 0; i < MOST_LANES; i++) {
        end_until(w->trace, &lanes[i], UINT64_MAX);
        ml_free(lanes[i].ends);
    }
    return error;
}

/* ---- All ---- */

static void
put_steps(perfetto_notes_work *w, uint64_t process)
{
    uint64_t track = 0;
    uint64_t begin = w->first;
    for (size_t i = 0; i < w->part->note_count; i++) {
        const ml_note *note = &w->part->notes[i];
        if (note->kind != ML_NOTE_STEP) {
            continue;
        }
        char name[40];
        snprintf(name, sizeof(name), "step %llu", (unsigned long long)note->values[0]);
        track = track != 0 ? track : ml_perfetto_track(w->trace, process, "steps");
        uint64_t start = begin < note->time ? begin : note->time;
        ml_perfetto_event_begin(w->trace, ML_PERFETTO_BEGIN, track);
        ml_perfetto_name(w->trace, name);
        ml_perfetto_event_end(w->trace, start);
        ml_perfetto_event_begin(w->trace, ML_PERFETTO_END, track);
        ml_perfetto_event_end(w->trace, note->time);
        begin = note->time;
    }
}

static void
put_marks(perfetto_notes_work *w, uint64_t process)
{
    uint64_t track = 0;
    for (size_t i = 0; i < w->part->note_count; i++) {
        const ml_note *note = &w->part->notes[i];
        if (note->kind == ML_NOTE_MARK) {
            track = track != 0 ? track : ml_perfetto_track(w->trace, process, "marks");
            ml_perfetto_event_begin(w->trace, ML_PERFETTO_INSTANT, track);
            ml_perfetto_name_string(w->trace, note->name);
            ml_perfetto_event_end(w->trace, note->time);
        }
    }
}

static void
find_times(perfetto_notes_work *w)
{
    const ml_recording *part = w->part;
    w->first = UINT64_MAX;
    for (size_t d = 0; d < part->device_count; d++) {
        const ml_device_trace *trace = &part->devices[d];
        if (trace->event_count > 0) {
            uint64_t first = ml_events_time(&trace->events, 0);
            uint64_t last = ml_events_time(&trace->events, trace->event_count - 1);
            w->first = first < w->first ? first : w->first;
            w->last = last > w->last ? last : w->last;
        }
    }
    if (part->note_count > 0) {
        uint64_t first = part->notes[0].time;
        uint64_t last = part->notes[part->note_count - 1].time;
        w->first = first < w->first ? first : w->first;
        w->last = last > w->last ? last : w->last;
    }
}

int
ml_perfetto_put_notes(ml_perfetto *trace, const ml_recording *part, uint32_t pid,
                      uint64_t process)
{
    perfetto_notes_work w = {.trace = trace, .part = part, .pid = pid};
    find_times(&w);
    int error = collect_slices(&w);
    if (error == 0 && w.count > 0) {
        qsort(w.slices, w.count, sizeof(*w.slices), compare_slices);
    }
    for (size_t i = 0, next; i < w.count && error == 0; i = next) {
        uint32_t thread = w.slices[i].thread;
        next = i;
        while (next < w.count && w.slices[next].thread == thread) {
            next++;
        }
        error = put_thread(&w, &w.slices[i], next - i,
                           ml_perfetto_thread(trace, pid, thread));
    }
    if (error == 0) {
        put_steps(&w, process);
        put_marks(&w, process);
    }
    ml_free(w.slices);
    ml_free(w.waiting);
    ml_intern_fini(&w.by_number);
    return error;
}
