/* Files of recordings built by hand, whole and hostile: what is damaged is left out and
 * counted, what cannot be read at all is refused in words. */
#include "budget.h"
#include "file/codec/chunk.h"
#include "file/codec/mlab_format.h"
#include "mlab_reads.h"
#include "mlab_samples.h"
#include "stacks/wanted.h"
#include "test.h"
#include "plain_events.h"

static void
test_a_whole_file(void)
{
    build(&file);
    CHECK_INT(read_sample(&file), 0);
    CHECK(info.ended);
    CHECK_UINT(recording->device_count, 2);
    CHECK_UINT(events_of(0), 6);
    CHECK_UINT(events_of(1), 2);
    CHECK_UINT(info.damaged_chunks, 0);
    CHECK_UINT(info.gap_count, 0);
    CHECK_UINT(info.lost_records, 0);
    CHECK_UINT(info.unread_records, 0);
    CHECK_UINT(info.native_frames, 2);
    CHECK_UINT(info.unknown_starts, 0);
    CHECK_UINT(recording->devices[0].peak.allocated, 6 << 20);
    CHECK_UINT(recording->devices[0].tag_count, 1);
    CHECK_UINT(recording->devices[0].tags[0].position, 3);
    CHECK_UINT(recording->devices[0].tags[0].addr, 1);
}

static void
refused(const char *text)
{
    CHECK_INT(read_sample(&file), ML_EFORMAT);
    CHECK(recording == NULL);
    if (strstr(failure.text, text) == NULL) {
        CHECK_STR(failure.text, text);
    }
}

static void
test_headers_that_are_refused(void)
{
    build(&file);
    file.length = sizeof(ml_mlab_header) - 1;
    refused("ends within its header");
    build(&file);
    file.bytes[0] = 'M';
    refused("no .mlab file");
    build(&file);
    header_of(&file)->byte_order = 0x04030201;
    refused("another byte order");
    build(&file);
    file.bytes[40] ^= 1;
    refused("the header is damaged");
    build(&file);
    header_of(&file)->version = ML_MLAB_VERSION + 1;
    seal_header(&file);
    refused("version 2 of the format, this memlab reads version 1");
    build(&file);
    header_of(&file)->required = UINT64_C(1) << 63;
    seal_header(&file);
    refused("version 1 of the format and features unknown here");
    static const uint32_t sizes[] = {
        0, 1, CHUNK - 1, CHUNK + 1, CHUNK / 2, ML_MLAB_CHUNK_MOST * 2, UINT32_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        build(&file);
        header_of(&file)->chunk_bytes = sizes[i];
        seal_header(&file);
        refused("the header makes no sense");
    }
    build(&file);
    memset(header_of(&file)->host, 'x', sizeof(header_of(&file)->host));
    seal_header(&file);
    refused("the header makes no sense");
}

/* An optional feature is nothing to who does not know it. */
static void
test_optional_features_are_passed_over(void)
{
    build(&file);
    header_of(&file)->optional = UINT64_MAX;
    seal_header(&file);
    CHECK_INT(read_sample(&file), 0);
    CHECK_UINT(events_of(0), 6);
}

/* The second chunk of device 0 is left out, and its three events are missed. */
static void
second_is_damaged(void)
{
    CHECK_INT(read_sample(&file), 0);
    CHECK_UINT(info.damaged_chunks, 1);
    CHECK_UINT(events_of(0), 3);
    CHECK_UINT(events_of(1), 2);
    CHECK_UINT(info.gap_count, 1);
    CHECK_UINT(info.gaps[0].position, 3);
    CHECK_UINT(info.gaps[0].lost, 3);
    CHECK_UINT(recording->devices[0].dropped_events, 3);
}

static void
test_chunks_that_are_left_out(void)
{
    ml_chunk *second = chunk_at(&file, 3);
    build(&file);
    second->magic ^= 1;
    second_is_damaged();
    build(&file);
    second->version = 9;
    second_is_damaged();
    build(&file);
    second->kind = 7;
    second_is_damaged();
    build(&file);
    second->device = ML_MLAB_LANES;
    second_is_damaged();
    build(&file);
    second->lane = 1;
    second_is_damaged();
    build(&file);
    second->bytes = 0;
    second_is_damaged();
    build(&file);
    second->bytes = UINT32_MAX;
    second_is_damaged();
    build(&file);
    second->flags = 0;
    second_is_damaged();
    build(&file);
    atomic_fetch_add(&second->commit, CHUNK);
    second_is_damaged();
    build(&file);
    atomic_fetch_xor(&second->commit, UINT64_C(1) << 40);
    second_is_damaged();
    /* It begins within the first one. */
    build(&file);
    second->index = 0;
    second->first = 0;
    second_is_damaged();
}

