/* Writes a recording as tables.  See recording_tables.h.
 *
 * A row is a struct.  The list of fields beside it gives the order of columns. */
#include "show/export/recording_tables.h"

#include <string.h>

#include "analysis/answers/step_peaks.h"
#include "show/page/page_device.h"

#define FIELD(type, name, format) \
    { \
#name, format, offsetof(struct type, name) \
    }
#define COUNT_OF(list) (sizeof(list) / sizeof((list)[0]))

bool
ml_recording_table_is_of_device(enum ml_recording_table_kind kind)
{
    static const bool of_device[] = {
#define XX(name, text, of) of,
        ML_RECORDING_TABLES(XX)
#undef XX
    };
    return of_device[kind];
}

/* ---- What a device's rows are ---- */

typedef struct rows {
    ml_allocation_kinds kinds;
    ml_page_blobs blobs;
    ml_page_device device;
    const ml_causes *causes; /* borrowed */
} rows;

static void
rows_fini(rows *r)
{
    ml_page_device_fini(&r->device);
    ml_allocation_kinds_fini(&r->kinds);
}

/* Free the rows in any case. */
static int
rows_init(rows *r, const ml_recording *recording, size_t device)
{
    *r = (rows){.device = {.own = device}};
    const ml_recording *part = ml_recording_part(recording, &r->device.own);
    r->device.part = part;
    r->device.kinds = &r->kinds;
    r->device.blobs = &r->blobs;
    int error = ml_allocation_kinds_init(&r->kinds, part);
    error = error < 0 ? error : ml_analysis_causes(part, &r->causes);
    return error < 0 ? error : ml_page_device_rows(&r->device);
}

/* The time of the event before MOMENT, unix ns; 0: none. */
static uint64_t
time_of(const ml_device_trace *trace, uint32_t moment)
{
    return moment == 0 || moment == ML_NEVER
               ? 0
               : ml_events_time(&trace->events, moment - 1);
}

/* The event just before MOMENT; -1: before the first; the event count: never. */
static int64_t
event_of(const ml_device_trace *trace, uint32_t moment)
{
    return moment == ML_NEVER ? (int64_t)trace->event_count : (int64_t)moment - 1;
}

/* ---- Events ---- */

struct event_row {
    uint64_t time_ns, address, bytes, stream;
    int64_t allocation;
    uint64_t allocated, active, reserved;
    uint32_t stack, thread, metadata, node;
    uint8_t action, backward;
};

static const ml_column_table_field event_fields[] = {
    FIELD(event_row, time_ns, 'Q'),   FIELD(event_row, action, 'B'),
    FIELD(event_row, address, 'Q'),   FIELD(event_row, bytes, 'Q'),
    FIELD(event_row, stream, 'Q'),    FIELD(event_row, allocation, 'q'),
    FIELD(event_row, allocated, 'Q'), FIELD(event_row, active, 'Q'),
    FIELD(event_row, reserved, 'Q'),  FIELD(event_row, stack, 'I'),
    FIELD(event_row, thread, 'I'),    FIELD(event_row, backward, 'B'),
    FIELD(event_row, metadata, 'I'),  FIELD(event_row, node, 'I')};

static int
make_events(ml_column_table *table, const ml_recording *recording, size_t device)
{
    rows r;
    int error = rows_init(&r, recording, device);
    const ml_device_trace *trace = &recording->devices[device];
    if (error == 0) {
        error = ml_column_table_init(table, event_fields, COUNT_OF(event_fields),
                                     trace->event_count);
    }
    ml_page_walk walk;
    if (error == 0) {
        ml_page_walk_begin(&walk, &r.device, NULL, NULL);
    }
    ml_event_cursor cursor;
    ml_event_cursor_init(&cursor, &trace->events, ML_EVENT_ALL);
    for (size_t i = 0; i < trace->event_count && error == 0; i++) {
        const ml_event *event = ml_event_cursor_at(&cursor, i);
        ml_page_walk_next(&walk);
        struct event_row row = {.time_ns = event->time,
                                .address = event->addr,
                                .bytes = event->size,
                                .stream = event->stream,
                                .allocation =
                                    (int64_t)r.device.rows.lifetimes->of_event[i] - 1,
                                .allocated = walk.memory.allocated,
                                .active = walk.memory.active,
                                .reserved = walk.memory.reserved,
                                .stack = event->stack,
                                .thread = event->thread,
                                .metadata = event->metadata,
                                .node = event->node,
                                .action = event->action,
                                .backward = (event->flags & ML_EVENT_BACKWARD) != 0};
        ml_column_table_put(table, i, &row);
    }
    rows_fini(&r);
    return error;
}

