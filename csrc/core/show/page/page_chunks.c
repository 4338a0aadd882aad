/* A device in detail: its events in chunks.  Each chunk has the rows that it needs, and
 * each kind's bytes times time.  See page_device.h. */
#include <string.h>

#include "base/varint.h"
#include "show/page/page_device.h"
#include "show/text/json.h"

#define MOST ML_PAGE_CHUNK_EVENTS
_Static_assert(MOST % ML_EVENTS_CHUNK == 0, "columns are read by chunks of events");
_Static_assert(ML_EVENT_BACKWARD == 1, "it is written as 0 or 1");

/* ---- Chunks ---- */

typedef struct chunk_work {
    ml_page_device *device;
    ml_page_walk walk;
    uint32_t *carried; /* owned; rows live before the chunk, ascending */
    size_t carried_count;
    size_t next;     /* the first row born in the chunk or later */
    uint32_t *fresh; /* owned; the rows born in the chunk */
    size_t fresh_count;
    uint64_t *numbers; /* owned; time and totals after each event */
} chunk_work;

enum {
    OF_TIME,
    OF_ALLOCATED,
    OF_ACTIVE,
    OF_RESERVED,
    OF_COUNT
};

/* Sets the rows live after FIRST events; the first chunk has all from before. */
static void
carry(chunk_work *w, size_t first)
{
    const ml_lifetime *rows = w->device->rows.lifetimes->rows;
    size_t kept = 0;
    if (first == 0) {
        w->fresh_count = w->device->rows.lifetimes->earlier_count;
        w->next = w->fresh_count;
        for (size_t i = 0; i < w->fresh_count; i++) {
            w->carried[i] = (uint32_t)i;
        }
        w->carried_count = w->fresh_count;
        return;
    }
    for (size_t i = 0; i < w->carried_count; i++) {
        if (rows[w->carried[i]].end > first) {
            w->carried[kept++] = w->carried[i];
        }
    }
    for (size_t i = 0; i < w->fresh_count; i++) {
        if (rows[w->fresh[i]].end > first) {
            w->carried[kept++] = w->fresh[i];
        }
    }
    w->carried_count = kept;
}

static void
take_fresh(chunk_work *w, size_t end)
{
    const ml_lifetimes *lifetimes = w->device->rows.lifetimes;
    w->fresh_count = 0;
    for (; w->next < lifetimes->count && lifetimes->rows[w->next].start <= end;
         w->next++) {
        w->fresh[w->fresh_count++] = (uint32_t)w->next;
    }
}

/* 1 + the index of ROW in the chunk. */
static size_t
place_of(const chunk_work *w, uint32_t row)
{
    if (w->fresh_count > 0 && row >= w->fresh[0]) {
        return w->carried_count + (row - w->fresh[0]) + 1;
    }
    size_t low;
    ML_SEARCH(low, w->carried_count, w->carried[low] < row);
    return low + 1;
}

/* The bits of MASK in MEMBER of COUNT events from FIRST on, to TO; returns its end. */
static uint8_t *
write_member(uint8_t *to, const ml_device_trace *trace, unsigned member, uint64_t mask,
             size_t first, size_t count)
{
    uint64_t values[ML_EVENTS_CHUNK];
    for (size_t i = 0; i < count; i += ML_EVENTS_CHUNK) {
        size_t left = count - i < ML_EVENTS_CHUNK ? count - i : ML_EVENTS_CHUNK;
        ml_events_get_column(&trace->events, trace->event_count, first + i, member,
                             values);
        for (size_t k = 0; k < left; k++) {
            to += ml_varint_write(to, values[k] & mask);
        }
    }
    return to;
}

/* Facts of an event that write_events writes: OF_COUNT and four more. */
#define EVENT_ROOM ((OF_COUNT + 4) * ML_VARINT_ROOM)

static void
write_events(ml_buffer *out, chunk_work *w, size_t first, size_t count,
             const uint64_t before[OF_COUNT])
{
    const ml_allocation_rows *rows = &w->device->rows;
    const ml_device_trace *trace = rows->trace;
    const uint32_t *own = rows->lifetimes->of_event + first;
    if (!ml_buffer_reserve(out, count * EVENT_ROOM)) {
        return;
    }
    uint8_t *to = (uint8_t *)out->bytes + out->length;
    to = write_member(to, trace, ML_EVENT_MEMBER_action, UINT64_MAX, first, count);
    for (size_t i = 0; i < count; i++) {
        to += ml_varint_write(to, own[i] != 0 ? place_of(w, own[i] - 1) : 0);
    }
    for (unsigned number = 0; number < OF_COUNT; number++) {
        uint64_t last = before[number];
        for (size_t i = 0; i < count; i++) {
            uint64_t value = w->numbers[i * OF_COUNT + number];
            to += ml_varint_write_change(to, last, value);
            last = value;
        }
        if (number == OF_TIME) {
            to = write_member(to, trace, ML_EVENT_MEMBER_stack, UINT64_MAX, first,
                              count);
            to = write_member(to, trace, ML_EVENT_MEMBER_flags, ML_EVENT_BACKWARD,
                              first, count);
        }
    }
    out->length = (size_t)(to - (uint8_t *)out->bytes);
}