static void
test_a_missing_chunk_is_a_gap(void)
{
    build(&file);
    memset(chunk_at(&file, 2), 0, CHUNK);
    CHECK_INT(read_sample(&file), 0);
    CHECK_UINT(info.damaged_chunks, 0);
    CHECK_UINT(events_of(0), 3);
    CHECK_UINT(info.gap_count, 1);
    CHECK_UINT(info.gaps[0].position, 0);
    CHECK_UINT(info.gaps[0].lost, 3);
    /* The file ends within device 1. */
    build(&file);
    file.length -= CHUNK;
    CHECK_INT(read_sample(&file), 0);
    CHECK_UINT(info.gap_count, 1);
    CHECK_UINT(info.gaps[0].device, 1);
    CHECK_UINT(info.gaps[0].lost, 2);
}

/* A recording beside this one wanted to know when blocks were last used, and its records
 * are shared: here they say nothing. */
static void
test_uses_that_another_recording_wanted(void)
{
    for (uint64_t wanted = 0; wanted <= ML_MLAB_USES; wanted++) {
        begin(&file);
        header_of(&file)->required = ML_MLAB_STATES | wanted;
        seal_header(&file);
        ml_chunk_writer events = add_chunk(&file, ML_MLAB_EVENTS, 0, 0, 0);
        ml_event event = {.action = ML_ACTION_FREE_REQUESTED,
                          .addr = 1 << 20,
                          .size = 512,
                          .unused = 1};
        push_event(&events, &event);
        CHECK_INT(read_sample(&file), 0);
        CHECK_UINT(events_of(0), 1);
        CHECK_UINT(plain_events(&recording->devices[0])[0].unused, wanted);
    }
}

/* The memory was read once more after events had come: what is missing of those before is
 * of no use, and nothing is missing. */
static void
test_a_gap_before_the_start(void)
{
    for (uint64_t start = 0; start <= 6; start++) {
        build(&file);
        memset(chunk_at(&file, 1), 0, CHUNK);
        file.length -= CHUNK; /* device 1 */
        memset(chunk_at(&file, 2), 0, CHUNK);
        atomic_store(&header_of(&file)->lanes[1].events, 0);
        ml_chunk like = {
            .kind = ML_MLAB_CONTROL, .flags = ML_CHUNK_CHECKED, .bytes = CHUNK};
        ml_chunk_writer control;
        ml_chunk_begin(&control, chunk_at(&file, 1), &like);
        ml_mlab_start at = {
            .events = start, .max_split_bytes = UINT64_MAX, .has_segments = 1};
        ml_chunk_append(&control, ML_MLAB_START, &at, sizeof(at));
        CHECK_INT(read_sample(&file), 0);
        CHECK_UINT(events_of(0), start <= 3 ? 3 : 6 - start);
        CHECK_UINT(info.gap_count, start < 3);
        CHECK_UINT(recording->devices[0].dropped_events, start < 3 ? 3 - start : 0);
    }
}

/* Ids of no use: of themselves, of later ones, of none, beyond the table. */
static void
test_definitions_without_sense(void)
{
    static const uint32_t ids[] = {0, 1, 2, 3, 1u << 20, UINT32_MAX};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        for (size_t k = 0; k < sizeof(ids) / sizeof(ids[0]); k++) {
            begin(&file);
            ml_chunk_writer events = add_chunk(&file, ML_MLAB_EVENTS, 0, 0, 0);
            ml_mlab_code code = {ids[i], ids[k], ids[k], ids[k], -5, (int32_t)ids[i]};
            ml_mlab_node node = {.id = ids[i],
                                 .parent = ids[k],
                                 .code = ids[k],
                                 .offset = UINT32_MAX,
                                 .object = ids[k]};
            ml_mlab_object object = {ids[i], ids[k]};
            struct {
                ml_mlab_string head;
                char text[8];
            } part = {{ids[i], ids[k], ids[k]}, "text"};
            ml_chunk_append(&events, ML_MLAB_STRING, &part, sizeof(part));
            ml_chunk_append(&events, ML_MLAB_OBJECT, &object, sizeof(object));
            ml_chunk_append(&events, ML_MLAB_CODE, &code, sizeof(code));
            ml_chunk_append(&events, ML_MLAB_NODE, &node, sizeof(node));
            for (unsigned kind = 0; kind < 15; kind++) {
                ml_chunk_append(&events, kind, "\xff\xff\xff", 3);
            }
            add_event(&events, 0);
            ml_chunk_writer control = add_chunk(&file, ML_MLAB_CONTROL, 0, 0, 0);
            for (unsigned kind = 0; kind < 15; kind++) {
                uint8_t ones[200];
                memset(ones, 0xff, sizeof(ones));
                ml_chunk_append(&control, kind, ones, sizeof(ones));
                ml_chunk_append(&control, kind, ones, 3);
            }
            CHECK_INT(read_sample(&file), 0);
            CHECK_UINT(events_of(0), 1);
            /* Of control, clocks may be all ones. */
            CHECK(info.unread_records >= 15 + 30 - 1);
            CHECK(info.unread_records <= 4 + 15 + 30 - 1);
        }
    }
}