/* ---- Allocations ---- */

struct allocation_row {
    int64_t start, free, end, line, until;
    uint64_t start_ns, free_ns, address, bytes, requested, stream;
    uint32_t nth, stack, file, function, module, name, step, thread;
    uint8_t category, exact, phase, how;
};

static const ml_column_table_field allocation_fields[] = {
    FIELD(allocation_row, start, 'q'),     FIELD(allocation_row, free, 'q'),
    FIELD(allocation_row, end, 'q'),       FIELD(allocation_row, start_ns, 'Q'),
    FIELD(allocation_row, free_ns, 'Q'),   FIELD(allocation_row, address, 'Q'),
    FIELD(allocation_row, nth, 'I'),       FIELD(allocation_row, bytes, 'Q'),
    FIELD(allocation_row, requested, 'Q'), FIELD(allocation_row, stream, 'Q'),
    FIELD(allocation_row, stack, 'I'),     FIELD(allocation_row, file, 'I'),
    FIELD(allocation_row, line, 'q'),      FIELD(allocation_row, until, 'q'),
    FIELD(allocation_row, function, 'I'),  FIELD(allocation_row, module, 'I'),
    FIELD(allocation_row, name, 'I'),      FIELD(allocation_row, category, 'B'),
    FIELD(allocation_row, exact, 'B'),     FIELD(allocation_row, phase, 'B'),
    FIELD(allocation_row, how, 'B'),       FIELD(allocation_row, step, 'I'),
    FIELD(allocation_row, thread, 'I')};

static struct allocation_row
describe_allocation(const rows *r, size_t index)
{
    const ml_recording *recording = r->device.part;
    const ml_device_trace *trace = r->device.rows.trace;
    const ml_lifetime *row = &r->device.rows.lifetimes->rows[index];
    ml_earlier_block of = ml_lifetimes_request(r->device.rows.lifetimes, index);
    const ml_allocation_kind *kind = &r->kinds.list[r->device.rows.kinds[index]];
    const ml_frame *frame = &recording->frames[r->kinds.lines[kind->line].frame];
    struct allocation_row out = {.start = event_of(trace, row->start),
                                 .free = event_of(trace, row->requested),
                                 .end = event_of(trace, row->end),
                                 .start_ns = time_of(trace, row->start),
                                 .free_ns = time_of(trace, row->requested),
                                 .address = of.addr,
                                 .nth = r->device.rows.ordinals[index],
                                 .bytes = row->bytes,
                                 .requested = of.size,
                                 .stream = r->kinds.streams[kind->stream],
                                 .stack = kind->stack,
                                 .file = frame->filename,
                                 .line = frame->line,
                                 .until = kind->until,
                                 .function = frame->name,
                                 .module = kind->module,
                                 .name = kind->name,
                                 .category = kind->category,
                                 .exact = kind->exact,
                                 .phase = kind->phase,
                                 .how = kind->how};
    if (row->birth > 0) {
        size_t event = (size_t)row->birth - 1;
        out.step = ml_causes_step(r->causes, r->device.own, event);
        out.thread = ml_events_thread(&trace->events, event);
    }
    return out;
}

