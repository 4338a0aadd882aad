/* A device from afar: columns of many events each, and long-lived allocations.  See
 * page_device.h. */
#include <string.h>

#include "base/varint.h"
#include "show/page/page_device.h"
#include "show/text/json.h"

/* A column's numbers; the bytes of each group of each scheme follow. */
enum {
    AT_TIME,
    AT_PEAK, /* index of the event */
    AT_ALLOCATED,
    AT_ACTIVE,
    AT_RESERVED,
    AT_TOP, /* most reserved */
    AT_GROUPS
};

/* A row that came or went. */
typedef struct gain {
    uint32_t kind;
    uint32_t size;  /* its group by size */
    uint64_t bytes; /* negative: lost */
} gain;

#define KIND_SCHEMES ML_PAGE_BY_SIZE
_Static_assert(ML_PAGE_SCHEMES == KIND_SCHEMES + 1, "the last scheme is that by size");

typedef struct page_levels_work {
    ml_page_device *device;
    uint64_t *columns; /* owned; the finest level, then the coarser ones */
    size_t count;
    size_t width;      /* numbers per column */
    uint32_t *of_kind; /* owned; a kind's groups among those of all schemes */
    uint64_t *bytes;   /* owned; current bytes of each group of each scheme */
    gain *gains;       /* owned; since the column's peak so far */
    size_t gain_count;
    size_t gain_capacity;
    uint64_t time; /* us; after the events of earlier columns */
    int error;
} page_levels_work;

/* Adds GAIN to BYTES of each scheme's groups. */
static inline void
add_gain(const page_levels_work *w, uint64_t *bytes, gain of)
{
    const uint32_t *groups = &w->of_kind[(size_t)of.kind * KIND_SCHEMES];
    for (unsigned i = 0; i < KIND_SCHEMES; i++) {
        bytes[groups[i]] += of.bytes;
    }
    bytes[of.size] += of.bytes;
}

static void
change_group(void *context, const ml_lifetime *row, bool begins)
{
    page_levels_work *w = context;
    const ml_allocation_rows *rows = &w->device->rows;
    if (w->gain_count == w->gain_capacity) {
        void *gains = w->gains;
        int error = ml_grow(&gains, &w->gain_capacity, w->gain_count + 1, sizeof(gain));
        w->gains = gains;
        if (error < 0) {
            w->error = error;
            return;
        }
    }
    gain of = {.kind = rows->kinds[ml_lifetimes_index(rows->lifetimes, row)],
               .size = (uint32_t)ml_page_group_of_size(w->device, row->bytes),
               .bytes = begins ? row->bytes : 0 - row->bytes};
    add_gain(w, w->bytes, of);
    w->gains[w->gain_count++] = of;
}

/* Covers COUNT events.  Groups are those at the peak, so later gains are taken back. */
static void
fill_column(page_levels_work *w, uint64_t *column, ml_lifetimes_walk *walk,
            size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ml_lifetimes_walk_next(walk);
        if (i == 0 || walk->allocated > column[AT_ALLOCATED]) {
            column[AT_PEAK] = walk->position - 1;
            column[AT_ALLOCATED] = walk->allocated;
            column[AT_ACTIVE] = walk->active;
            column[AT_RESERVED] = walk->reserved;
            w->gain_count = 0;
        }
        column[AT_TOP] =
            walk->reserved > column[AT_TOP] ? walk->reserved : column[AT_TOP];
        ml_page_note_value(w->device->blobs, walk->active);
    }
    ml_page_note_value(w->device->blobs, column[AT_TOP]);
    uint64_t *bytes = &column[AT_GROUPS];
    memcpy(bytes, w->bytes, w->device->groups.total * sizeof(uint64_t));
    for (size_t i = 0; i < w->gain_count; i++) {
        gain back = w->gains[i];
        back.bytes = 0 - back.bytes;
        add_gain(w, bytes, back);
    }
}

