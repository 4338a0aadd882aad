/* Control records of files built by hand: starts, definitions and origins, in parts, lost and
 * without sense. */
#include "file/codec/chunk.h"
#include "file/codec/mlab_format.h"
#include "mlab_reads.h"
#include "mlab_samples.h"
#include "test.h"
#include "plain_events.h"

static void
add_part(ml_chunk_writer *control, uint32_t device, uint64_t events, uint64_t number)
{
    ml_mlab_start start = {.events = events,
                           .max_split_bytes = UINT64_MAX,
                           .device = device,
                           .has_segments = 1};
    ml_mlab_segment segment = {.addr = (UINT64_C(1) << 41) + (number << 21),
                               .total = 2 << 20,
                               .device = device};
    ml_mlab_block block = {.addr = segment.addr,
                           .size = 1 << 20,
                           .requested = 1 << 20,
                           .device = device,
                           .state = ML_BLOCK_ALLOCATED};
    ml_chunk_append(control, ML_MLAB_START, &start, sizeof(start));
    ml_chunk_append(control, ML_MLAB_SEGMENT, &segment, sizeof(segment));
    ml_chunk_append(control, ML_MLAB_BLOCK, &block, sizeof(block));
}

static void
add_started(ml_chunk_writer *control, uint32_t device)
{
    ml_mlab_device whole = {.device = device};
    ml_chunk_append(control, ML_MLAB_STARTED, &whole, sizeof(whole));
}

/* As early writers had it, parts of one start go together; a later start does not. */
static void
test_starts_in_parts(void)
{
    begin(&file);
    ml_chunk_writer control = add_chunk(&file, ML_MLAB_CONTROL, 0, 0, 0);
    add_part(&control, 0, 0, 0);
    add_part(&control, 1, 0, 1);
    add_part(&control, 0, 0, 2);
    add_part(&control, 2, 0, 3);
    add_started(&control, 0);
    add_part(&control, 1, 0, 4);
    add_started(&control, 1);
    /* Not a part of the first: device 1 was complete, device 2 came further. */
    add_part(&control, 1, 0, 5);
    add_started(&control, 1);
    add_part(&control, 2, 1, 6);
    add_started(&control, 2);
    CHECK_INT(read_sample(&file), 0);
    CHECK_UINT(info.unknown_starts, 0);
    CHECK_UINT(info.unread_records, 0);
    CHECK_UINT(info.repeated_starts, 1);
    CHECK_UINT(recording->device_count, 3);
    CHECK_UINT(recording->devices[0].segment_count, 2);
    CHECK_UINT(recording->devices[0].peak.allocated, 2 << 20);
    CHECK_UINT(recording->devices[1].segment_count, 1);
    CHECK_UINT(recording->devices[1].segments[0].addr, (UINT64_C(1) << 41) + (5 << 21));
    CHECK_UINT(recording->devices[2].segment_count, 1);
}

static void
test_lost_control_records(void)
{
    build(&file);
    chunk_at(&file, 1)->flags = 0;
    CHECK_INT(read_sample(&file), 0);
    CHECK_UINT(info.lost_records, 8);
    CHECK_UINT(info.unknown_starts, 2);
    CHECK_UINT(events_of(0), 6);
}

/* Notes that go back in time, owners whose names are lost, a name for an object with more
 * than 32 bits, blocks that overlap, settings without end. */