static int
make_allocations(ml_column_table *table, const ml_recording *recording, size_t device)
{
    rows r;
    int error = rows_init(&r, recording, device);
    size_t count = error == 0 ? r.device.rows.lifetimes->count : 0;
    if (error == 0) {
        error = ml_column_table_init(table, allocation_fields,
                                     COUNT_OF(allocation_fields), count);
    }
    for (size_t i = 0; i < count && error == 0; i++) {
        struct allocation_row row = describe_allocation(&r, i);
        ml_column_table_put(table, i, &row);
    }
    rows_fini(&r);
    return error;
}

/* ---- Memory at the end ---- */

struct segment_row {
    uint64_t address, bytes, allocated, active, requested, stream, pool_a, pool_b;
    uint32_t stack;
    uint8_t small, expandable;
};

static const ml_column_table_field segment_fields[] = {
    FIELD(segment_row, address, 'Q'),   FIELD(segment_row, bytes, 'Q'),
    FIELD(segment_row, allocated, 'Q'), FIELD(segment_row, active, 'Q'),
    FIELD(segment_row, requested, 'Q'), FIELD(segment_row, stream, 'Q'),
    FIELD(segment_row, pool_a, 'Q'),    FIELD(segment_row, pool_b, 'Q'),
    FIELD(segment_row, small, 'B'),     FIELD(segment_row, expandable, 'B'),
    FIELD(segment_row, stack, 'I')};

static int
make_segments(ml_column_table *table, const ml_device_trace *trace)
{
    int error = ml_column_table_init(table, segment_fields, COUNT_OF(segment_fields),
                                     trace->segment_count);
    for (size_t i = 0; i < trace->segment_count && error == 0; i++) {
        const ml_segment *s = &trace->segments[i];
        struct segment_row row = {.address = s->addr,
                                  .bytes = s->total,
                                  .allocated = s->allocated,
                                  .active = s->active,
                                  .requested = s->requested,
                                  .stream = s->stream,
                                  .pool_a = s->pool[0],
                                  .pool_b = s->pool[1],
                                  .stack = s->stack,
                                  .small = s->small != 0,
                                  .expandable = s->expandable != 0};
        ml_column_table_put(table, i, &row);
    }
    return error;
}

struct block_row {
    uint64_t segment, address, bytes, requested;
    uint32_t stack;
    uint8_t state;
};

static const ml_column_table_field block_fields[] = {
    FIELD(block_row, segment, 'Q'), FIELD(block_row, address, 'Q'),
    FIELD(block_row, bytes, 'Q'),   FIELD(block_row, requested, 'Q'),
    FIELD(block_row, state, 'B'),   FIELD(block_row, stack, 'I')};

static int
make_blocks(ml_column_table *table, const ml_device_trace *trace)
{
    int error = ml_column_table_init(table, block_fields, COUNT_OF(block_fields),
                                     trace->block_count);
    for (size_t i = 0; i < trace->segment_count && error == 0; i++) {
        const ml_segment *s = &trace->segments[i];
        for (size_t b = s->first_block; b < s->first_block + s->block_count; b++) {
            const ml_block *block = &trace->blocks[b];
            struct block_row row = {.segment = i,
                                    .address = block->addr,
                                    .bytes = block->size,
                                    .requested = block->requested,
                                    .stack = block->stack,
                                    .state = block->state};
            ml_column_table_put(table, b, &row);
        }
    }
    return error;
}

/* ---- The peaks of steps ---- */

struct step_row {
    uint64_t step, time_ns, allocated, reserved, most_reserved, bytes;
    int64_t event;
    uint32_t ooms;
    uint8_t category;
};

static const ml_column_table_field step_fields[] = {
    FIELD(step_row, step, 'Q'),     FIELD(step_row, event, 'q'),
    FIELD(step_row, time_ns, 'Q'),  FIELD(step_row, allocated, 'Q'),
    FIELD(step_row, reserved, 'Q'), FIELD(step_row, most_reserved, 'Q'),
    FIELD(step_row, ooms, 'I'),     FIELD(step_row, category, 'B'),
    FIELD(step_row, bytes, 'Q')};

