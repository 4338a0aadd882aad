/* A device in detail: its events in chunks.  Each chunk has the rows that it needs, and
 * each kind's bytes times time.  See page_device.h.
 *
 * A chunk does not have what follows from its rows: the row of most events, and the bytes
 * allocated and active after each. */
#include <string.h>

#include "base/varint.h"
#include "show/page/page_device.h"
#include "show/text/json.h"

#define MOST ML_PAGE_CHUNK_EVENTS
_Static_assert(MOST % ML_EVENTS_CHUNK == 0, "columns are read by chunks of events");
_Static_assert(ML_EVENT_BACKWARD == 1, "it is written as 0 or 1");

/* What a kind's rows have in a chunk. */
typedef struct tally {
    uint64_t allocs;
    ml_wide byte_us;
} tally;

typedef struct chunk_work {
    ml_page_device *device; /* borrowed */
    size_t first;           /* the chunk's first event */
    size_t count;           /* its events */
    uint32_t *carried;      /* owned; rows live before the chunk, ascending */
    size_t carried_count;
    size_t fresh;    /* the first row born in the chunk */
    size_t next;     /* the first row born after it */
    size_t reserve;  /* index of the next change of reserved bytes */
    uint64_t time;   /* us; after the last event that was read */
    uint64_t *times; /* owned; us, after each event of the chunk */
    uint32_t *rows;  /* owned; by event, 1 + the last row that changes there */
    tally *tallies;  /* owned; by kind */
} chunk_work;

/* ---- The rows of a chunk ---- */

/* Sets the rows live after the events before the chunk; the first chunk has all from
 * before.  Then takes those that are born in it. */
static void
take_rows(chunk_work *w)
{
    const ml_lifetimes *lifetimes = w->device->rows.lifetimes;
    const ml_lifetime *rows = lifetimes->rows;
    if (w->first == 0) {
        w->carried_count = lifetimes->earlier_count;
        for (size_t i = 0; i < w->carried_count; i++) {
            w->carried[i] = (uint32_t)i;
        }
        w->next = w->carried_count;
    }
    else {
        size_t kept = 0;
        for (size_t i = 0; i < w->carried_count; i++) {
            if (rows[w->carried[i]].end > w->first) {
                w->carried[kept++] = w->carried[i];
            }
        }
        for (size_t i = w->fresh; i < w->next; i++) {
            if (rows[i].end > w->first) {
                w->carried[kept++] = (uint32_t)i;
            }
        }
        w->carried_count = kept;
    }
    w->fresh = w->next;
    while (w->next < lifetimes->count && rows[w->next].start <= w->first + w->count) {
        w->next++;
    }
}

/* 1 + the index of ROW in the chunk. */
static size_t
place_of(const chunk_work *w, uint32_t row)
{
    if (row >= w->fresh) {
        return w->carried_count + (row - w->fresh) + 1;
    }
    size_t low;
    ML_SEARCH(low, w->carried_count, w->carried[low] < row);
    return low + 1;
}

/* ---- Its events ---- */

/* Sets the times, which never decrease. */
static void
read_times(chunk_work *w)
{
    for (size_t i = 0; i < w->count; i += ML_EVENTS_CHUNK) {
        size_t count = ml_page_read_times(w->device, w->first + i, w->times + i);
        for (size_t k = i; k < i + count; k++) {
            w->time = w->times[k] > w->time ? w->times[k] : w->time;
            w->times[k] = w->time;
        }
    }
}

/* MOMENT, counted from that before the chunk's first event; 0 or more than its events: it
 * is in another chunk. */
static size_t
moment_of(const chunk_work *w, uint32_t moment)
{
    return moment > w->first ? moment - w->first : 0;
}

static void
change_at(chunk_work *w, uint32_t moment, uint32_t row)
{
    size_t at = moment_of(w, moment);
    if (at - 1 < w->count) {
        w->rows[at - 1] = row + 1;
    }
}