static void
test_control_records_without_sense(void)
{
    begin(&file);
    ml_chunk_writer control = add_chunk(&file, ML_MLAB_CONTROL, 0, 0, 0);
    static const uint64_t times[] = {5, 7, 6, 7, 0, 8};
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        ml_mlab_note note = {.time = times[i],
                             .kind = ML_NOTE_MARK,
                             .device = -1,
                             .thread = (uint16_t)i,
                             .thread_high = 1};
        ml_chunk_append(&control, ML_MLAB_NOTE, &note, sizeof(note));
    }
    ml_mlab_name name = {.object = (UINT64_C(1) << 32) + 1};
    ml_chunk_append(&control, ML_MLAB_NAME, &name, sizeof(name));
    add_start(&control, 0);
    ml_mlab_start start = {.max_split_bytes = UINT64_MAX, .has_segments = 1};
    ml_mlab_segment segment = {.addr = UINT64_C(1) << 40, .total = 64 << 20};
    ml_mlab_segment inside = {.addr = (UINT64_C(1) << 40) + 512, .total = 512};
    ml_mlab_block block = {.addr = segment.addr, .size = 2048, .state = 1};
    ml_chunk_append(&control, ML_MLAB_START, &start, sizeof(start));
    ml_chunk_append(&control, ML_MLAB_SEGMENT, &segment, sizeof(segment));
    ml_chunk_append(&control, ML_MLAB_BLOCK, &block, sizeof(block));
    block.addr += 1024;
    ml_chunk_append(&control, ML_MLAB_BLOCK, &block, sizeof(block));
    ml_chunk_append(&control, ML_MLAB_SEGMENT, &inside, sizeof(inside));
    static const uint8_t owners[] = {0x80 | ML_CATEGORY_BUFFER, 0, 1, 0, 1, 'h',
                                     0x40 | ML_CATEGORY_BUFFER, 0, 1, 0, 0, 'w'};
    ml_chunk_append(&control, ML_MLAB_TAG, owners, 6);
    ml_chunk_append(&control, ML_MLAB_TAG, owners + 6, 6);
    /* Twice the same line, one without a number, and one whose names pass its end. */
    struct {
        ml_mlab_code_line head;
        char texts[8];
    } code = {{.changed_us = 9,
               .line = 3,
               .first_line = 2,
               .last_line = 4,
               .file_bytes = 2,
               .name_bytes = 1,
               .qualname_bytes = 3,
               .forward = ML_CODE_FORWARD_FUNCTIONS},
              "ab"
              "f"
              "c.f"
              "xy"};
    for (int i = 0; i < 4; i++) {
        ml_chunk_append(&control, ML_MLAB_CODE_LINE, &code,
                        (uint32_t)sizeof(code.head) + 8);
        code.texts[7] = 'z';
        code.head.line = i == 1 ? 0 : 3;
        code.head.qualname_bytes = i == 2 ? 6 : 3;
    }
    ml_chunk_append(&control, ML_MLAB_CODE_LINE, &code,
                    (uint32_t)sizeof(code.head) - 1);
    CHECK_INT(read_sample(&file), 0);
    CHECK_UINT(recording->code_line_count, 1);
    const ml_code_line *line = &recording->code_lines[0];
    const ml_string *texts[] = {
        &recording->strings[line->filename], &recording->strings[line->name],
        &recording->strings[line->qualname], &recording->strings[line->text]};
    CHECK_TEXT(texts[0]->bytes, texts[0]->length, "ab");
    CHECK_TEXT(texts[1]->bytes, texts[1]->length, "f");
    CHECK_TEXT(texts[2]->bytes, texts[2]->length, "c.f");
    CHECK_TEXT(texts[3]->bytes, texts[3]->length, "xy");
    CHECK_INT(line->line, 3);
    CHECK_INT(line->first_line, 2);
    CHECK_INT(line->last_line, 4);
    CHECK_INT(line->changed_us, 9);
    CHECK_INT(line->forward, ML_CODE_FORWARD_FUNCTIONS);
    CHECK_UINT(recording->note_count, 4);
    CHECK_UINT(recording->notes[3].time, 8);
    CHECK_UINT(recording->notes[3].thread, 65536 + 5);
    const ml_device_trace *trace = &recording->devices[0];
    CHECK_UINT(trace->segment_count, 1);
    CHECK_UINT(trace->segments[0].allocated, 2048);
    CHECK_UINT(trace->tag_count, 2);
    CHECK_UINT(trace->lost_names, 2);
    const ml_string *text = &recording->strings[trace->tags[0].name];
    CHECK_TEXT(text->bytes, text->length, "<lost>");
    text = &recording->strings[trace->tags[0].module];
    CHECK_TEXT(text->bytes, text->length, "h");
    text = &recording->strings[trace->tags[1].module];
    CHECK_TEXT(text->bytes, text->length, "<lost>");
    CHECK_UINT(trace->tags[1].category, ML_CATEGORY_BUFFER);
    /* Two notes, the name, a block and a segment, three lines of code. */
    CHECK_UINT(info.unread_records, 8);
}