static void
put_step(ml_column_table *table, size_t index, const ml_analysis *analysis,
         const ml_step_peak *peak)
{
    for (size_t i = 0; i < ML_CATEGORY_COUNT; i++) {
        struct step_row row = {
            .step = peak->step,
            .event = (int64_t)peak->event,
            .time_ns = ml_events_time(&analysis->trace->events, peak->event),
            .allocated = peak->allocated,
            .reserved = peak->reserved,
            .most_reserved = peak->most_reserved,
            .ooms = peak->ooms,
            .bytes = peak->by_category[i],
            .category = (uint8_t)i};
        ml_column_table_put(table, index * ML_CATEGORY_COUNT + i, &row);
    }
}

static int
make_steps(ml_column_table *table, const ml_recording *recording, size_t device)
{
    size_t own = device;
    const ml_recording *part = ml_recording_part(recording, &own);
    const ml_analysis *analysis;
    int error = ml_analysis_of(part, own, &analysis);
    ml_step_peaks peaks = {0};
    error = error < 0 ? error : ml_step_peaks_find(analysis, &peaks);
    if (error == 0) {
        error = ml_column_table_init(table, step_fields, COUNT_OF(step_fields),
                                     peaks.count * ML_CATEGORY_COUNT);
    }
    for (size_t i = 0; i < peaks.count && error == 0; i++) {
        put_step(table, i, analysis, &peaks.list[i]);
    }
    ml_step_peaks_fini(&peaks);
    return error;
}

/* ---- Notes ---- */

struct note_row {
    uint64_t time_ns;
    int64_t rank, device;
    uint64_t values[ML_NOTE_VALUES];
    uint32_t name, thread;
    uint8_t kind;
};

#define VALUE(name, index) \
    { \
        name, 'Q', offsetof(struct note_row, values[index]) \
    }

static const ml_column_table_field note_fields[] = {FIELD(note_row, time_ns, 'Q'),
                                                    FIELD(note_row, kind, 'B'),
                                                    FIELD(note_row, name, 'I'),
                                                    FIELD(note_row, rank, 'q'),
                                                    FIELD(note_row, device, 'q'),
                                                    FIELD(note_row, thread, 'I'),
                                                    VALUE("value_0", 0),
                                                    VALUE("value_1", 1),
                                                    VALUE("value_2", 2),
                                                    VALUE("value_3", 3),
                                                    VALUE("value_4", 4),
                                                    VALUE("value_5", 5),
                                                    VALUE("value_6", 6)};

/* The notes of PART, from row *NEXT on; FIRST: number of devices in earlier ranks. */
static void
put_notes(ml_column_table *table, const ml_recording *part, int64_t rank, size_t first,
          size_t *next)
{
    for (size_t i = 0; i < part->note_count; i++) {
        const ml_note *note = &part->notes[i];
        struct note_row row = {
            .time_ns = note->time,
            .rank = rank,
            .device = note->device < 0 ? -1 : (int64_t)first + note->device,
            .name = note->name,
            .thread = note->thread,
            .kind = note->kind};
        memcpy(row.values, note->values, sizeof(row.values));
        ml_column_table_put(table, (*next)++, &row);
    }
}

static int
make_notes(ml_column_table *table, const ml_recording *recording)
{
    bool merged = ml_recording_is_merged(recording);
    size_t count = recording->note_count;
    size_t next = 0;
    for (size_t i = 0; merged && i < recording->rank_count; i++) {
        count += recording->ranks[i].part->note_count;
    }
    int error = ml_column_table_init(table, note_fields, COUNT_OF(note_fields), count);
    for (size_t i = 0; error == 0 && merged && i < recording->rank_count; i++) {
        const ml_rank *rank = &recording->ranks[i];
        put_notes(table, rank->part, rank->rank, rank->first_device, &next);
    }
    if (error == 0 && !merged) {
        int64_t rank = recording->rank_count > 0 ? recording->ranks[0].rank : -1;
        put_notes(table, recording, rank, 0, &next);
    }
    return error;
}

