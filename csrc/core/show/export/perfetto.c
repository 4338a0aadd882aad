/* Writes a recording as a Perfetto trace.  See perfetto.h.
 *
 * Slices of one track must be disjoint or nested, but allocations overlap freely.
 * Each one takes an unused track of a common name, and the viewer merges tracks of
 * one name. */
#include "show/export/perfetto.h"

#include <stdio.h>
#include <string.h>

#include "show/export/perfetto_notes.h"
#include "show/export/perfetto_packets.h"
#include "show/page/page_device.h"

#define NO_LANE UINT32_MAX

typedef struct device_work {
    ml_perfetto *trace;
    ml_allocation_kinds kinds; /* of the shown allocations */
    ml_page_device device;
    uint64_t track;
    uint64_t time;    /* of the last event, unix ns; never decreases */
    char name[160];   /* of the allocations' tracks */
    uint32_t *lanes;  /* owned; by row; NO_LANE: not shown */
    uint64_t *tracks; /* owned; by lane */
    size_t lane_count;
    size_t lane_capacity;
    uint32_t *unused; /* owned; lanes */
    size_t unused_count;
    size_t unused_capacity;
    int error;
} device_work;

/* ---- Which allocations are shown ---- */

/* The largest come first; among allocations of one size, the earlier ones. */
#define KEPT (ML_PERFETTO_ALLOCATIONS + 1u)
#define DIGIT_BITS 16u
#define DIGITS ((size_t)1 << DIGIT_BITS)

/* The bits of all sizes. */
static uint64_t
bits_of(const ml_lifetimes *rows)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < rows->count; i++) {
        bits |= rows->rows[i].bytes;
    }
    return bits;
}

/* The bytes of the KEPT-th largest of ROWS, which are as many or more: digit by digit, from
 * the highest.  *AS_LARGE: how many of as many bytes come before it.  COUNTS has room for
 * DIGITS. */
static uint64_t
kept_bytes(const ml_lifetimes *rows, uint32_t *counts, size_t *as_large)
{
    uint64_t found = 0;
    uint64_t known = 0; /* bits of FOUND */
    uint64_t bits = bits_of(rows);
    size_t sought = KEPT;
    for (unsigned shift = 64 - DIGIT_BITS; known != UINT64_MAX; shift -= DIGIT_BITS) {
        if ((bits >> shift & (DIGITS - 1)) == 0) {
            known |= (uint64_t)(DIGITS - 1) << shift;
            continue;
        }
        memset(counts, 0, DIGITS * sizeof(*counts));
        for (size_t i = 0; i < rows->count; i++) {
            uint64_t bytes = rows->rows[i].bytes;
            counts[bytes >> shift & (DIGITS - 1)] += (bytes & known) == found;
        }
        size_t digit = DIGITS - 1;
        for (; counts[digit] < sought; digit--) {
            sought -= counts[digit];
        }
        found |= (uint64_t)digit << shift;
        known |= (uint64_t)(DIGITS - 1) << shift;
    }
    *as_large = sought - 1;
    return found;
}

/* Shows the ML_PERFETTO_ALLOCATIONS first of them: those with more than BYTES, and the first
 * AS_LARGE of as many. */
static void
show_largest(device_work *w, uint64_t bytes, size_t as_large)
{
    const ml_lifetimes *rows = w->device.rows.lifetimes;
    for (size_t i = 0; i < rows->count; i++) {
        bool shown = rows->rows[i].bytes > bytes;
        if (rows->rows[i].bytes == bytes && as_large > 0) {
            as_large--;
            shown = true;
        }
        w->lanes[i] = shown ? 0 : NO_LANE;
    }
}

static int
choose_allocations(device_work *w)
{
    const ml_lifetimes *rows = w->device.rows.lifetimes;
    w->lanes = ml_alloc_zeroed(rows->count + 1, sizeof(*w->lanes));
    if (w->lanes == NULL) {
        return ML_ENOMEM;
    }
    snprintf(w->name, sizeof(w->name), "allocations");
    if (rows->count < KEPT) {
        return 0;
    }
    uint32_t *counts = ml_alloc(DIGITS * sizeof(*counts));
    if (counts == NULL) {
        return ML_ENOMEM;
    }
    size_t as_large;
    uint64_t bytes = kept_bytes(rows, counts, &as_large);
    ml_free(counts);
    show_largest(w, bytes, as_large);
    snprintf(w->name, sizeof(w->name),
             "allocations: the %u largest; the other %zu have at most %llu bytes each",
             ML_PERFETTO_ALLOCATIONS, rows->count - ML_PERFETTO_ALLOCATIONS,
             (unsigned long long)bytes);
    return 0;
}

