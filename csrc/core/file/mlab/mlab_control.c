/* Reads the control lane of a .mlab file: memory at the start, settings, owners, notes,
 * clock.  See mlab_reader.h. */
#include <string.h>

#include "base/varint.h"
#include "file/mlab/mlab_parts.h"
#include "recording/side_data.h"
#include "stacks/stacks_records.h"

/* ---- Names ---- */

int
mlab_add_name(mlab_reader *reader, const uint8_t *bytes, size_t length, uint32_t *id)
{
    return ml_interner_string(&reader->interner, (const char *)bytes, length, id);
}

static int
add_lost_name(mlab_reader *reader, uint32_t *id)
{
    return mlab_add_name(reader, (const uint8_t *)ML_NAME_LOST, strlen(ML_NAME_LOST),
                         id);
}

/* ---- Records ---- */

static int
leave_out(mlab_reader *reader)
{
    reader->info->unread_records++;
    return 0;
}

/* Only a lack of memory keeps the file from being read. */
static int
taken(mlab_reader *reader, int result)
{
    return result == 0 || result == ML_ENOMEM ? result : leave_out(reader);
}

static int
take_start(mlab_reader *reader, const ml_mlab_start *head)
{
    if (head->device >= ML_DEVICE_MAX) {
        return leave_out(reader);
    }
    mlab_start *start = &reader->starts[head->device];
    if (start->known && !start->complete && start->head.events == head->events) {
        /* Early writers repeated a start record after one of another device: this
         * continues the start. */
        start->repeated |= start->segment_count > 0;
        return 0;
    }
    start->head = *head;
    start->known = true;
    start->complete = false;
    start->repeated = false;
    start->left_out = false;
    start->segment_count = 0;
    start->block_count = 0;
    return 0;
}

static int
take_started(mlab_reader *reader, const ml_mlab_device *record)
{
    if (record->device >= ML_DEVICE_MAX) {
        return leave_out(reader);
    }
    reader->starts[record->device].complete = true;
    return 0;
}

static int
take_segment(mlab_reader *reader, const ml_packed_other *record)
{
    uint32_t device;
    ml_segment segment;
    if (!ml_mlab_segment_read(record, &device, &segment) || device >= ML_DEVICE_MAX ||
        !reader->starts[device].known) {
        return leave_out(reader);
    }
    mlab_start *start = &reader->starts[device];
    start->left_out = segment.total > ML_SIZE_MOST;
    if (start->left_out) {
        reader->recording->unread[ML_UNREAD_SEGMENT_TOTAL_SIZE]++;
        return 0;
    }
    if (ml_grow((void **)&start->segments, &start->segment_capacity,
                start->segment_count + 1, sizeof(*start->segments)) < 0) {
        return ML_ENOMEM;
    }
    segment.first_block = start->block_count;
    start->segments[start->segment_count++] = segment;
    return 0;
}

static int
take_block(mlab_reader *reader, const ml_packed_other *record)
{
    uint32_t device;
    ml_block block;
    if (!ml_mlab_block_read(record, &device, &block) || device >= ML_DEVICE_MAX) {
        return leave_out(reader);
    }
    mlab_start *start = &reader->starts[device];
    if (start->left_out) {
        return 0;
    }
    if (start->segment_count == 0 || block.state > ML_BLOCK_PENDING_FREE) {
        return leave_out(reader);
    }
    if (block.size > ML_SIZE_MOST) {
        reader->recording->unread[ML_UNREAD_BLOCK_SIZE]++;
        return 0;
    }
    if (block.requested > ML_SIZE_MOST) {
        reader->recording->unread[ML_UNREAD_BLOCK_REQUESTED_SIZE]++;
        block.requested = block.size;
    }
    if (ml_grow((void **)&start->blocks, &start->block_capacity, start->block_count + 1,
                sizeof(*start->blocks)) < 0) {
        return ML_ENOMEM;
    }
    start->blocks[start->block_count++] = block;
    start->segments[start->segment_count - 1].block_count++;
    return 0;
}

static int
take_setting(mlab_reader *reader, const ml_mlab_setting *record, const uint8_t *text,
             size_t length)
{
    size_t key_bytes = record->key_bytes < length ? record->key_bytes : length;
    ml_setting setting = {
        .kind = record->kind, .integer = record->integer, .real = record->real};
    memcpy(setting.divisions, record->divisions, sizeof(setting.divisions));
    int result = mlab_add_name(reader, text, key_bytes, &setting.key);
    if (result == 0) {
        result =
            mlab_add_name(reader, text + key_bytes, length - key_bytes, &setting.text);
    }
    return result == 0
               ? taken(reader,
                       ml_recording_add_setting(reader->recording,
                                                &reader->setting_capacity, &setting))
               : result;
}

