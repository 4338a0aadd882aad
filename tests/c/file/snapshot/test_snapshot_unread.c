/* What of a snapshot cannot be read: it is left out and counted, or the whole is
 * refused. */
#include "file/snapshot/snapshot_reader.h"

#include "base/base.h"
#include "file/snapshot/pickle_writer.h"
#include "literal.h"
#include "snapshot_literals.h"
#include "test.h"
#include "plain_events.h"

#define CHECK_REFUSES(literal, code_, text_) \
    do { \
        ml_recording *read = read_literal(literal); \
        ml_recording_free(read); \
        CHECK(read == NULL); \
        CHECK_STR(failure.text, text_); \
        CHECK_INT(failure.code, code_); \
    } while (0)

static int
append(void *context, const void *bytes, size_t length)
{
    ml_buffer *out = context;
    ml_buffer_append(out, bytes, length);
    return out->error;
}

/* What is saved of the literal, and again of that, has no size below zero and counts
 * the same as unread. */
static void
check_saved(const char *text)
{
    ml_recording *recording = read_literal(text);
    for (int round = 0; round < 2 && recording != NULL; round++) {
        ml_buffer out = {0};
        ml_recording *again = NULL;
        CHECK_INT(ml_pickle_write(recording, ML_PICKLE_EXTRAS, append, &out), 0);
        char *saved = literal_of_pickle(out.bytes, out.length);
        CHECK(strstr(saved, "size':-") == NULL);
        CHECK(strstr(saved, "device_free':-") == NULL);
        ml_free(saved);
        CHECK_INT(ml_snapshot_read(out.bytes, out.length, &again, NULL), 0);
        CHECK(again != NULL &&
              memcmp(again->unread, recording->unread, sizeof(again->unread)) == 0);
        ml_buffer_fini(&out);
        ml_recording_free(recording);
        recording = again;
    }
    CHECK(recording != NULL);
    ml_recording_free(recording);
}

/* An event that is whole but for FIELDS; the last of equal keys holds. */
#define EVENT(fields) \
    "{'segments':[],'device_traces':[[],[{'action':'alloc','addr':4096,'size':512," \
    "'time_us':5," fields "}]]}"
#define FRAME(fields) \
    EVENT("'frames':[{'name':'f','filename':'a.py','line':3," fields "}]")
#define SEGMENT(fields) \
    "{'segments':[{'device':0,'address':4096,'total_size':1024," fields "}]}"
#define BLOCKS(blocks) SEGMENT("'blocks':[" blocks "]")
#define ANNOTATION(fields) \
    "{'segments':[],'external_annotations':[{'stage':'END','name':'x','device':0," \
    "'time_us':1},{" fields "}]}"

static void
test_what_is_no_snapshot(void)
{
    static const char nothing[] =
        "nothing in it could be read as a segment or an event: "
        "it is not a memory snapshot";
    CHECK_REFUSES("7", ML_EFORMAT, "the file holds an integer, not a memory snapshot");
    CHECK_REFUSES("{}", ML_EFORMAT,
                  "the dictionary has neither segments nor device_traces: it is not a "
                  "memory snapshot");
    CHECK_REFUSES("{'segments':7}", ML_EFORMAT, nothing);
    CHECK_REFUSES("[7]", ML_EFORMAT, nothing);
    CHECK_REFUSES("{'segments':[],'device_traces':{}}", ML_EFORMAT, nothing);
    CHECK_REFUSES("{'segments':[],'device_traces':[None]}", ML_EFORMAT, nothing);
    CHECK_REFUSES("{'device_traces':[[]]}", ML_EFORMAT, nothing);
    CHECK_REFUSES("[{'address':7}]", ML_EFORMAT, nothing);
}