static uint32_t
take_lane(device_work *w)
{
    if (w->unused_count > 0) {
        return w->unused[--w->unused_count];
    }
    size_t count = w->lane_count + 1;
    if (ml_grow((void **)&w->tracks, &w->lane_capacity, count, sizeof(*w->tracks)) <
            0 ||
        ml_grow((void **)&w->unused, &w->unused_capacity, count, sizeof(*w->unused)) <
            0) {
        w->error = ML_ENOMEM;
        return NO_LANE;
    }
    w->tracks[w->lane_count] = ml_perfetto_track(w->trace, w->track, w->name);
    return (uint32_t)w->lane_count++;
}

/* ---- What is written of one ---- */

static void
put_facts(device_work *w, size_t index, const ml_allocation_kind *kind)
{
    ml_perfetto *trace = w->trace;
    const ml_allocation_rows *rows = &w->device.rows;
    ml_earlier_block of = ml_lifetimes_request(rows->lifetimes, index);
    char name[48];
    snprintf(name, sizeof(name), "b%llx_%u", (unsigned long long)of.addr,
             rows->ordinals[index]);
    ml_perfetto_text(trace, "name", name);
    ml_perfetto_figure(trace, "bytes", rows->lifetimes->rows[index].bytes);
    ml_perfetto_figure(trace, "requested_bytes", of.size);
    ml_perfetto_address(trace, "address", of.addr);
    ml_perfetto_text(trace, "category", ml_category_text(kind->category));
    ml_perfetto_text(trace, "phase", ml_phase_text(kind->phase));
    ml_perfetto_figure(trace, "stream", w->kinds.streams[kind->stream]);
    if (kind->module != 0) {
        ml_perfetto_string(trace, "module", kind->module);
    }
    if (kind->name != 0) {
        ml_perfetto_string(trace, "owner", kind->name);
    }
    if (kind->stack != 0) {
        ml_perfetto_stack(trace, "stack", kind->stack);
    }
}

static void
change(void *context, const ml_lifetime *row, bool begins)
{
    device_work *w = context;
    size_t index = ml_lifetimes_index(w->device.rows.lifetimes, row);
    uint32_t *lane = &w->lanes[index];
    if (*lane == NO_LANE || w->error < 0) {
        return;
    }
    if (!begins) {
        ml_perfetto_event_begin(w->trace, ML_PERFETTO_END, w->tracks[*lane]);
        ml_perfetto_event_end(w->trace, w->time);
        w->unused[w->unused_count++] = *lane;
        *lane = NO_LANE;
        return;
    }
    *lane = take_lane(w);
    if (*lane == NO_LANE) {
        return;
    }
    uint32_t number;
    w->error = ml_allocation_row_kind(&w->device.rows, index, &w->kinds, &number);
    if (w->error < 0) {
        return;
    }
    const ml_allocation_kind *kind = &w->kinds.list[number];
    uint32_t frame = w->kinds.lines[kind->line].frame;
    ml_perfetto_event_begin(w->trace, ML_PERFETTO_BEGIN, w->tracks[*lane]);
    if (frame == 0) {
        ml_perfetto_name(w->trace, ml_category_text(kind->category));
    }
    else {
        ml_perfetto_name_frame(w->trace, frame);
    }
    put_facts(w, index, kind);
    ml_perfetto_event_end(w->trace, w->time);
}

/* ---- The device ---- */

typedef struct counter {
    uint64_t track;
    uint64_t value;
    bool told;
} counter;

static void
count(device_work *w, counter *c, uint64_t value)
{
    if (!c->told || c->value != value) {
        ml_perfetto_count(w->trace, c->track, w->time, value);
        c->told = true;
        c->value = value;
    }
}

static void
put_oom(device_work *w, size_t index)
{
    ml_event oom = ml_events_at(&w->device.rows.trace->events, index);
    const ml_event *event = &oom;
    ml_perfetto_event_begin(w->trace, ML_PERFETTO_INSTANT, w->track);
    ml_perfetto_name(w->trace, "out of memory");
    ml_perfetto_figure(w->trace, "requested_bytes", event->size);
    ml_perfetto_figure(w->trace, "free_bytes", event->addr);
    if (event->stack != 0) {
        ml_perfetto_stack(w->trace, "stack", event->stack);
    }
    ml_perfetto_event_end(w->trace, w->time);
}

