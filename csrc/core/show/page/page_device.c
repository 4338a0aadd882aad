/* One device of a page: its rows, their kinds, its blobs.  See page_device.h. */
#include "show/page/page_device.h"

#include "base/varint.h"
#include "show/text/json.h"

/* ---- Blobs ---- */

int
ml_page_blobs_end(const ml_page_blobs *blobs)
{
    const ml_page_packer *packer = blobs->packer;
    return packer != NULL && blobs->count > 0
               ? packer->pack(packer->context, &blobs->list[blobs->count - 1])
               : 0;
}

ml_buffer *
ml_page_blobs_add(ml_page_blobs *blobs)
{
    void *list = blobs->list;
    if (ml_page_blobs_end(blobs) < 0 ||
        ml_grow(&list, &blobs->capacity, blobs->count + 1, sizeof(ml_buffer)) < 0) {
        return NULL;
    }
    blobs->list = list;
    blobs->list[blobs->count] = (ml_buffer){0};
    return &blobs->list[blobs->count++];
}

void
ml_page_blobs_fini(ml_page_blobs *blobs)
{
    for (size_t i = 0; i < blobs->count; i++) {
        ml_buffer_fini(&blobs->list[i]);
    }
    ml_free(blobs->list);
    *blobs = (ml_page_blobs){0};
}

/* ---- Rows ---- */

typedef struct asked {
    uint64_t addr;
    uint64_t size;
    uint32_t back; /* rows since the last at its address; 0: the address is written */
} asked;

/* Rows since the last one at the address of ROW that is in FIRST or after it; 0: none, or
 * ROW is no allocation of its own. */
static uint32_t
rows_back(const ml_allocation_rows *rows, size_t first, size_t row)
{
    const ml_lifetime *of = &rows->lifetimes->rows[row];
    uint32_t before = rows->before[row];
    return before > first && of->birth == of->start ? (uint32_t)row - (before - 1) : 0;
}

static void
note_requests(const ml_page_device *device, const uint32_t *index, size_t first,
              size_t count, asked *requests)
{
    const ml_allocation_rows *rows = &device->rows;
    for (size_t i = 0; i < count; i++) {
        size_t row = index != NULL ? index[i] : first + i;
        ml_earlier_block of = ml_lifetimes_request(rows->lifetimes, row);
        requests[i] =
            (asked){of.addr, of.size, index != NULL ? 0 : rows_back(rows, first, row)};
        ml_page_note_value(device->blobs, of.size);
        ml_page_note_value(device->blobs, rows->lifetimes->rows[row].bytes);
    }
}

/* The longest row has this many bytes. */
#define ROW_ROOM (11 * (ML_VARINT_ROOM + 1))

void
ml_page_write_rows(ml_buffer *out, const ml_page_device *device, const uint32_t *index,
                   size_t first, size_t count)
{
    const ml_allocation_rows *rows = &device->rows;
    const ml_lifetime *list = rows->lifetimes->rows;
    asked *requests = ml_alloc_zeroed(count + 1, sizeof(*requests));
    if (requests == NULL) {
        out->error = ML_ENOMEM;
        return;
    }
    if (!ml_buffer_reserve(out, count * ROW_ROOM)) {
        ml_free(requests);
        return;
    }
    note_requests(device, index, first, count, requests);
    uint8_t *to = (uint8_t *)out->bytes + out->length;
#define NUMBER (index != NULL ? index[i] : first + i)
#define ROW list[NUMBER]
#define REQUEST requests[i]
#define COLUMN(value) \
    for (size_t i = 0; i < count; i++) { \
        to += ml_varint_write(to, (value)); \
    }
#define CHANGES(value) \
    for (size_t i = 0, before = 0; i < count; i++) { \
        size_t now = (value); \
        to += ml_varint_write_change(to, before, now); \
        before = now; \
    }
#define WRITTEN(write) \
    for (size_t i = 0; i < count; i++) { \
        if (REQUEST.back == 0) { \
            write \
        } \
    }
    if (index != NULL) {
        CHANGES(NUMBER)
    }
    CHANGES(ROW.start)
    COLUMN(ROW.requested == ML_NEVER ? 0 : (uint64_t)ROW.requested - ROW.start + 1)
    COLUMN(ROW.end == ML_NEVER ? 0 : (uint64_t)ROW.end - ROW.requested + 1)
    COLUMN(ROW.bytes)
    for (size_t i = 0; i < count; i++) {
        to += ml_varint_write_change(to, ROW.bytes, REQUEST.size);
    }
    COLUMN(rows->kinds[NUMBER])
    if (index == NULL) {
        COLUMN(REQUEST.back)
    }
    uint64_t before = 0;
    WRITTEN(to += ml_varint_write_change(to, before, REQUEST.addr >> 32);
            before = REQUEST.addr >> 32;)
    WRITTEN(to += ml_varint_write(to, (uint32_t)REQUEST.addr);)
    WRITTEN(to += ml_varint_write(to, rows->ordinals[NUMBER]);)
#undef WRITTEN
#undef CHANGES
#undef COLUMN
#undef REQUEST
#undef ROW
#undef NUMBER
    out->length = (size_t)(to - (uint8_t *)out->bytes);
    ml_free(requests);
}