#define CHUNK_COLUMNS (ML_PAGE_CHUNK_EVENTS / ML_PAGE_SPAN)

static ml_page_chunk
chunk_from(const ml_lifetimes_walk *walk, uint64_t time)
{
    return (ml_page_chunk){.time = time,
                           .allocated = walk->allocated,
                           .active = walk->active,
                           .reserved = walk->reserved};
}

_Static_assert(ML_PAGE_SPAN == ML_EVENTS_CHUNK, "a column is a chunk of events");

/* The time after event FIRST, which begins a column, and then after the column's last. */
static uint64_t
pass_times(page_levels_work *w, size_t first)
{
    uint64_t begun = ml_page_time_of(w->device, first);
    begun = begun > w->time ? begun : w->time;
    uint64_t most = ml_page_most_time(w->device, first);
    w->time = most > begun ? most : begun;
    return begun;
}

static int
fill_columns(page_levels_work *w)
{
    size_t events = w->device->rows.trace->event_count;
    ml_page_chunk *chunk = w->device->chunks;
    ml_lifetimes_walk walk;
    ml_lifetimes_walk_begin(&walk, w->device->rows.lifetimes, change_group, w);
    ml_page_note_value(w->device->blobs, walk.active);
    w->time = ml_page_first_time(w->device);
    *chunk = chunk_from(&walk, w->time);
    chunk->peak = walk.allocated;
    for (size_t i = 0; i < w->count && w->error == 0; i++) {
        size_t first = i * ML_PAGE_SPAN;
        uint64_t *column = &w->columns[i * w->width];
        column[AT_TIME] = pass_times(w, first);
        if (i % CHUNK_COLUMNS == 0) {
            chunk = &w->device->chunks[i / CHUNK_COLUMNS];
            *chunk = chunk_from(&walk, column[AT_TIME]);
        }
        fill_column(w, column, &walk,
                    events - first < ML_PAGE_SPAN ? events - first : ML_PAGE_SPAN);
        chunk->peak =
            column[AT_ALLOCATED] > chunk->peak ? column[AT_ALLOCATED] : chunk->peak;
    }
    return w->error;
}

static int
begin_levels(page_levels_work *w)
{
    ml_page_device *device = w->device;
    const ml_page_groups *groups = &device->groups;
    size_t events = device->rows.trace->event_count;
    size_t chunks = (events + ML_PAGE_CHUNK_EVENTS - 1) / ML_PAGE_CHUNK_EVENTS;
    w->columns = ml_alloc_zeroed(w->count * w->width + 1, sizeof(uint64_t));
    w->bytes = ml_alloc_zeroed(groups->total + 1, sizeof(uint64_t));
    w->of_kind =
        ml_alloc_zeroed(groups->kind_count + 1, KIND_SCHEMES * sizeof(*w->of_kind));
    device->chunk_count = chunks > 0 ? chunks : 1;
    device->chunks = ml_alloc_zeroed(device->chunk_count, sizeof(ml_page_chunk));
    if (w->columns == NULL || w->bytes == NULL || w->of_kind == NULL ||
        device->chunks == NULL) {
        return ML_ENOMEM;
    }
    for (size_t kind = 0; kind < groups->kind_count; kind++) {
        for (unsigned i = 0; i < KIND_SCHEMES; i++) {
            w->of_kind[kind * KIND_SCHEMES + i] =
                (uint32_t)groups->firsts[i] + groups->of_kind[i][kind];
        }
    }
    return 0;
}