/* Whole records that a newer memlab may have written; what else there is counts. */
static void
test_records_that_cannot_be_read(void)
{
    build(&file);
    ml_mlab_note note = {.kind = ML_NOTE_COUNT, .device = -1};
    ml_mlab_note mark = {.kind = ML_NOTE_MARK, .device = -1};
    ml_chunk_writer more = add_chunk(&file, ML_MLAB_CONTROL, 0, 1, 8);
    ml_chunk_append(&more, ML_MLAB_CODE_LINE + 1, "?", 1);
    ml_chunk_append(&more, ML_MLAB_NOTE, &note, sizeof(note));
    ml_chunk_append(&more, ML_MLAB_NOTE, &mark, sizeof(mark));
    ml_chunk_append(&more, ML_MLAB_NOTE, &mark, sizeof(mark) - 1);
    ml_chunk_writer events = add_chunk(&file, ML_MLAB_EVENTS, 1, 1, 2);
    ml_chunk_append(&events, ML_MLAB_OBJECT + 1, "?", 1);
    add_event(&events, 2);
    CHECK_INT(read_sample(&file), 0);
    CHECK_UINT(info.unread_records, 4);
    CHECK_UINT(info.lost_records, 0);
    CHECK_UINT(info.damaged_chunks, 0);
    CHECK_UINT(recording->note_count, 1);
    CHECK_UINT(events_of(0), 6);
    CHECK_UINT(events_of(1), 3);
}

/* The file has all stacks that were captured; the recording's context says which it keeps. */
static void
test_stacks_are_those_of_the_context(void)
{
    static const struct {
        uint8_t context; /* as in the header */
        uint8_t native;
        bool events;
        bool blocks;
    } cases[] = {{0, 0, true, true}, /* older files do not tell */
                 {1 + ML_CONTEXT_NONE, 1, false, false},
                 {1 + ML_CONTEXT_STATE, 1, false, true},
                 {1 + ML_CONTEXT_ALLOC, 1, true, true},
                 {1 + ML_CONTEXT_ALL, 1, true, true},
                 {1 + ML_CONTEXT_ALL, 0, false, false}, /* its frames are native */
                 {200, 0, true, true}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        build(&file);
        header_of(&file)->context = cases[i].context;
        header_of(&file)->native = cases[i].native;
        seal_header(&file);
        CHECK_INT(read_sample(&file), 0);
        const ml_device_trace *trace = &recording->devices[0];
        CHECK_UINT(trace->event_count, 6);
        CHECK_INT(plain_events(trace)[5].stack != 0, cases[i].events);
        CHECK_UINT(trace->block_count, 7);
        CHECK_INT(trace->blocks[0].stack != 0, cases[i].blocks);
    }
}