/* Adds what ROW has in the chunk, whose events end at the time UNTIL. */
static void
take_row(chunk_work *w, uint32_t row, uint64_t until)
{
    const ml_lifetime *of = &w->device->rows.lifetimes->rows[row];
    change_at(w, of->start, row);
    change_at(w, of->requested, row);
    change_at(w, of->end, row);
    size_t start = moment_of(w, of->start);
    size_t end = moment_of(w, of->requested);
    if (end > start) {
        uint64_t since = start > 0 ? w->times[start - 1] : w->times[0];
        uint64_t time = end <= w->count ? w->times[end - 1] : until;
        w->tallies[w->device->rows.kinds[row]].byte_us +=
            (ml_wide)of->bytes * (time - since);
    }
}

/* The bits of MASK in MEMBER of the chunk's events, to TO; returns its end. */
static uint8_t *
write_member(uint8_t *to, const chunk_work *w, unsigned member, uint64_t mask)
{
    const ml_device_trace *trace = w->device->rows.trace;
    uint64_t values[ML_EVENTS_CHUNK];
    for (size_t i = 0; i < w->count; i += ML_EVENTS_CHUNK) {
        size_t count = ml_events_get_column(&trace->events, trace->event_count,
                                            w->first + i, member, values);
        for (size_t k = 0; k < count && i + k < w->count; k++) {
            to += ml_varint_write(to, values[k] & mask);
        }
    }
    return to;
}

/* Facts of an event that write_events writes. */
#define EVENT_ROOM (4 * (ML_VARINT_ROOM + 1))

static void
write_events(ml_buffer *out, const chunk_work *w)
{
    if (!ml_buffer_reserve(out, w->count * EVENT_ROOM)) {
        return;
    }
    uint8_t *to = (uint8_t *)out->bytes + out->length;
    to = write_member(to, w, ML_EVENT_MEMBER_action, UINT64_MAX);
    uint64_t last = 0;
    for (size_t i = 0; i < w->count; i++) {
        to += ml_varint_write_change(to, last, w->times[i]);
        last = w->times[i];
    }
    to = write_member(to, w, ML_EVENT_MEMBER_stack, UINT64_MAX);
    to = write_member(to, w, ML_EVENT_MEMBER_flags, ML_EVENT_BACKWARD);
    out->length = (size_t)(to - (uint8_t *)out->bytes);
}

/* The events that are of another row than the last that changes there. */
static void
write_exceptions(ml_buffer *out, const chunk_work *w)
{
    const uint32_t *own = w->device->rows.lifetimes->of_event + w->first;
    size_t count = 0;
    for (size_t i = 0; i < w->count; i++) {
        count += own[i] != w->rows[i];
    }
    ml_varint_put(out, count);
    for (size_t i = 0, before = 0; i < w->count && count > 0; i++) {
        if (own[i] != w->rows[i]) {
            ml_varint_put_change(out, before, i);
            before = i;
        }
    }
    for (size_t i = 0; i < w->count && count > 0; i++) {
        if (own[i] != w->rows[i]) {
            ml_varint_put(out, own[i] != 0 ? place_of(w, own[i] - 1) : 0);
        }
    }
}

/* Reserved bytes where they change; without segments they are the allocated ones. */
static void
write_reserved(ml_buffer *out, chunk_work *w, uint64_t reserved)
{
    const ml_lifetimes *lifetimes = w->device->rows.lifetimes;
    const ml_reserved_change *changes = lifetimes->reserved;
    if (lifetimes->reserved_count == 0) {
        ml_varint_put(out, 0);
        return;
    }
    size_t first = w->reserve;
    while (first < lifetimes->reserved_count && changes[first].moment <= w->first) {
        first++;
    }
    size_t end = first;
    while (end < lifetimes->reserved_count &&
           changes[end].moment <= w->first + w->count) {
        end++;
    }
    w->reserve = end;
    ml_varint_put(out, end - first + 1);
    uint64_t before = 0;
    for (size_t i = first; i < end; i++) {
        uint64_t event = changes[i].moment - 1 - w->first;
        ml_varint_put_change(out, before, event);
        before = event;
    }
    for (size_t i = first; i < end; i++) {
        ml_varint_put_change(out, reserved, changes[i].bytes);
        reserved = changes[i].bytes;
    }
}