/* Merges every four columns into one. */
static void
merge_columns(page_levels_work *w)
{
    size_t merged = (w->count + 3) / 4;
    for (size_t i = 0; i < merged; i++) {
        const uint64_t *best = &w->columns[4 * i * w->width];
        uint64_t time = best[AT_TIME];
        uint64_t top = best[AT_TOP];
        for (size_t j = 4 * i + 1; j < 4 * i + 4 && j < w->count; j++) {
            const uint64_t *next = &w->columns[j * w->width];
            top = next[AT_TOP] > top ? next[AT_TOP] : top;
            best = next[AT_ALLOCATED] > best[AT_ALLOCATED] ? next : best;
        }
        uint64_t *to = &w->columns[i * w->width];
        memmove(to, best, w->width * sizeof(uint64_t));
        to[AT_TIME] = time;
        to[AT_TOP] = top;
    }
    w->count = merged;
}

static void
write_changes(ml_buffer *out, const page_levels_work *w, size_t first, size_t end,
              size_t number)
{
    uint64_t before = 0;
    for (size_t i = first; i < end; i++) {
        uint64_t value = w->columns[i * w->width + number];
        ml_varint_put_change(out, before, value);
        before = value;
    }
}

static void
write_columns(ml_buffer *out, const page_levels_work *w, size_t span, size_t first,
              size_t end)
{
    ml_varint_put(out, end - first);
    write_changes(out, w, first, end, AT_TIME);
    for (size_t i = first; i < end; i++) {
        ml_varint_put(out, w->columns[i * w->width + AT_PEAK] - i * span);
    }
    write_changes(out, w, first, end, AT_ALLOCATED);
    write_changes(out, w, first, end, AT_ACTIVE);
    write_changes(out, w, first, end, AT_RESERVED);
    for (size_t i = first; i < end; i++) {
        const uint64_t *column = &w->columns[i * w->width];
        ml_varint_put(out, column[AT_TOP] - column[AT_RESERVED]);
    }
    for (size_t i = AT_GROUPS; i < w->width; i++) {
        write_changes(out, w, first, end, i);
    }
}

/* Writes the coarser levels first, then this one. */
static int
write_level(page_levels_work *w, size_t span, ml_buffer *head)
{
    int error = 0;
    size_t count = w->count;
    ml_page_blobs own = {0};
    for (size_t i = 0; i == 0 || i < count; i += ML_PAGE_BLOB_COLUMNS) {
        ml_buffer *out = ml_page_blobs_add(&own);
        size_t end =
            count - i < ML_PAGE_BLOB_COLUMNS ? count : i + ML_PAGE_BLOB_COLUMNS;
        if (out == NULL) {
            error = ML_ENOMEM;
            break;
        }
        write_columns(out, w, span, i, end);
    }
    if (error == 0 && count > ML_PAGE_BLOB_COLUMNS) {
        merge_columns(w);
        error = write_level(w, 4 * span, head);
    }
    ml_page_blobs *blobs = w->device->blobs;
    ml_json_next(head);
    ml_json_text(head, "{");
    ml_json_key_unsigned(head, "span", span);
    ml_json_key_unsigned(head, "columns", count);
    ML_JSON_COLUMN(head, "blobs", i, own.count,
                   ml_json_unsigned(head, blobs->count + i));
    ml_json_text(head, "}");
    for (size_t i = 0; i < own.count && error == 0; i++) {
        ml_buffer *out = ml_page_blobs_add(blobs);
        if (out == NULL) {
            error = ML_ENOMEM;
            break;
        }
        *out = own.list[i];
        own.list[i] = (ml_buffer){0};
        error = out->error;
    }
    ml_page_blobs_fini(&own);
    return error;
}

int
ml_page_write_levels(ml_page_device *device, ml_buffer *head)
{
    size_t events = device->rows.trace->event_count;
    page_levels_work w = {.device = device,
                          .count = (events + ML_PAGE_SPAN - 1) / ML_PAGE_SPAN,
                          .width = AT_GROUPS + device->groups.total};
    int error = begin_levels(&w);
    if (error == 0) {
        error = fill_columns(&w);
    }
    if (error == 0) {
        ml_json_key(head, "levels");
        ml_json_text(head, "[");
        error = write_level(&w, ML_PAGE_SPAN, head);
        ml_json_text(head, "]");
    }
    ml_free(w.columns);
    ml_free(w.gains);
    ml_free(w.of_kind);
    ml_free(w.bytes);
    return error;
}