/* ---- Stacks ---- */

struct stack_row {
    uint32_t parent, frame, module;
};

static const ml_column_table_field stack_fields[] = {FIELD(stack_row, parent, 'I'),
                                                     FIELD(stack_row, frame, 'I'),
                                                     FIELD(stack_row, module, 'I')};

static int
make_stacks(ml_column_table *table, const ml_recording *recording)
{
    int error = ml_column_table_init(table, stack_fields, COUNT_OF(stack_fields),
                                     recording->stack_count);
    for (size_t i = 0; i < recording->stack_count && error == 0; i++) {
        const ml_stack *stack = &recording->stacks[i];
        struct stack_row row = {stack->parent, stack->frame, stack->module};
        ml_column_table_put(table, i, &row);
    }
    return error;
}

struct frame_row {
    int64_t line;
    uint32_t function, file;
};

static const ml_column_table_field frame_fields[] = {FIELD(frame_row, function, 'I'),
                                                     FIELD(frame_row, file, 'I'),
                                                     FIELD(frame_row, line, 'q')};

static int
make_frames(ml_column_table *table, const ml_recording *recording)
{
    int error = ml_column_table_init(table, frame_fields, COUNT_OF(frame_fields),
                                     recording->frame_count);
    for (size_t i = 0; i < recording->frame_count && error == 0; i++) {
        const ml_frame *frame = &recording->frames[i];
        struct frame_row row = {frame->line, frame->name, frame->filename};
        ml_column_table_put(table, i, &row);
    }
    return error;
}

static int
make_strings(ml_column_table *table, const ml_recording *recording)
{
    static const ml_column_table_field fields[] = {{"offsets", 'q', 0},
                                                   {"bytes", 'B', 0}};
    int error = ml_column_table_init(table, fields, 1, recording->string_count + 1);
    uint64_t length = 0;
    for (size_t i = 0; i < recording->string_count; i++) {
        length += recording->strings[i].length;
    }
    char *bytes = error < 0 ? NULL : ml_alloc_zeroed(length + 1, 1);
    if (bytes == NULL) {
        return ML_ENOMEM;
    }
    table->columns[table->column_count++] =
        (ml_column_table_column){"bytes", 'B', bytes, (size_t)length};
    int64_t *offsets = table->columns[0].items;
    for (size_t i = 0; i < recording->string_count; i++) {
        ml_string text = recording->strings[i];
        if (text.length > 0) {
            memcpy(bytes + offsets[i], text.bytes, text.length);
        }
        ml_text_replace_surrogates(bytes + offsets[i], text.length);
        offsets[i + 1] = offsets[i] + text.length;
    }
    return 0;
}

int
ml_recording_tables_make(ml_column_table *table, const ml_recording *recording,
                         enum ml_recording_table_kind kind, size_t device)
{
    *table = (ml_column_table){0};
    switch (kind) {
    case ML_RECORDING_TABLE_EVENTS:
        return make_events(table, recording, device);
    case ML_RECORDING_TABLE_ALLOCATIONS:
        return make_allocations(table, recording, device);
    case ML_RECORDING_TABLE_SEGMENTS:
        return make_segments(table, &recording->devices[device]);
    case ML_RECORDING_TABLE_BLOCKS:
        return make_blocks(table, &recording->devices[device]);
    case ML_RECORDING_TABLE_STEPS:
        return make_steps(table, recording, device);
    case ML_RECORDING_TABLE_NOTES:
        return make_notes(table, recording);
    case ML_RECORDING_TABLE_STACKS:
        return make_stacks(table, recording);
    case ML_RECORDING_TABLE_FRAMES:
        return make_frames(table, recording);
    default:
        return make_strings(table, recording);
    }
}