static int
take_tag(mlab_reader *reader, const ml_packed_other *record)
{
    ml_mlab_tag from;
    if (!ml_mlab_tag_read(record, &from)) {
        return leave_out(reader);
    }
    mlab_tag tag = {.addr = from.addr,
                    .place = from.place,
                    .category = from.category,
                    .device = from.device,
                    .lost = (uint8_t)(from.name_lost + from.module_lost)};
    int result = from.module_lost ? add_lost_name(reader, &tag.module)
                                  : mlab_add_name(reader, from.module,
                                                  from.module_bytes, &tag.module);
    if (result == 0) {
        result = from.name_lost
                     ? add_lost_name(reader, &tag.name)
                     : mlab_add_name(reader, from.name, from.name_bytes, &tag.name);
    }
    if (result == 0) {
        result = ml_grow((void **)&reader->tags, &reader->tag_capacity,
                         reader->tag_count + 1, sizeof(tag));
    }
    if (result == 0) {
        tag.order = reader->tag_count;
        reader->tags[reader->tag_count++] = tag;
    }
    return result;
}

static int
take_use(mlab_reader *reader, const ml_packed_other *record)
{
    const uint8_t *at = record->bytes;
    const uint8_t *end = at + record->length;
    mlab_use use = {0};
    if (record->length < 1) {
        return leave_out(reader);
    }
    use.device = *at++;
    if (!ml_varint_read(&at, end, &use.addr) || !ml_varint_read(&at, end, &use.place) ||
        use.device >= ML_DEVICE_MAX) {
        return leave_out(reader);
    }
    if (ml_grow((void **)&reader->uses, &reader->use_capacity, reader->use_count + 1,
                sizeof(use)) < 0) {
        return ML_ENOMEM;
    }
    reader->uses[reader->use_count++] = use;
    return 0;
}

static int
take_note(mlab_reader *reader, const ml_mlab_note *record, const uint8_t *name,
          size_t length)
{
    ml_recording *recording = reader->recording;
    if (record->kind >= ML_NOTE_COUNT) {
        return leave_out(reader);
    }
    ml_note note = {
        .time = record->time,
        .device = record->device,
        .thread = record->thread | (uint32_t)record->thread_high << 16,
        .kind = record->kind,
    };
    memcpy(note.values, record->values, sizeof(note.values));
    int result = mlab_add_name(reader, name, length, &note.name);
    if (result == 0) {
        result = ml_grow((void **)&recording->notes, &reader->note_capacity,
                         recording->note_count + 1, sizeof(note));
    }
    if (result == 0) {
        recording->notes[recording->note_count++] = note;
    }
    return result;
}

static int
take_name(mlab_reader *reader, const ml_mlab_name *record, const uint8_t *text,
          size_t length)
{
    if (record->object > UINT32_MAX) {
        return leave_out(reader);
    }
    mlab_name name = {.object = (uint32_t)record->object};
    int result = mlab_add_name(reader, text, length, &name.name);
    if (result == 0) {
        result = ml_grow((void **)&reader->names, &reader->name_capacity,
                         reader->name_count + 1, sizeof(name));
    }
    if (result == 0) {
        reader->names[reader->name_count++] = name;
    }
    return result;
}

/* Ids are indices: after a hole they would be wrong, so nothing more is taken. */
static int
take_origin_frame(mlab_reader *reader, const ml_mlab_origin_frame *record,
                  const uint8_t *text, size_t length)
{
    ml_origins *origins = &reader->stacks->origins;
    size_t next = origins->frame_table.count;
    if (record->name_bytes > length || record->id != (next > 0 ? next : 1)) {
        return leave_out(reader);
    }
    ml_slice name = {.bytes = (const char *)text, .length = record->name_bytes};
    ml_slice filename = {.bytes = (const char *)text + record->name_bytes,
                         .length = length - record->name_bytes};
    uint32_t id;
    return taken(reader, ml_origins_add_frame(origins, record->caller, name, filename,
                                              record->line, &id));
}

static int
take_origin_line(mlab_reader *reader, const ml_mlab_origin_line *record,
                 const uint8_t *text, size_t length)
{
    ml_slice path = {.bytes = (const char *)text, .length = length};
    return taken(reader, ml_origins_add_line(&reader->stacks->origins, path,
                                             record->line, record->frame));
}

/* The first text of a line counts. */
static int
take_code_line(mlab_reader *reader, const ml_mlab_code_line *record,
               const uint8_t *texts, size_t length)
{
    ml_code_line line = {.line = record->line,
                         .first_line = record->first_line,
                         .last_line = record->last_line,
                         .changed_us = record->changed_us,
                         .forward = ml_code_forward_of(record->forward)};
    size_t names =
        (size_t)record->file_bytes + record->name_bytes + record->qualname_bytes;
    if (names > length || line.line == 0) {
        return leave_out(reader);
    }
    const struct {
        size_t bytes;
        uint32_t *id;
    } parts[] = {{record->file_bytes, &line.filename},
                 {record->name_bytes, &line.name},
                 {record->qualname_bytes, &line.qualname},
                 {length - names, &line.text}};
    int result = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && result == 0; i++) {
        result = mlab_add_name(reader, texts, parts[i].bytes, parts[i].id);
        texts += parts[i].bytes;
    }
    return result < 0 ? result
                      : ml_recording_add_first_code_line(reader->recording,
                                                         &reader->code_lines, line);
}