/* The remaining facts follow from the rows. */
static int
write_bare_events(ml_buffer *out, const chunk_work *w)
{
    const ml_events *events = &w->device->rows.trace->events;
    const uint32_t *own = w->device->rows.lifetimes->of_event + w->first;
    uint64_t before = 0;
    int error = 0;
    for (size_t i = 0; i < w->count; i++) {
        if (own[i] == 0) {
            uint64_t high = ml_events_addr(events, w->first + i) >> 32;
            ml_varint_put_change(out, before, high);
            before = high;
        }
    }
    for (size_t i = 0; i < w->count; i++) {
        if (own[i] == 0) {
            ml_varint_put(out, (uint32_t)ml_events_addr(events, w->first + i));
        }
    }
    for (size_t i = 0; i < w->count; i++) {
        if (own[i] == 0) {
            uint64_t size = ml_events_size(events, w->first + i);
            ml_page_note_value(w->device->blobs, size);
            ml_varint_put(out, size);
        }
    }
    for (size_t i = 0; i < w->count && error == 0; i++) {
        if (own[i] == 0) {
            uint32_t stream = 0;
            error = ml_allocation_kinds_stream(
                w->device->kinds, ml_events_stream(events, w->first + i), &stream);
            ml_varint_put(out, stream);
        }
    }
    return error;
}

/* ---- Chunks ---- */

/* Moves on to chunk INDEX: its rows, its times, and what its kinds have in it. */
static void
take_chunk(chunk_work *w, size_t index)
{
    const ml_page_device *device = w->device;
    size_t events = device->rows.trace->event_count;
    w->first = index * MOST;
    w->count = events - w->first < MOST ? events - w->first : MOST;
    take_rows(w);
    read_times(w);
    memset(w->rows, 0, w->count * sizeof(*w->rows));
    memset(w->tallies, 0, device->groups.kind_count * sizeof(*w->tallies));
    uint64_t until =
        index + 1 < device->chunk_count ? device->chunks[index + 1].time : w->time;
    for (size_t i = 0; i < w->carried_count; i++) {
        take_row(w, w->carried[i], until);
    }
    for (size_t i = w->fresh; i < w->next; i++) {
        take_row(w, (uint32_t)i, until);
        w->tallies[device->rows.kinds[i]].allocs++;
    }
}

static int
write_chunk(chunk_work *w, const ml_page_chunk *chunk)
{
    ml_buffer *out = ml_page_blobs_add(w->device->blobs);
    if (out == NULL) {
        return ML_ENOMEM;
    }
    ml_varint_put(out, w->count);
    ml_varint_put(out, w->carried_count);
    ml_varint_put(out, w->next - w->fresh);
    ml_varint_put(out, w->fresh);
    ml_varint_put(out, chunk->allocated);
    ml_varint_put(out, chunk->active);
    ml_varint_put(out, chunk->reserved);
    ml_page_write_rows(out, w->device, w->carried, 0, w->carried_count);
    ml_page_write_rows(out, w->device, NULL, w->fresh, w->next - w->fresh);
    write_events(out, w);
    write_exceptions(out, w);
    write_reserved(out, w, chunk->reserved);
    int error = write_bare_events(out, w);
    return error != 0 ? error : out->error;
}