int
ml_page_device_rows(ml_page_device *device)
{
    int error = ml_allocation_rows_init(&device->rows, device->kinds, device->part,
                                        device->own);
    return error != 0 ? error : ml_peak_new(device->part, device->own, &device->peak);
}

void
ml_page_device_fini(ml_page_device *device)
{
    ml_allocation_rows_fini(&device->rows);
    ml_peak_free(device->peak);
    ml_free(device->chunks);
    ml_module_tree_free(device->groups.modules);
    for (size_t i = 0; i < ML_PAGE_BY_SIZE; i++) {
        ml_free(device->groups.of_kind[i]);
    }
}

/* ---- Segments ---- */

int
ml_page_write_segments(ml_page_device *device, ml_buffer *head)
{
    const ml_segment_lifetime *list = device->rows.lifetimes->segments;
    size_t count = device->rows.lifetimes->segment_count;
    ml_buffer *out = ml_page_blobs_add(device->blobs);
    if (out == NULL) {
        return ML_ENOMEM;
    }
    ml_json_key_unsigned(head, "segments", device->blobs->count - 1);
    ml_varint_put(out, count);
    for (size_t i = 0, before = 0; i < count; before = list[i++].start) {
        ml_varint_put_change(out, before, list[i].start);
    }
    for (size_t i = 0; i < count; i++) {
        bool never = list[i].end == ML_NEVER;
        ml_varint_put(out, never ? 0 : (uint64_t)list[i].end - list[i].start + 1);
    }
    for (size_t i = 0, before = 0; i < count; before = list[i++].addr >> 32) {
        ml_varint_put_change(out, before, list[i].addr >> 32);
    }
    for (size_t i = 0; i < count; i++) {
        ml_varint_put(out, (uint32_t)list[i].addr);
    }
    for (size_t i = 0; i < count; i++) {
        ml_page_note_value(device->blobs, list[i].bytes);
        ml_varint_put(out, list[i].bytes);
    }
    int error = 0;
    for (size_t i = 0; i < count && error == 0; i++) {
        uint32_t stream = 0;
        error = ml_allocation_kinds_stream(device->kinds, list[i].stream, &stream);
        ml_varint_put(out, stream);
    }
    for (size_t i = 0; i < count; i++) {
        ml_varint_put(out, list[i].stack);
    }
    for (size_t i = 0; i < count; i++) {
        ml_varint_put(out, (list[i].expandable ? ML_PAGE_EXPANDABLE : 0) |
                               (list[i].small ? ML_PAGE_SMALL : 0) |
                               (list[i].private_pool ? ML_PAGE_PRIVATE : 0));
    }
    return error != 0 ? error : out->error;
}

/* ---- Going over the events again ---- */

/* Us from BASE_US up to TIME. */
static uint64_t
time_since(uint64_t base_us, uint64_t time)
{
    uint64_t us = time / 1000;
    return us > base_us ? us - base_us : 0;
}

static size_t
read_times(const ml_device_trace *trace, uint64_t base_us, size_t first,
           uint64_t times[ML_EVENTS_CHUNK])
{
    size_t count = ml_events_get_column(&trace->events, trace->event_count, first,
                                        ML_EVENT_MEMBER_time, times);
    for (size_t i = 0; i < count; i++) {
        times[i] = time_since(base_us, times[i]);
    }
    return count;
}

bool
ml_page_walk_read(ml_page_walk *walk)
{
    const ml_device_trace *trace = walk->memory.lifetimes->trace;
    size_t event = walk->memory.position;
    if (event >= trace->event_count) {
        return false;
    }
    walk->first = event / ML_EVENTS_CHUNK * ML_EVENTS_CHUNK;
    walk->count = read_times(trace, walk->base_us, walk->first, walk->times);
    return true;
}

size_t
ml_page_read_times(const ml_page_device *device, size_t first,
                   uint64_t times[ML_EVENTS_CHUNK])
{
    return read_times(device->rows.trace, device->base_us, first, times);
}

uint64_t
ml_page_time_of(const ml_page_device *device, size_t index)
{
    return time_since(device->base_us,
                      ml_events_time(&device->rows.trace->events, index));
}

uint64_t
ml_page_most_time(const ml_page_device *device, size_t first)
{
    const ml_device_trace *trace = device->rows.trace;
    return time_since(device->base_us,
                      ml_events_most(&trace->events, trace->event_count, first,
                                     ML_EVENT_MEMBER_time));
}

uint64_t
ml_page_first_time(const ml_page_device *device)
{
    return device->rows.trace->event_count > 0 ? ml_page_time_of(device, 0) : 0;
}

uint64_t
ml_page_last_time(const ml_page_device *device)
{
    uint64_t last = 0;
    for (size_t i = 0; i < device->rows.trace->event_count; i += ML_EVENTS_CHUNK) {
        uint64_t time = ml_page_most_time(device, i);
        last = time > last ? time : last;
    }
    return last;
}

void
ml_page_walk_begin(ml_page_walk *walk, const ml_page_device *device,
                   ml_lifetime_changed *changed, void *context)
{
    *walk = (ml_page_walk){.base_us = device->base_us};
    ml_lifetimes_walk_begin(&walk->memory, device->rows.lifetimes, changed, context);
    walk->time = ml_page_first_time(device);
}