static void
add_origin_frame(ml_chunk_writer *control, uint32_t id, uint32_t caller,
                 uint32_t name_bytes)
{
    struct {
        ml_mlab_origin_frame head;
        char text[8];
    } record = {
        .head = {.id = id, .caller = caller, .name_bytes = name_bytes, .line = 5},
        .text = "stepm.py"};
    ml_chunk_append(control, ML_MLAB_ORIGIN_FRAME, &record, sizeof(record));
}

static void
add_origin_line(ml_chunk_writer *control, int64_t line, uint32_t frame)
{
    struct {
        ml_mlab_origin_line head;
        char text[7];
    } record = {.head = {.line = line, .frame = frame}, .text = "made.py"};
    ml_chunk_append(control, ML_MLAB_ORIGIN_LINE, &record,
                    offsetof(__typeof__(record), text) + sizeof(record.text));
}

/* A hole among the frames that made compiled code: none behind it becomes another's. */
static void
test_origins_without_sense(void)
{
    begin(&file);
    ml_chunk_writer control = add_chunk(&file, ML_MLAB_CONTROL, 0, 0, 0);
    add_start(&control, 0);
    add_origin_frame(&control, 1, 0, 4);
    add_origin_frame(&control, 2, 7, 4);  /* no such caller */
    add_origin_frame(&control, 2, 1, 99); /* no such name */
    add_origin_frame(&control, 3, 1, 4);  /* behind a hole */
    add_origin_line(&control, 3, 1);
    add_origin_line(&control, 2, 1); /* back */
    add_origin_line(&control, 9, 3); /* not taken */
    ml_mlab_origin_line none = {.line = 1, .frame = 1};
    ml_chunk_append(&control, ML_MLAB_ORIGIN_LINE, &none, sizeof(none)); /* no path */
    ml_chunk_append(&control, ML_MLAB_ORIGIN_LINE, &none, 4);
    ml_chunk_append(&control, ML_MLAB_ORIGIN_FRAME, &none, 4);
    static const char made[] = "made.py";
    struct {
        ml_mlab_string head;
        char text[sizeof(made) - 1];
    } path = {.head = {.id = 1, .total = sizeof(made) - 1}};
    memcpy(path.text, made, sizeof(path.text));
    ml_chunk_writer events = add_chunk(&file, ML_MLAB_EVENTS, 0, 0, 0);
    ml_chunk_append(&events, ML_MLAB_STRING, &path,
                    (uint32_t)(sizeof(path.head) + sizeof(path.text)));
    ml_mlab_code code = {.id = 1, .filename = 1};
    ml_chunk_append(&events, ML_MLAB_CODE, &code, sizeof(code));
    for (uint32_t i = 1; i <= 2; i++) {
        ml_mlab_node node = {.id = i, .code = 1, .offset = 2 * i};
        ml_chunk_append(&events, ML_MLAB_NODE, &node, sizeof(node));
    }
    add_event(&events, 0);
    CHECK_INT(read_sample(&file), 0);
    CHECK_UINT(info.unread_records, 8);
    /* The event's is line 4, which line 3 began. */
    uint32_t stack = plain_events(&recording->devices[0])[0].stack;
    CHECK_INT(recording->frames[recording->stacks[stack].frame].line, 4);
    stack = recording->stacks[stack].parent;
    CHECK(stack != 0);
    ml_frame frame = recording->frames[recording->stacks[stack].frame];
    CHECK_INT(frame.line, 5);
    CHECK_TEXT(recording->strings[frame.name].bytes,
               recording->strings[frame.name].length, "step");
    CHECK_TEXT(recording->strings[frame.filename].bytes,
               recording->strings[frame.filename].length, "m.py");
    CHECK_UINT(recording->stacks[stack].parent, 0);
}

int
main(void)
{
    RUN(test_starts_in_parts);
    RUN(test_lost_control_records);
    RUN(test_control_records_without_sense);
    RUN(test_origins_without_sense);
    forget();
    return TEST_RESULT();
}