/* Bytes times time from the chunk's first event to the next one's. */
static int
write_integral(ml_buffer *out, const chunk_work *w)
{
    size_t kinds = w->device->groups.kind_count;
    size_t used = 0;
    for (size_t i = 0; i < kinds; i++) {
        used += w->tallies[i].allocs != 0 || w->tallies[i].byte_us != 0;
    }
    ml_varint_put(out, used);
    for (unsigned column = 0; column < 3; column++) {
        size_t before = 0;
        for (size_t i = 0; i < kinds; i++) {
            const tally *of = &w->tallies[i];
            if (of->allocs == 0 && of->byte_us == 0) {
                continue;
            }
            switch (column) {
            case 0:
                ml_varint_put_change(out, before, i);
                before = i;
                break;
            case 1:
                ml_varint_put(out, of->allocs);
                break;
            default:
                ml_varint_put_wide(out, of->byte_us);
            }
        }
    }
    return out->error;
}

/* Writes the chunks' blobs; INTEGRALS gets those of bytes times time. */
static int
write_chunks(chunk_work *w, ml_buffer *integrals)
{
    int error = 0;
    for (size_t i = 0; i < w->device->chunk_count && error == 0; i++) {
        take_chunk(w, i);
        error = write_chunk(w, &w->device->chunks[i]);
        if (error == 0) {
            error = write_integral(&integrals[i / ML_PAGE_BLOB_CHUNKS], w);
        }
    }
    return error;
}

static void
tell_chunks(const ml_page_device *device, size_t first, ml_buffer *head)
{
    const ml_page_chunk *chunks = device->chunks;
    size_t count = device->chunk_count;
    ml_json_key(head, "chunks");
    ml_json_text(head, "{");
    ml_json_key_unsigned(head, "events", MOST);
    ML_JSON_COLUMN(head, "blobs", i, count, ml_json_unsigned(head, first + i));
    ML_JSON_COLUMN(head, "time", i, count, ml_json_unsigned(head, chunks[i].time));
    ML_JSON_COLUMN(head, "peak", i, count, ml_json_unsigned(head, chunks[i].peak));
    ml_json_text(head, "}");
}

static int
add_integrals(ml_page_blobs *blobs, ml_buffer *integrals, size_t count, ml_buffer *head)
{
    size_t first = blobs->count;
    for (size_t i = 0; i < count; i++) {
        ml_buffer *out = ml_page_blobs_add(blobs);
        if (out == NULL) {
            return ML_ENOMEM;
        }
        *out = integrals[i];
        integrals[i] = (ml_buffer){0};
    }
    ML_JSON_COLUMN(head, "integrals", i, count, ml_json_unsigned(head, first + i));
    return 0;
}

int
ml_page_write_chunks(ml_page_device *device, ml_buffer *head)
{
    size_t first = device->blobs->count;
    size_t blobs =
        (device->chunk_count + ML_PAGE_BLOB_CHUNKS - 1) / ML_PAGE_BLOB_CHUNKS;
    size_t rows = device->rows.lifetimes->count;
    chunk_work w = {.device = device,
                    .time = ml_page_first_time(device),
                    .carried = ml_alloc_zeroed(rows + 1, sizeof(uint32_t)),
                    .times = ml_alloc_zeroed(MOST, sizeof(uint64_t)),
                    .rows = ml_alloc_zeroed(MOST, sizeof(uint32_t)),
                    .tallies =
                        ml_alloc_zeroed(device->groups.kind_count + 1, sizeof(tally))};
    ml_buffer *integrals = ml_alloc_zeroed(blobs, sizeof(*integrals));
    bool room = w.carried != NULL && w.times != NULL && w.rows != NULL &&
                w.tallies != NULL && integrals != NULL;
    int error = room ? write_chunks(&w, integrals) : ML_ENOMEM;
    if (error == 0) {
        tell_chunks(device, first, head);
        error = add_integrals(device->blobs, integrals, blobs, head);
    }
    for (size_t i = 0; integrals != NULL && i < blobs; i++) {
        ml_buffer_fini(&integrals[i]);
    }
    ml_free(integrals);
    ml_free(w.carried);
    ml_free(w.times);
    ml_free(w.rows);
    ml_free(w.tallies);
    return error;
}