/* Sizes that no snapshot could hold are unknown, as in one; addresses have all 64 bits. */
static void
test_sizes_above_the_dialect(void)
{
    const uint64_t big = (uint64_t)INT64_MAX + 1;
    const uint64_t base = UINT64_C(1) << 40;
    begin(&file);
    ml_chunk_writer control = add_chunk(&file, ML_MLAB_CONTROL, 0, 0, 0);
    ml_mlab_start start = {.max_split_bytes = UINT64_MAX, .has_segments = 1};
    ml_mlab_segment segment = {.addr = base, .total = 1 << 20};
    ml_mlab_segment endless = {.addr = base * 2, .total = big};
    ml_mlab_block whole = {.addr = base, .size = 512, .requested = big, .state = 1};
    ml_mlab_block none = {.addr = base + 512, .size = big, .state = 1};
    ml_mlab_block inside = {.addr = base * 2, .size = 512, .requested = 9, .state = 1};
    ml_mlab_device device = {.device = 0};
    ml_chunk_append(&control, ML_MLAB_START, &start, sizeof(start));
    ml_chunk_append(&control, ML_MLAB_SEGMENT, &segment, sizeof(segment));
    ml_chunk_append(&control, ML_MLAB_BLOCK, &whole, sizeof(whole));
    ml_chunk_append(&control, ML_MLAB_BLOCK, &none, sizeof(none));
    ml_chunk_append(&control, ML_MLAB_SEGMENT, &endless, sizeof(endless));
    ml_chunk_append(&control, ML_MLAB_BLOCK, &inside, sizeof(inside));
    ml_chunk_append(&control, ML_MLAB_STARTED, &device, sizeof(device));
    ml_chunk_writer events = add_chunk(&file, ML_MLAB_EVENTS, 0, 0, 0);
    ml_event event = {.action = ML_ACTION_ALLOC, .addr = base + 4096, .size = big};
    push_event(&events, &event);
    event = (ml_event){.action = ML_ACTION_OOM, .addr = UINT64_MAX, .size = 7};
    push_event(&events, &event);
    event = (ml_event){.action = ML_ACTION_SEGMENT_ALLOC, .addr = big, .size = 1 << 21};
    push_event(&events, &event);
    CHECK_INT(read_sample(&file), 0);
    CHECK_UINT(info.unread_records, 0);
    CHECK_UINT(recording->unread[ML_UNREAD_SEGMENT_TOTAL_SIZE], 1);
    CHECK_UINT(recording->unread[ML_UNREAD_BLOCK_SIZE], 1);
    CHECK_UINT(recording->unread[ML_UNREAD_BLOCK_REQUESTED_SIZE], 1);
    CHECK_UINT(recording->unread[ML_UNREAD_EVENT_SIZE], 1);
    CHECK_UINT(recording->unread[ML_UNREAD_EVENT_ADDR], 1);
    const ml_device_trace *trace = &recording->devices[0];
    CHECK_UINT(trace->event_count, 3);
    CHECK_INT(plain_events(trace)[0].action, ML_ACTION_OTHER);
    CHECK_INT(plain_events(trace)[1].action, ML_ACTION_OTHER);
    CHECK_UINT(plain_events(trace)[2].addr, big);
    CHECK_UINT(trace->segment_count, 2);
    CHECK_UINT(trace->segments[0].requested, 512);
    CHECK_UINT(trace->segments[1].addr, big);
}

/* The stacks and names of the events in one chunk were defined in the one before, which is
 * damaged: they are lost, and that is said. */
static void
test_definitions_in_a_damaged_chunk(void)
{
    for (int turn = 0; turn < 4; turn++) {
        int damaged = turn & 1;
        begin(&file);
        /* One that tells its context, and one that does not. */
        header_of(&file)->context = turn < 2 ? 0 : 1 + ML_CONTEXT_ALL;
        seal_header(&file);
        ml_chunk_writer first = add_chunk(&file, ML_MLAB_EVENTS, 0, 0, 0);
        struct {
            ml_mlab_string head;
            char text[5];
        } name = {{1, 5, 0}, "train"};
        ml_chunk_append(&first, ML_MLAB_STRING, &name, sizeof(name.head) + 5);
        ml_mlab_object object = {1, 1};
        ml_mlab_code code = {.id = 1, .name = 1, .filename = 1};
        ml_mlab_node node = {.id = 1, .code = 1, .offset = 7, .object = 1};
        ml_chunk_append(&first, ML_MLAB_OBJECT, &object, sizeof(object));
        ml_chunk_append(&first, ML_MLAB_CODE, &code, sizeof(code));
        ml_chunk_append(&first, ML_MLAB_NODE, &node, sizeof(node));
        ml_chunk_writer second = add_chunk(&file, ML_MLAB_EVENTS, 0, 1, 0);
        ml_event event = {.action = ML_ACTION_ALLOC,
                          .addr = 1 << 20,
                          .size = 512,
                          .stack = 1,
                          .metadata = 1,
                          .node = 1};
        push_event(&second, &event);
        /* Of a stack of its own, on one that is not there. */
        node = (ml_mlab_node){.id = 2, .parent = 1, .code = 1, .object = 2};
        ml_chunk_append(&second, ML_MLAB_NODE, &node, sizeof(node));
        event.addr = 2 << 20;
        event.stack = 2;
        event.metadata = 0;
        push_event(&second, &event);
        chunk_at(&file, 1)->version += (uint16_t)damaged;
        CHECK_INT(read_sample(&file), 0);
        const ml_device_trace *trace = &recording->devices[0];
        CHECK_UINT(trace->event_count, 2);
        CHECK_UINT(trace->lost_stacks, damaged ? 2 : 0);
        CHECK_UINT(trace->lost_names, damaged ? 3 : 0);
        CHECK_UINT(info.unread_records, damaged ? 1 : 0);
        const ml_string *text = &recording->strings[plain_events(trace)[0].metadata];
        CHECK_TEXT(text->bytes, text->length, damaged ? "<lost>" : "train");
        CHECK_UINT(plain_events(trace)[0].flags & ML_EVENT_STACK_LOST,
                   damaged ? ML_EVENT_STACK_LOST : 0);
        CHECK((plain_events(trace)[0].stack == 0) == (damaged != 0));
        if (!damaged) {
            uint32_t module = recording->stacks[plain_events(trace)[1].stack].module;
            /* An object that nobody defined is not none. */
            text = &recording->strings[module];
            CHECK_TEXT(text->bytes, text->length, "<lost>");
        }
    }
}