static void
test_wrong_types(void)
{
    CHECK_UNREAD(EVENT("'action':3"), "event.action 1");
    CHECK_UNREAD(EVENT("'addr':'x'"), "event.addr 1");
    CHECK_UNREAD(EVENT("'size':1.5"), "event.size 1");
    CHECK_UNREAD(EVENT("'stream':None"), "event.stream 1");
    CHECK_UNREAD(EVENT("'time_us':'x'"), "event.time_us 1");
    CHECK_UNREAD(EVENT("'frames':{}"), "event.frames 1");
    CHECK_UNREAD(EVENT("'frames':[7]"), "frame 1");
    CHECK_UNREAD(FRAME("'line':'x'"), "frame.line 1");
    CHECK_UNREAD(FRAME("'name':1"), "frame.name 1");
    CHECK_UNREAD(FRAME("'filename':None"), "frame.filename 1");
    CHECK_UNREAD(EVENT("'user_metadata':1"), "event.user_metadata 1");
    CHECK_UNREAD(EVENT("'pool_id':(1,2,3)"), "event.pool_id 1");
    CHECK_UNREAD(EVENT("'pool_id':(4294967296,0)"), "event.pool_id 1");
    CHECK_UNREAD(BLOCKS("{'size':1024,'state':'free'}"), "block.state 1");
    CHECK_UNREAD(BLOCKS("7,{'size':1,'state':'inactive'}"), "block 1");
    CHECK_UNREAD(SEGMENT("'blocks':7"), "segment.blocks 1");
    CHECK_UNREAD(SEGMENT("'stream':1.5"), "segment.stream 1");
    CHECK_UNREAD(SEGMENT("'segment_type':1"), "segment.segment_type 1");
    CHECK_UNREAD(SEGMENT("'is_expandable':1"), "segment.is_expandable 1");
    CHECK_UNREAD(SEGMENT("'segment_pool_id':1"), "segment.segment_pool_id 1");
    CHECK_UNREAD(SEGMENT("'frames':None"), "segment.frames 1");
    CHECK_UNREAD("{'segments':[],'allocator_settings':[]}", "allocator_settings 1");
    CHECK_UNREAD("{'segments':[],'host_segments':[],'host_traces':[]}", "");
    CHECK_UNREAD("{'segments':[],'host_segments':[{}],'host_traces':[{},{}]}",
                 "host_segments 1 host_traces 2");
    CHECK_UNREAD("{'segments':[],'host_traces':7}", "host_traces 1");
    CHECK_UNREAD("{'segments':[],'allocator_settings':{'a':1,'b':None,3:4}}",
                 "setting 2");
    CHECK_UNREAD("{'segments':[],'external_annotations':7}", "external_annotations 1");
    CHECK_UNREAD(ANNOTATION("'stage':'x','name':'x','device':0,'time_us':1"),
                 "annotation.stage 1");
    CHECK_UNREAD(ANNOTATION("'stage':'END','name':1,'device':'x','time_us':-1"),
                 "annotation.name 1 annotation.device 1 annotation.time_us 1");
    CHECK_UNREAD(
        "{'segments':7,'device_traces':[[{'action':'alloc','addr':1,'size':2}]]}",
        "segments 1");
}

static void
test_missing_keys(void)
{
#define PLAIN(fields) "{'segments':[],'device_traces':[[{" fields "}]]}"
    CHECK_UNREAD(PLAIN("'addr':1,'size':2"), "event.action 1");
    CHECK_UNREAD(PLAIN("'action':'alloc','size':2"), "event.addr 1");
    CHECK_UNREAD(PLAIN("'action':'alloc','addr':2"), "event.size 1");
#undef PLAIN
    /* torch 2.0 has no times; where others have theirs, one is missing. */
    CHECK_UNREAD("{'segments':[],'device_traces':[[{'action':'alloc','addr':1,'size':2,"
                 "'time_us':3},{'action':'alloc','addr':5,'size':2}]]}",
                 "event.time_us 1");
    CHECK_UNREAD("{'device_traces':[[{'action':'alloc','addr':1,'size':2}]]}",
                 "segments 1");
    CHECK_UNREAD(BLOCKS("{'state':'inactive'}"), "block.size 1");
    CHECK_UNREAD(BLOCKS("{'size':1024}"), "block.state 1");
    CHECK_UNREAD(EVENT("'frames':[{}]"), "frame.name 1 frame.filename 1 frame.line 1");
}

/* Of each kind of lie about a line. */
static void
test_lines_that_are_none(void)
{
    static const char *const lines[] = {"-1", "None", "1.0", "2147483648", "True", "[]",
                                        "18446744073709551614",
                                        /* torch's own, of a frame without a line */
                                        "18446744073709551615"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        char text[400];
        snprintf(text, sizeof(text),
                 "{'segments':[],'device_traces':[[{'action':'alloc','addr':1,'size':2,"
                 "'frames':[{'name':'f','filename':'a.py','line':%s},{'name':'g',"
                 "'filename':'a.py','line':2147483647}]}]]}",
                 lines[i]);
        bool own = strcmp(lines[i], "18446744073709551615") == 0;
        CHECK_UNREAD(text, own ? "" : "frame.line 1");
        ml_recording *recording = read_literal(text);
        CHECK(recording != NULL);
        const ml_event *event = &plain_events(&recording->devices[0])[0];
        const ml_stack *stack = &recording->stacks[event->stack];
        const ml_frame *frame = &recording->frames[stack->frame];
        CHECK_INT(frame->line, 0);
        CHECK_TEXT(recording->strings[frame->name].bytes,
                   recording->strings[frame->name].length, "f");
        CHECK_INT(recording->frames[recording->stacks[stack->parent].frame].line,
                  2147483647);
        ml_recording_free(recording);
    }
}