static int
take_clock(mlab_reader *reader, const ml_mlab_clock *clock)
{
    if (ml_grow((void **)&reader->clocks, &reader->clock_capacity,
                reader->clock_count + 1, sizeof(*clock)) < 0) {
        return ML_ENOMEM;
    }
    reader->clocks[reader->clock_count++] = *clock;
    return 0;
}

static int
take_trim(mlab_reader *reader, const ml_mlab_trim *record)
{
    if (reader->trims == 0) {
        return leave_out(reader);
    }
    reader->trim = *record;
    reader->info->gone_steps = record->steps;
    return 0;
}

static int
take_trim_lane(mlab_reader *reader, const ml_mlab_trim_lane *record)
{
    bool known = reader->trims != 0 && record->lane <= ML_MLAB_LANES &&
                 record->missing <= record->gone && record->gone <= record->events;
    for (size_t i = 0; i < sizeof(record->peaks) / sizeof(record->peaks[0]); i++) {
        known = known && record->peaks[i] <= ML_SIZE_MOST;
    }
    if (!known) {
        return leave_out(reader);
    }
    ml_mlab_trim_lane *lane = &reader->trim_lanes[record->lane];
    reader->info->gone_events += record->gone - lane->gone;
    *lane = *record;
    return 0;
}

int
mlab_control(mlab_reader *reader, const ml_packed_other *record)
{
    union {
        ml_mlab_clock clock;
        ml_mlab_start start;
        ml_mlab_device device;
        ml_mlab_setting setting;
        ml_mlab_note note;
        ml_mlab_name name;
        ml_mlab_origin_frame origin_frame;
        ml_mlab_origin_line origin_line;
        ml_mlab_code_line code_line;
        ml_mlab_trim trim;
        ml_mlab_trim_lane trim_lane;
    } fixed;
    /* Of those that begin with a struct. */
    static const uint8_t sizes[] = {[ML_MLAB_CLOCK] = sizeof(fixed.clock),
                                    [ML_MLAB_START] = sizeof(fixed.start),
                                    [ML_MLAB_STARTED] = sizeof(fixed.device),
                                    [ML_MLAB_SETTING] = sizeof(fixed.setting),
                                    [ML_MLAB_NOTE] = sizeof(fixed.note),
                                    [ML_MLAB_NAME] = sizeof(fixed.name),
                                    [ML_MLAB_ORIGIN_FRAME] = sizeof(fixed.origin_frame),
                                    [ML_MLAB_ORIGIN_LINE] = sizeof(fixed.origin_line),
                                    [ML_MLAB_CODE_LINE] = sizeof(fixed.code_line),
                                    [ML_MLAB_TRIM] = sizeof(fixed.trim),
                                    [ML_MLAB_TRIM_LANE] = sizeof(fixed.trim_lane)};
    const uint8_t *rest = NULL;
    size_t left = 0;
    size_t size = record->kind < sizeof(sizes) ? sizes[record->kind] : 0;
    if (size != 0 && !ml_mlab_record_split(record, &fixed, size, &rest, &left)) {
        return leave_out(reader);
    }
    switch (record->kind) {
    case ML_MLAB_CLOCK:
        return take_clock(reader, &fixed.clock);
    case ML_MLAB_START:
        return take_start(reader, &fixed.start);
    case ML_MLAB_SEGMENT:
        return take_segment(reader, record);
    case ML_MLAB_BLOCK:
        return take_block(reader, record);
    case ML_MLAB_STARTED:
        return take_started(reader, &fixed.device);
    case ML_MLAB_SETTING:
        return take_setting(reader, &fixed.setting, rest, left);
    case ML_MLAB_TAG:
        return take_tag(reader, record);
    case ML_MLAB_USE:
        return take_use(reader, record);
    case ML_MLAB_NOTE:
        return take_note(reader, &fixed.note, rest, left);
    case ML_MLAB_NAME:
        return take_name(reader, &fixed.name, rest, left);
    case ML_MLAB_ORIGIN_FRAME:
        return take_origin_frame(reader, &fixed.origin_frame, rest, left);
    case ML_MLAB_ORIGIN_LINE:
        return take_origin_line(reader, &fixed.origin_line, rest, left);
    case ML_MLAB_CODE_LINE:
        return take_code_line(reader, &fixed.code_line, rest, left);
    case ML_MLAB_TRIM:
        return take_trim(reader, &fixed.trim);
    case ML_MLAB_TRIM_LANE:
        return take_trim_lane(reader, &fixed.trim_lane);
    default:
        return leave_out(reader);
    }
}