/* A tower of C++ frames ends at some height: each of its stacks is named frame by frame. */
static void
test_a_tower_of_native_frames(void)
{
    enum {
        EACH = 160, /* for which a chunk has room */
        HEIGHT = EACH * (CHUNKS - 1)
    };
    uint32_t id = 0;
    begin(&file);
    for (unsigned chunk = 0; chunk < CHUNKS - 1; chunk++) {
        ml_chunk_writer events = add_chunk(&file, ML_MLAB_EVENTS, 0, chunk, id);
        for (unsigned i = 0; i < EACH; i++, id++) {
            add_node(&events, id + 1, id, id + 1);
            ml_event event = {.action = ML_ACTION_OOM, .stack = id + 1};
            CHECK_INT(push_event(&events, &event), 0);
        }
    }
    CHECK_INT(read_sample(&file), 0);
    CHECK_UINT(events_of(0), HEIGHT);
    CHECK_UINT(info.native_frames, 1024);
    CHECK_UINT(info.unread_records, HEIGHT - 1024);
    CHECK_UINT(recording->devices[0].lost_stacks, HEIGHT - 1024);
    uint32_t frames = 0;
    for (uint32_t at = plain_events(&recording->devices[0])[1023].stack; at != 0;
         at = recording->stacks[at].parent) {
        frames++;
    }
    CHECK_UINT(frames, 1024);
}

static void
test_running_out_of_memory(void)
{
    build(&file);
    int result = ML_ENOMEM;
    long budget = 0;
    for (; result == ML_ENOMEM && budget < 1000; budget++) {
        forget();
        budget_begin(budget);
        result = read_sample(&file);
        forget();
        CHECK_INT(budget_alive, 0);
        budget_end();
        CHECK(result == 0 || failure.code == ML_ENOMEM);
    }
    CHECK_INT(result, 0);
    CHECK(budget > 10);
}

static void
test_stacks_that_no_table_has(void)
{
    static const uint32_t ids[] = {1, 0x7ffffff0, UINT32_MAX};
    for (uint8_t context = 0; context <= 1 + ML_CONTEXT_ALL; context++) {
        for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
            begin(&file);
            header_of(&file)->context = context;
            seal_header(&file);
            ml_chunk_writer chunk = add_chunk(&file, ML_MLAB_EVENTS, 0, 0, 0);
            ml_event event = {.action = ML_ACTION_ALLOC,
                              .addr = 1 << 20,
                              .size = 512,
                              .stack = ids[i],
                              .flags = ML_EVENT_STACK_LOST * (ids[i] == UINT32_MAX)};
            push_event(&chunk, &event);
            CHECK_INT(read_sample(&file), 0);
            CHECK_UINT(events_of(0), 1);
            CHECK_UINT(plain_events(&recording->devices[0])[0].stack, 0);
            bool wanted = context == 0 || context > 1 + ML_CONTEXT_STATE;
            CHECK(!wanted || recording->devices[0].lost_stacks == 1);
        }
    }
}

int
main(void)
{
    RUN(test_a_whole_file);
    RUN(test_headers_that_are_refused);
    RUN(test_optional_features_are_passed_over);
    RUN(test_chunks_that_are_left_out);
    RUN(test_a_missing_chunk_is_a_gap);
    RUN(test_uses_that_another_recording_wanted);
    RUN(test_a_gap_before_the_start);
    RUN(test_definitions_without_sense);
    RUN(test_records_that_cannot_be_read);
    RUN(test_sizes_above_the_dialect);
    RUN(test_stacks_are_those_of_the_context);
    RUN(test_definitions_in_a_damaged_chunk);
    RUN(test_stacks_that_no_table_has);
    RUN(test_a_tower_of_native_frames);
    RUN(test_running_out_of_memory);
    forget();
    return TEST_RESULT();
}
