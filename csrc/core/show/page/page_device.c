/* One device of a page: its rows, their kinds, its blobs.  See page_device.h. */
#include "show/page/page_device.h"

#include "base/varint.h"
#include "show/text/page_json.h"

/* ---- Blobs ---- */

ml_buffer *
ml_page_blobs_add(ml_page_blobs *blobs)
{
    void *list = blobs->list;
    if (ml_grow(&list, &blobs->capacity, blobs->count + 1, sizeof(ml_buffer)) < 0) {
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

void
ml_page_note_value(ml_page_blobs *blobs, uint64_t value)
{
    blobs->rounded = blobs->rounded || value > UINT64_C(1) << 53;
}

void
ml_page_write_rows(ml_buffer *out, const ml_page_rows *rows, const uint32_t *index,
                   size_t count)
{
    const ml_page_row *list = rows->rows;
#define ROW list[index[i]]
#define COLUMN(value) \
    for (size_t i = 0; i < count; i++) { \
        ml_varint_put(out, (value)); \
    }
#define CHANGES(value) \
    for (size_t i = 0, before = 0; i < count; i++) { \
        ml_varint_put_change(out, before, (value)); \
        before = (value); \
    }
    CHANGES(index[i])
    CHANGES(ROW.start)
    COLUMN(ROW.requested == ML_PAGE_NEVER ? 0 : (uint64_t)ROW.requested - ROW.start + 1)
    COLUMN(ROW.end == ML_PAGE_NEVER ? 0 : (uint64_t)ROW.end - ROW.requested + 1)
    CHANGES((uint32_t)(ROW.addr >> 32))
    COLUMN((uint32_t)ROW.addr)
    COLUMN(ROW.bytes)
    COLUMN(ROW.size)
    COLUMN(ROW.kind)
    COLUMN(ROW.ordinal)
#undef CHANGES
#undef COLUMN
#undef ROW
}

/* ---- What the rows are ---- */

static int
describe_row(ml_page_device *device, const ml_analysis *analysis, size_t index)
{
    ml_page_rows *rows = &device->rows;
    ml_page_row *row = &rows->rows[index];
    uint64_t birth = ML_BEFORE_EVENTS;
    uint32_t stack;
    uint64_t stream;
    if (row->birth == 0) {
        size_t at = row->start == 0 ? index
                                    : ml_find_address(rows->rows, sizeof(ml_page_row),
                                                      rows->initial_count, row->addr);
        stack = rows->initial_stacks[at];
        stream = rows->initial_streams[at];
    }
    else {
        birth = row->birth - 1;
        stack = rows->trace->events[birth].stack;
        stream = rows->trace->events[birth].stream;
    }
    ml_explained it = ml_explain(analysis, row->addr, birth, stack);
    uint32_t at;
    int error = ml_page_kinds_stream(device->kinds, stream, &at);
    return error == 0 ? ml_page_kinds_add(device->kinds, stack, at, &it, &row->kind)
                      : error;
}

int
ml_page_device_rows(ml_page_device *device)
{
    ml_page_rows *rows = &device->rows;
    const ml_analysis *analysis;
    int error = ml_page_rows_init(rows, device->part, device->own);
    if (error == 0) {
        error = ml_analysis_of(device->part, device->own, &analysis);
    }
    for (size_t i = 0; error == 0 && i < rows->count; i++) {
        error = describe_row(device, analysis, i);
    }
    return error != 0 ? error : ml_peak_new(device->part, device->own, &device->peak);
}

void
ml_page_device_fini(ml_page_device *device)
{
    ml_page_rows_fini(&device->rows);
    ml_peak_free(device->peak);
    for (size_t i = 0; i < ML_PAGE_BY_SIZE; i++) {
        ml_free(device->groups.of_kind[i]);
    }
}

/* ---- Segments ---- */

int
ml_page_write_segments(ml_page_device *device, ml_buffer *head)
{
    const ml_page_segment *list = device->rows.segments;
    size_t count = device->rows.segment_count;
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
        bool never = list[i].end == ML_PAGE_NEVER;
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
        error = ml_page_kinds_stream(device->kinds, list[i].stream, &stream);
        ml_varint_put(out, stream);
    }
    for (size_t i = 0; i < count; i++) {
        ml_varint_put(out, list[i].stack);
    }
    for (size_t i = 0; i < count; i++) {
        ml_varint_put(out, list[i].flags);
    }
    return error != 0 ? error : out->error;
}

/* ---- Going over the events again ---- */

static void
apply(ml_page_walk *walk, const ml_page_row *row, uint32_t moment)
{
    if (row->start == moment) {
        walk->active += row->bytes;
        walk->allocated += row->bytes;
        if (walk->changed != NULL) {
            walk->changed(walk->context, row, true);
        }
    }
    if (row->requested == moment) {
        walk->allocated -= row->bytes;
        if (walk->changed != NULL) {
            walk->changed(walk->context, row, false);
        }
    }
    if (row->end == moment) {
        walk->active -= row->bytes;
    }
}

/* What is at MOMENT beside the row of an event. */
static void
apply_others(ml_page_walk *walk, uint32_t moment)
{
    const ml_page_rows *rows = walk->rows;
    for (; walk->change < rows->change_count &&
           rows->changes[walk->change].moment == moment;
         walk->change++) {
        apply(walk, &rows->rows[rows->changes[walk->change].row], moment);
    }
    if (walk->reserve < rows->reserved_count &&
        rows->reserved[walk->reserve].moment == moment) {
        walk->reserved = rows->reserved[walk->reserve++].bytes;
    }
}

static uint64_t
time_of(const ml_page_walk *walk, size_t event)
{
    uint64_t us = walk->rows->trace->events[event].time / 1000;
    return us > walk->base_us ? us - walk->base_us : 0;
}

void
ml_page_walk_begin(ml_page_walk *walk, const ml_page_device *device,
                   void (*changed)(void *context, const ml_page_row *row, bool begins),
                   void *context)
{
    *walk = (ml_page_walk){.rows = &device->rows,
                           .base_us = device->base_us,
                           .changed = changed,
                           .context = context};
    for (size_t i = 0; i < device->rows.initial_count; i++) {
        apply(walk, &device->rows.rows[i], 0);
    }
    apply_others(walk, 0);
    if (device->rows.trace->event_count > 0) {
        walk->time = time_of(walk, 0);
    }
}

void
ml_page_walk_next(ml_page_walk *walk)
{
    size_t event = walk->position++;
    uint32_t moment = (uint32_t)walk->position;
    uint32_t own = walk->rows->of_event[event];
    uint64_t time = time_of(walk, event);
    walk->time = time > walk->time ? time : walk->time;
    if (own != 0) {
        apply(walk, &walk->rows->rows[own - 1], moment);
    }
    apply_others(walk, moment);
}