static void
put_events(device_work *w)
{
    const ml_device_trace *trace = w->device.rows.trace;
    counter allocated = {.track = ml_perfetto_counter(w->trace, w->track, "allocated")};
    counter active = {.track = ml_perfetto_counter(w->trace, w->track, "active")};
    counter reserved = {.track = ml_perfetto_counter(w->trace, w->track, "reserved")};
    uint64_t times[ML_EVENTS_CHUNK];
    size_t events = trace->event_count;
    size_t oom = ml_events_find_action(&trace->events, events, 0, ML_ACTION_OOM);
    ml_lifetimes_walk walk;
    w->time = events > 0 ? ml_events_time(&trace->events, 0) : 0;
    ml_lifetimes_walk_begin(&walk, w->device.rows.lifetimes, change, w);
    for (size_t i = 0; i <= events && w->trace->error == 0; i++) {
        count(w, &allocated, walk.allocated);
        count(w, &active, walk.active);
        count(w, &reserved, walk.reserved);
        if (i < events) {
            size_t at = i % ML_EVENTS_CHUNK;
            if (at == 0) {
                ml_events_get_column(&trace->events, events, i, ML_EVENT_MEMBER_time,
                                     times);
            }
            w->time = times[at] > w->time ? times[at] : w->time;
            if (i == oom) {
                put_oom(w, i);
                oom =
                    ml_events_find_action(&trace->events, events, i + 1, ML_ACTION_OOM);
            }
            ml_lifetimes_walk_next(&walk);
        }
    }
}

static int
put_device(ml_perfetto *trace, uint64_t process, const ml_recording *part, size_t own,
           const char *name)
{
    device_work w = {.trace = trace, .device = {.part = part, .own = own}};
    int error = ml_allocation_kinds_init(&w.kinds, part);
    if (error == 0) {
        error = ml_allocation_rows_init(&w.device.rows, NULL, part, own);
    }
    if (error == 0) {
        error = choose_allocations(&w);
    }
    if (error == 0) {
        w.track = ml_perfetto_track(trace, process, name);
        put_events(&w);
        error = w.error;
    }
    ml_page_device_fini(&w.device);
    ml_allocation_kinds_fini(&w.kinds);
    ml_free(w.lanes);
    ml_free(w.tracks);
    ml_free(w.unused);
    return error;
}

/* ---- Processes ---- */

/* A number that no other process has in this trace; the system's own if known. */
static uint32_t
pid_of(const ml_rank *rank, size_t index)
{
    bool known = rank != NULL && rank->pid > 0 && rank->pid < INT32_MAX;
    return known ? (uint32_t)rank->pid : (uint32_t)index + 1;
}

static int
put_process(ml_perfetto *trace, const ml_recording *recording, const ml_recording *part,
            const ml_rank *rank, size_t index)
{
    char name[160];
    bool merged = part != recording;
    snprintf(name, sizeof(name), "memlab");
    if (merged || (rank != NULL && rank->rank >= 0)) {
        snprintf(name, sizeof(name), "%s %d", ml_rank_word(rank), rank->rank);
    }
    /* Two hosts may use the same number. */
    uint32_t pid = pid_of(merged ? NULL : rank, index);
    uint64_t process = ml_perfetto_process(trace, pid, name);
    int error = ml_perfetto_put_notes(trace, part, pid, process);
    size_t first = merged ? rank->first_device : 0;
    for (size_t d = 0; d < part->device_count && error == 0; d++) {
        ml_recording_device_name(recording, first + d, name, sizeof(name));
        error = put_device(trace, process, part, d, name);
    }
    return error;
}

/* The earliest time shown, where the viewer's axis begins. */
static uint64_t
first_time(const ml_recording *recording)
{
    uint64_t first = UINT64_MAX;
    for (size_t d = 0; d < recording->device_count; d++) {
        const ml_device_trace *trace = &recording->devices[d];
        if (trace->event_count > 0 && ml_events_time(&trace->events, 0) < first) {
            first = ml_events_time(&trace->events, 0);
        }
    }
    return first == UINT64_MAX ? 0 : first;
}

int
ml_perfetto_write(const ml_recording *recording, ml_sink sink, void *context)
{
    ml_perfetto trace;
    int error = ml_perfetto_begin(&trace, recording, sink, context);
    if (error == 0) {
        ml_perfetto_clock(&trace, first_time(recording));
        const ml_rank *ranks = recording->ranks;
        if (!ml_recording_is_merged(recording)) {
            error = put_process(&trace, recording, recording,
                                recording->rank_count > 0 ? ranks : NULL, 0);
        }
        else {
            for (size_t i = 0; i < recording->rank_count && error == 0; i++) {
                error = put_process(&trace, recording, ranks[i].part, &ranks[i], i);
            }
        }
    }
    int written = ml_perfetto_end(&trace);
    ml_perfetto_fini(&trace);
    return error < 0 ? error : written;
}