static void
test_events_keep_their_places(void)
{
    ml_recording *recording =
        read_literal("{'segments':[],'device_traces':[["
                     "{'action':'alloc','addr':1,'size':2},"
                     "{'action':'alloc','addr':1,'size':2,'time_us':7},"
                     "None,"
                     "{'action':'alloc','addr':-1,'size':2,'time_us':9},"
                     "{'action':'alloc','addr':9,'size':-2,'time_us':8}]]}");
    CHECK(recording != NULL);
    const ml_device_trace *device = &recording->devices[0];
    CHECK_UINT(device->event_count, 5);
    const ml_event *events = plain_events(device);
    CHECK_UINT(events[0].time, 7000); /* the next one's */
    CHECK_UINT(events[2].time, 7000); /* that before it */
    CHECK_INT(events[1].action, ML_ACTION_ALLOC);
    CHECK_INT(events[2].action, ML_ACTION_OTHER);
    CHECK_INT(events[3].action, ML_ACTION_OTHER);
    CHECK_INT(events[4].action, ML_ACTION_OTHER);
    CHECK_UINT(events[4].addr, 9);
    CHECK_UINT(recording->unread[ML_UNREAD_EVENT], 1);
    CHECK_UINT(recording->unread[ML_UNREAD_EVENT_SIZE], 2);
    CHECK_UINT(recording->unread[ML_UNREAD_EVENT_TIME], 1);
    ml_recording_free(recording);
}

/* Three blocks, one behind the other; FIRST to LAST as text. */
#define THREE(segment, first, second, last) \
    "{'segments':[{'device':0," segment ",'blocks':[{" first \
    ",'state':'active_allocated'},{" second ",'state':'inactive'},{" last \
    ",'state':'active_pending_free'}]}]}"
#define PLACE "'address':4096,'total_size':2097152"
#define FIRST "'address':4096,'size':524288,'requested_size':200"
#define SECOND "'address':528384,'size':524288,'requested_size':7"
#define LAST "'address':1052672,'size':1048576,'requested_size':500"

/* Whether the literal of three blocks has them where they are. */
static bool
has_three_blocks(const char *text)
{
    ml_recording *recording = read_literal(text);
    if (recording == NULL || recording->devices[0].segment_count != 1 ||
        recording->devices[0].block_count != 3) {
        ml_recording_free(recording);
        return false;
    }
    const ml_device_trace *device = &recording->devices[0];
    const ml_segment *segment = device->segments;
    const ml_block *blocks = device->blocks;
    bool holds = segment->addr == 4096 && segment->total == 2097152 &&
                 segment->allocated == 524288 && segment->active == 1572864 &&
                 blocks[0].addr == 4096 && blocks[0].size == 524288 &&
                 blocks[1].addr == 528384 && blocks[1].size == 524288 &&
                 blocks[2].addr == 1052672 && blocks[2].size == 1048576;
    ml_recording_free(recording);
    return holds;
}