/* ---- Bands ---- */

/* Number of events for which ROW is allocated. */
static size_t
lasts(const ml_page_device *device, const ml_lifetime *row)
{
    size_t last = device->rows.trace->event_count + 1;
    return (row->requested != ML_NEVER ? row->requested : last) - row->start;
}

/* The blob of the rows in INDEX; BOUNDS gets their first start and last end. */
static int
write_band(ml_page_device *device, const uint32_t *index, size_t count,
           int64_t bounds[2])
{
    ml_buffer *out = ml_page_blobs_add(device->blobs);
    if (out == NULL) {
        return ML_ENOMEM;
    }
    ml_varint_put(out, count);
    ml_page_write_rows(out, device, index, 0, count);
    bounds[0] = (int64_t)device->rows.lifetimes->rows[index[0]].start - 1;
    bounds[1] = 0;
    for (size_t i = 0; i < count; i++) {
        const ml_lifetime *row = &device->rows.lifetimes->rows[index[i]];
        int64_t end = (int64_t)row->start + (int64_t)lasts(device, row) - 1;
        bounds[1] = end > bounds[1] ? end : bounds[1];
    }
    return out->error;
}

/* The rows that last from LEAST to below MOST events; INDEX has room for all rows. */
static int
write_bands(ml_page_device *device, size_t span, size_t least, size_t most,
            uint32_t *index, ml_buffer *head)
{
    size_t count = 0;
    for (size_t i = 0; i < device->rows.lifetimes->count; i++) {
        size_t events = lasts(device, &device->rows.lifetimes->rows[i]);
        if (events >= least && events < most) {
            index[count++] = (uint32_t)i;
        }
    }
    size_t blobs = (count + ML_PAGE_BLOB_BANDS - 1) / ML_PAGE_BLOB_BANDS;
    size_t first = device->blobs->count;
    int64_t(*bounds)[2] = ml_alloc_zeroed(blobs + 1, sizeof(*bounds));
    int error = bounds == NULL ? ML_ENOMEM : 0;
    for (size_t i = 0; i < blobs && error == 0; i++) {
        size_t from = i * ML_PAGE_BLOB_BANDS;
        size_t rows =
            count - from < ML_PAGE_BLOB_BANDS ? count - from : ML_PAGE_BLOB_BANDS;
        error = write_band(device, index + from, rows, bounds[i]);
    }
    if (error == 0) {
        ml_json_next(head);
        ml_json_text(head, "{");
        ml_json_key_unsigned(head, "span", span);
        ML_JSON_COLUMN(head, "blobs", i, blobs, ml_json_unsigned(head, first + i));
        ML_JSON_COLUMN(head, "first", i, blobs, ml_json_signed(head, bounds[i][0]));
        ML_JSON_COLUMN(head, "last", i, blobs, ml_json_signed(head, bounds[i][1]));
        ml_json_text(head, "}");
    }
    ml_free(bounds);
    return error;
}

int
ml_page_write_bands(ml_page_device *device, ml_buffer *head)
{
    size_t events = device->rows.trace->event_count;
    size_t span = ML_PAGE_SPAN;
    while ((events + span - 1) / span > ML_PAGE_BLOB_COLUMNS) {
        span *= 4;
    }
    uint32_t *index =
        ml_alloc_zeroed(device->rows.lifetimes->count + 1, sizeof(uint32_t));
    int error = index == NULL ? ML_ENOMEM : 0;
    ml_json_key(head, "bands");
    ml_json_text(head, "[");
    for (size_t most = SIZE_MAX; span >= ML_PAGE_SPAN && error == 0; span /= 4) {
        error = write_bands(device, span, 8 * span, most, index, head);
        most = 8 * span;
    }
    ml_json_text(head, "]");
    ml_free(index);
    return error;
}