/* The remaining facts follow from the rows. */
static int
write_bare_events(ml_buffer *out, chunk_work *w, size_t first, size_t count)
{
    const ml_events *events = &w->device->rows.trace->events;
    const uint32_t *own = w->device->rows.lifetimes->of_event + first;
    uint64_t before = 0;
    int error = 0;
    for (size_t i = 0; i < count; i++) {
        if (own[i] == 0) {
            uint64_t high = ml_events_addr(events, first + i) >> 32;
            ml_varint_put_change(out, before, high);
            before = high;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (own[i] == 0) {
            ml_varint_put(out, (uint32_t)ml_events_addr(events, first + i));
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (own[i] == 0) {
            uint64_t size = ml_events_size(events, first + i);
            ml_page_note_value(w->device->blobs, size);
            ml_varint_put(out, size);
        }
    }
    for (size_t i = 0; i < count && error == 0; i++) {
        if (own[i] == 0) {
            uint32_t stream = 0;
            error = ml_allocation_kinds_stream(
                w->device->kinds, ml_events_stream(events, first + i), &stream);
            ml_varint_put(out, stream);
        }
    }
    return error;
}

/* Sets PEAK to the most allocated bytes in the chunk, TIME to its first event's
 * time. */
static int
write_chunk(chunk_work *w, size_t first, size_t count, uint64_t *time, uint64_t *peak)
{
    ml_page_blobs *blobs = w->device->blobs;
    ml_page_walk *walk = &w->walk;
    ml_buffer *out = ml_page_blobs_add(blobs);
    if (out == NULL) {
        return ML_ENOMEM;
    }
    const ml_lifetimes_walk *now = &walk->memory;
    uint64_t before[OF_COUNT] = {0, now->allocated, now->active, now->reserved};
    carry(w, first);
    take_fresh(w, first + count);
    ml_varint_put(out, count);
    ml_varint_put(out, w->carried_count);
    ml_varint_put(out, w->fresh_count);
    for (unsigned i = OF_ALLOCATED; i < OF_COUNT; i++) {
        ml_varint_put(out, before[i]);
    }
    ml_page_write_rows(out, w->device, w->carried, w->carried_count);
    ml_page_write_rows(out, w->device, w->fresh, w->fresh_count);
    *peak = count > 0 ? 0 : now->allocated;
    *time = walk->time;
    for (size_t i = 0; i < count; i++) {
        ml_page_walk_next(walk);
        uint64_t *numbers = &w->numbers[i * OF_COUNT];
        numbers[OF_TIME] = walk->time;
        numbers[OF_ALLOCATED] = now->allocated;
        numbers[OF_ACTIVE] = now->active;
        numbers[OF_RESERVED] = now->reserved;
        *time = i == 0 ? walk->time : *time;
        *peak = now->allocated > *peak ? now->allocated : *peak;
        ml_page_note_value(blobs, now->active);
        ml_page_note_value(blobs, now->reserved);
    }
    write_events(out, w, first, count, before);
    int error = write_bare_events(out, w, first, count);
    return error != 0 ? error : out->error;
}

static size_t
chunk_count(const ml_page_device *device)
{
    size_t events = device->rows.trace->event_count;
    return events > 0 ? (events + MOST - 1) / MOST : 1;
}

static int
write_chunks(chunk_work *w, uint64_t (*facts)[2])
{
    ml_page_device *device = w->device;
    size_t events = device->rows.trace->event_count;
    ml_page_walk_begin(&w->walk, device, NULL, NULL);
    ml_page_note_value(device->blobs, w->walk.memory.active);
    int error = 0;
    for (size_t i = 0; i < chunk_count(device) && error == 0; i++) {
        size_t first = i * MOST;
        size_t count = events - first < MOST ? events - first : MOST;
        error = write_chunk(w, first, count, &facts[i][0], &facts[i][1]);
    }
    return error;
}

int
ml_page_write_chunks(ml_page_device *device, ml_buffer *head)
{
    size_t chunks = chunk_count(device);
    size_t first = device->blobs->count;
    size_t rows = device->rows.lifetimes->count;
    chunk_work w = {.device = device,
                    .carried = ml_alloc_zeroed(rows + 1, sizeof(uint32_t)),
                    .fresh = ml_alloc_zeroed(rows + 1, sizeof(uint32_t)),
                    .numbers = ml_alloc_zeroed(MOST * OF_COUNT, sizeof(uint64_t))};
    uint64_t(*facts)[2] = ml_alloc_zeroed(chunks, sizeof(*facts));
    int error =
        w.carried == NULL || w.fresh == NULL || w.numbers == NULL || facts == NULL
            ? ML_ENOMEM
            : write_chunks(&w, facts);
    if (error == 0) {
        ml_json_key(head, "chunks");
        ml_json_text(head, "{");
        ml_json_key_unsigned(head, "events", MOST);
        ML_JSON_COLUMN(head, "blobs", i, chunks, ml_json_unsigned(head, first + i));
        ML_JSON_COLUMN(head, "time", i, chunks, ml_json_unsigned(head, facts[i][0]));
        ML_JSON_COLUMN(head, "peak", i, chunks, ml_json_unsigned(head, facts[i][1]));
        ml_json_text(head, "}");
    }
    ml_free(w.carried);
    ml_free(w.fresh);
    ml_free(w.numbers);
    ml_free(facts);
    return error;
}

/* ---- Bytes times time ---- */

typedef struct tally {
    ml_wide bytes;  /* allocated now */
    uint64_t since; /* us; bytes are counted up to here */
    uint64_t allocs;
    ml_wide byte_us;
} tally;

typedef struct integral_work {
    const ml_allocation_rows *rows; /* borrowed */
    ml_page_walk walk;
    tally *tallies; /* owned; by kind */
    size_t count;
} integral_work;

static void
count_up_to(tally *of, uint64_t time)
{
    of->byte_us += of->bytes * (time - of->since);
    of->since = time;
}

static void
change_kind(void *context, const ml_lifetime *row, bool begins)
{
    integral_work *w = context;
    tally *of =
        &w->tallies[w->rows->kinds[ml_lifetimes_index(w->rows->lifetimes, row)]];
    count_up_to(of, w->walk.time);
    of->bytes = begins ? of->bytes + row->bytes : of->bytes - row->bytes;
    of->allocs += begins && row->start == w->walk.memory.position && row->start > 0;
}

/* Covers COUNT events and the time up to the next one. */
static void
write_integral(ml_buffer *out, integral_work *w, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ml_page_walk_next(&w->walk);
    }
    uint64_t until = ml_page_walk_peek(&w->walk);
    size_t used = 0;
    for (size_t i = 0; i < w->count; i++) {
        count_up_to(&w->tallies[i], until);
        used += w->tallies[i].allocs != 0 || w->tallies[i].byte_us != 0;
    }
    ml_varint_put(out, used);
    for (unsigned column = 0; column < 3; column++) {
        size_t before = 0;
        for (size_t i = 0; i < w->count; i++) {
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
    for (size_t i = 0; i < w->count; i++) {
        w->tallies[i].allocs = 0;
        w->tallies[i].byte_us = 0;
    }
}

static int
write_integrals(ml_page_device *device, integral_work *w)
{
    size_t events = device->rows.trace->event_count;
    ml_page_walk_begin(&w->walk, device, change_kind, w);
    for (size_t i = 0; i < w->count; i++) {
        w->tallies[i].since = w->walk.time;
    }
    ml_buffer *out = NULL;
    int error = 0;
    for (size_t i = 0; i < chunk_count(device) && error == 0; i++) {
        if (i % ML_PAGE_BLOB_CHUNKS == 0) {
            out = ml_page_blobs_add(device->blobs);
        }
        if (out == NULL) {
            return ML_ENOMEM;
        }
        size_t first = i * MOST;
        size_t count = events - first < MOST ? events - first : MOST;
        write_integral(out, w, count);
        error = out->error;
    }
    return error;
}

int
ml_page_write_integrals(ml_page_device *device, ml_buffer *head)
{
    size_t first = device->blobs->count;
    size_t blobs =
        (chunk_count(device) + ML_PAGE_BLOB_CHUNKS - 1) / ML_PAGE_BLOB_CHUNKS;
    integral_work w = {
        .rows = &device->rows,
        .count = device->groups.kind_count,
        .tallies = ml_alloc_zeroed(device->groups.kind_count + 1, sizeof(tally))};
    int error = w.tallies == NULL ? ML_ENOMEM : write_integrals(device, &w);
    ML_JSON_COLUMN(head, "integrals", i, blobs, ml_json_unsigned(head, first + i));
    ml_free(w.tallies);
    return error;
}