/* torch's blocks lie one behind the other: what one does not say the others do. */
static void
test_blocks_tell_of_each_other(void)
{
    static const struct {
        const char *text;
        const char *unread;
    } cases[] = {
        {THREE(PLACE, FIRST, SECOND, LAST), ""},
        {THREE("'total_size':2097152", FIRST, SECOND, LAST), "segment.address 1"},
        {THREE("'address':4096", FIRST, SECOND, LAST), "segment.total_size 1"},
        {THREE("'address':0,'total_size':2097152", FIRST, SECOND, LAST),
         "segment.address 1"},
        {THREE("'address':4096,'total_size':9223372036854775807", FIRST, SECOND, LAST),
         "segment.total_size 1"},
        {THREE("'address':4096,'total_size':18446744073709551615", FIRST, SECOND, LAST),
         "segment.total_size 1"},
        {THREE("'address':4096,'total_size':1", FIRST, SECOND, LAST),
         "segment.total_size 1"},
        {THREE(PLACE ",'allocated_size':2097153,'active_size':None", FIRST, SECOND,
               LAST),
         "segment.allocated_size 1 segment.active_size 1"},
        {THREE(PLACE, "'address':None,'size':524288", SECOND, LAST),
         "block.address 1 block.requested_size 1"},
        {THREE(PLACE, "'address':1,'size':524288,'requested_size':1", SECOND, LAST),
         "block.address 1"},
        {THREE(PLACE, FIRST, "'address':4097,'size':524288,'requested_size':1", LAST),
         "block.address 1"},
        {THREE(PLACE, FIRST, "'address':604096,'size':524288,'requested_size':1", LAST),
         "block.address 1"},
        {THREE(PLACE, FIRST, "'address':528384,'size':None,'requested_size':1", LAST),
         "block.size 1"},
        {THREE(PLACE, FIRST, "'address':528384,'size':600000,'requested_size':1", LAST),
         "block.size 1"},
        {THREE(PLACE, FIRST,
               "'address':528384,'size':18446744073709551615,'requested_size':1", LAST),
         "block.size 1"},
        {THREE(PLACE, FIRST, SECOND,
               "'address':1052672,'size':1048577,'requested_size':1"),
         "block.size 1"},
        {THREE(PLACE, FIRST, SECOND, "'size':1048576,'requested_size':1"),
         "block.address 1"},
        {THREE(PLACE, FIRST, SECOND,
               "'address':1052672,'size':1048576,'requested_size':1048577"),
         "block.requested_size 1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CHECK_STR(unread_of(cases[i].text), cases[i].unread);
        CHECK(has_three_blocks(cases[i].text));
    }
}

static void
test_lies(void)
{
    CHECK_UNREAD(EVENT("'size':-1"), "event.size 1");
    CHECK_UNREAD(EVENT("'addr':-1"), "event.size 1");
    CHECK_UNREAD(EVENT("'time_us':18446744073709552"), "event.time_us 1");
    CHECK_UNREAD("[{'address':-512,'total_size':1024},{'address':1,'total_size':1}]",
                 "segment.total_size 1");
    CHECK_UNREAD(SEGMENT("'allocated_size':1025"), "segment.allocated_size 1");
    CHECK_UNREAD(
        "[{'address':4096,'total_size':1024},{'address':4608,'total_size':512}]",
        "segment 1");
    CHECK_UNREAD("[{'address':4096,'total_size':0},{'address':4096,'total_size':0}]",
                 "segment 1");
    CHECK_UNREAD("[{'device':4096,'address':0,'total_size':1},{'device':0,'address':0,"
                 "'total_size':1},{'device':18446744073709551615,'address':0,"
                 "'total_size':1}]",
                 "segment.device 2");
    CHECK_UNREAD(BLOCKS("{'address':4096,'size':1025,'state':'inactive'}"),
                 "block.size 1");
    CHECK_UNREAD(
        BLOCKS("{'size':1024,'requested_size':1025,'state':'active_allocated'}"),
        "block.requested_size 1");
}

/* From 2**63 on: torch's schema has no such sizes, so that what is saved of the
 * recording holds none, below zero or not, and says once how many there were. */
static void
test_sizes_above_the_dialect(void)
{
#define BIG "9223372036854775808"
#define LARGEST "9223372036854775807"
    static const struct {
        const char *text;
        const char *unread;
    } cases[] = {
        {EVENT("'size':" LARGEST), ""},
        {EVENT("'size':" BIG), "event.size 1"},
        {EVENT("'size':18446744073709551615"), "event.size 1"},
        {"{'segments':[],'device_traces':[[{'action':'oom','device_free':" BIG
         ",'size':2}]]}",
         "event.addr 1"},
        {"{'segments':[],'device_traces':[[{'action':'alloc','addr':" BIG
         ",'size':2,'stream':18446744073709551615}]]}",
         ""},
        {SEGMENT("'requested_size':" BIG), "segment.requested_size 1"},
        {SEGMENT("'allocated_size':" BIG ",'active_size':" BIG),
         "segment.allocated_size 1 segment.active_size 1"},
        {BLOCKS("{'size':1024,'requested_size':" BIG ",'state':'inactive'}"),
         "block.requested_size 1"},
        {BLOCKS("{'size':" BIG ",'state':'inactive'}"), "block.size 1"},
        {"[{'address':4096,'total_size':1024},{'address':65536,'total_size':" BIG "}]",
         "segment.total_size 1"},
        {"[{'address':4096,'total_size':1024,'blocks':[]},{'address':65536,"
         "'blocks':[{'size':" LARGEST
         ",'state':'inactive'},{'size':1,'state':'inactive'}]}]",
         "segment.total_size 1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CHECK_UNREAD(cases[i].text, cases[i].unread);
        check_saved(cases[i].text);
    }
#undef BIG
#undef LARGEST
}

int
main(void)
{
    RUN(test_what_is_no_snapshot);
    RUN(test_wrong_types);
    RUN(test_lines_that_are_none);
    RUN(test_events_keep_their_places);
    RUN(test_blocks_tell_of_each_other);
    RUN(test_missing_keys);
    RUN(test_lies);
    RUN(test_sizes_above_the_dialect);
    return TEST_RESULT();
}
