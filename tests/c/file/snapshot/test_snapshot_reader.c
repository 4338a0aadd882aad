#include "file/snapshot/snapshot_reader.h"

#include "base/base.h"
#include "budget.h"
#include "file/snapshot/torch_schema.h"
#include "file/snapshot/pickle_writer.h"
#include "literal.h"
#include "test.h"

static ml_read_error failure;

/* The recording of a literal, or NULL with FAILURE filled in. */
static ml_recording *
read_literal(const char *text)
{
    ml_buffer pickle = literal_pickle(text);
    ml_recording *recording = NULL;
    failure = (ml_read_error){0};
    int result = ml_snapshot_read(pickle.bytes, pickle.length, &recording, &failure);
    ml_buffer_fini(&pickle);
    if ((result == 0) != (recording != NULL) || result != failure.code) {
        fprintf(stderr, "result %d with code %d\n", result, failure.code);
    }
    return recording;
}

#define FRAME_A "{'name':'f','filename':'a.py','line':3}"
#define FRAME_B "{'name':'g','filename':'a.py','line':9}"

/* A device with two segments out of order, a second device with a trace only. */
static const char whole[] =
    "{'segments':["
    "{'device':0,'address':8192,'total_size':4096,'allocated_size':512,'active_size':"
    "1024,"
    "'requested_size':900,'stream':7,'segment_type':'large','segment_pool_id':(1,2),"
    "'is_expandable':True,'frames':[],'blocks':["
    "{'address':8192,'size':512,'requested_size':500,'state':'active_allocated',"
    "'frames':[" FRAME_A "," FRAME_B "]},"
    "{'address':8704,'size':512,'requested_size':400,'state':'active_pending_free',"
    "'frames':[" FRAME_B "]},"
    "{'address':9216,'size':3072,'requested_size':99999,'state':'inactive','frames':[]}"
    "]},"
    "{'device':0,'address':4096,'total_size':2048,'stream':0,'segment_type':'small',"
    "'blocks':[{'address':4096,'size':2048,'requested_size':1,"
    "'state':'active_awaiting_free'}],'frames':[" FRAME_B "]}],"
    "'device_traces':[["
    "{'action':'alloc','addr':8192,'size':500,'stream':7,'time_us':1000001,"
    "'compile_context':'N/A','user_metadata':'step 1','pool_id':(0,3),'frames':["
    "{'name':'f','filename':'a.py','line':3}," FRAME_B "]},"
    "{'action':'annotate','addr':-4096,'size':0,'stream':-1,'time_us':5},"
    "{'action':'oom','device_free':777,'size':1048576,'stream':0,'time_us':6}"
    "],[{'action':'segment_map','addr':1,'size':2,'stream':0}]],"
    "'allocator_settings':{'PYTORCH_CUDA_ALLOC_CONF':'a:b','max_split_size':67108864,"
    "'garbage_collection_threshold':0.6,'expandable_segments':True,'new':None,"
    "'roundup_power2_divisions':{'1':4,'32768':8}},"
    "'external_annotations':[{'stage':'START','name':'x','device':1,'time_us':10},"
    "{'stage':'END','name':'x','device':1,'time_us':20}],"
    "'something_new':[1,2,{'x':None}]}";

/* Under the sanitizers: nothing is reckoned with the devices that are not there. */
static void
test_merged_ranks_without_a_device(void)
{
    ml_recording *recording =
        read_literal("{'segments':[],'device_traces':[],'memlab':{'version':1,"
                     "'ranks':[{'rank':0,'numbers':[]},{'rank':1,'numbers':[]}]}}");
    CHECK(recording != NULL);
    CHECK_UINT(recording->device_count, 0);
    CHECK_UINT(recording->rank_count, 2);
    CHECK(ml_recording_is_merged(recording));
    ml_recording_free(recording);
}

static void
test_events(void)
{
    ml_recording *recording = read_literal(whole);
    CHECK(recording != NULL);
    CHECK_UINT(recording->device_count, 2);
    CHECK_UINT(recording->devices[0].event_count, 3);
    const ml_event *events = recording->devices[0].events;
    CHECK_INT(events[0].action, ML_ACTION_ALLOC);
    CHECK_UINT(events[0].addr, 8192);
    CHECK_UINT(events[0].size, 500);
    CHECK_UINT(events[0].stream, 7);
    CHECK_UINT(events[0].time, 1000001000);
    CHECK_UINT(events[0].pool[1], 3);
    CHECK_TEXT(recording->strings[events[0].metadata].bytes,
               recording->strings[events[0].metadata].length, "step 1");
    CHECK_INT(events[0].flags, ML_EVENT_POOL_KNOWN | ML_EVENT_CONTEXT);
    CHECK_INT(events[1].action, ML_ACTION_OTHER);
    CHECK_UINT(events[1].addr, UINT64_MAX - 4095);
    CHECK_UINT(events[1].stream, UINT64_MAX);
    CHECK_UINT(events[1].stack, 0);
    CHECK_INT(events[2].action, ML_ACTION_OOM);
    CHECK_UINT(events[2].addr, 777);
    CHECK_UINT(recording->devices[1].event_count, 1);
    CHECK_INT(recording->devices[1].events[0].action, ML_ACTION_SEGMENT_MAP);
    CHECK_INT(recording->keys, ML_KEY_COMPILE_CONTEXT | ML_KEY_USER_METADATA |
                                   ML_KEY_POOL_ID | ML_KEY_EXTERNAL_ANNOTATIONS |
                                   ML_KEY_ALLOCATOR_SETTINGS);
    CHECK_INT(recording->foreign, 1);
    ml_recording_free(recording);
}

static void
test_stacks_are_shared_by_value(void)
{
    ml_recording *recording = read_literal(whole);
    CHECK(recording != NULL);
    /* f called by g, and g alone: two frames, two stacks, beside the empty ones. */
    CHECK_UINT(recording->frame_count, 3);
    CHECK_UINT(recording->stack_count, 3);
    uint32_t stack = recording->devices[0].events[0].stack;
    ml_stack inner = recording->stacks[stack];
    ml_stack outer = recording->stacks[inner.parent];
    CHECK_INT(recording->frames[inner.frame].line, 3);
    CHECK_INT(recording->frames[outer.frame].line, 9);
    CHECK_UINT(outer.parent, 0);
    const ml_device_trace *device = &recording->devices[0];
    CHECK_UINT(device->blocks[1].stack, stack);
    CHECK_UINT(device->blocks[2].stack, inner.parent);
    CHECK_UINT(device->segments[0].stack, inner.parent);
    ml_recording_free(recording);
}

static void
test_memory(void)
{
    ml_recording *recording = read_literal(whole);
    CHECK(recording != NULL);
    const ml_device_trace *device = &recording->devices[0];
    CHECK_UINT(device->segment_count, 2);
    CHECK_UINT(device->block_count, 4);
    /* By address, whatever the order in the file; sums made up where not given. */
    const ml_segment *small = &device->segments[0];
    CHECK_UINT(small->addr, 4096);
    CHECK_INT(small->small, 1);
    CHECK_INT(small->expandable, 0);
    CHECK_UINT(small->allocated, 0);
    CHECK_UINT(small->active, 2048);
    CHECK_UINT(small->requested, 1);
    CHECK_UINT(small->first_block, 0);
    const ml_segment *large = &device->segments[1];
    CHECK_UINT(large->total, 4096);
    CHECK_UINT(large->allocated, 512);
    CHECK_UINT(large->active, 1024);
    CHECK_UINT(large->requested, 900);
    CHECK_UINT(large->stream, 7);
    CHECK_INT(large->small, 0);
    CHECK_INT(large->expandable, 1);
    CHECK_UINT(large->pool[0], 1);
    CHECK_UINT(large->pool[1], 2);
    CHECK_UINT(large->first_block, 1);
    CHECK_UINT(large->block_count, 3);
    CHECK_INT(device->blocks[0].state, ML_BLOCK_PENDING_FREE);
    CHECK_INT(device->blocks[1].state, ML_BLOCK_ALLOCATED);
    CHECK_INT(device->blocks[3].state, ML_BLOCK_INACTIVE);
    CHECK_UINT(device->blocks[3].requested, 99999);
    ml_recording_free(recording);
}

static void
test_settings_and_annotations(void)
{
    ml_recording *recording = read_literal(whole);
    CHECK(recording != NULL);
    CHECK_UINT(recording->rules.max_split_bytes, 67108864);
    CHECK_INT(recording->rules.expandable_segments, 1);
    CHECK_UINT(recording->rules.roundup_divisions[0], 4);
    CHECK_UINT(recording->rules.roundup_divisions[1], 0);
    CHECK_UINT(recording->rules.roundup_divisions[15], 8);
    CHECK_INT(recording->rules.has_segments, 1);
    CHECK_UINT(recording->setting_count, 5);
    CHECK_INT(recording->settings[0].kind, 's');
    CHECK_INT(recording->settings[2].kind, 'f');
    CHECK(recording->settings[2].real == 0.6);
    CHECK_UINT(recording->annotation_count, 2);
    CHECK_UINT(recording->annotations[1].time, 20000);
    CHECK_INT(recording->annotations[1].end, 1);
    CHECK_INT(recording->annotations[1].device, 1);
    ml_recording_free(recording);

    recording =
        read_literal("{'segments':[],'allocator_settings':{'max_split_size':-1}}");
    CHECK(recording != NULL);
    CHECK_UINT(recording->rules.max_split_bytes, UINT64_MAX);
    ml_recording_free(recording);
}

/* torch.cuda.memory_snapshot() returns the segments alone; torch 2.0 wrote blocks
 * without addresses and with the history of their owners. */
static void
test_list_of_old_segments(void)
{
    ml_recording *recording =
        read_literal("[{'device':1,'address':4096,'total_size':3072,'stream':0,'"
                     "segment_type':'small',"
                     "'blocks':[{'size':1024,'state':'active_allocated','history':["
                     "{'addr':4096,'real_size':1000,'frames':[" FRAME_A "]},"
                     "{'addr':4096,'real_size':700,'frames':[" FRAME_B "]}]},"
                     "{'size':2048,'state':'inactive','history':[]}]}]");
    CHECK(recording != NULL);
    CHECK_UINT(recording->device_count, 2);
    const ml_device_trace *device = &recording->devices[1];
    CHECK_UINT(device->block_count, 2);
    CHECK_UINT(device->blocks[0].requested, 1000);
    CHECK_UINT(device->blocks[1].addr, 5120);
    const ml_stack *stack = &recording->stacks[device->blocks[0].stack];
    CHECK_INT(recording->frames[stack->frame].line, 3);
    CHECK_UINT(device->segments[0].requested, 1000);
    CHECK_UINT(device->segments[0].allocated, 1024);
    CHECK_INT(recording->keys, 0);
    ml_recording_free(recording);
}

static void
test_event_frames(void)
{
    ml_recording *recording = read_literal(
        "{'segments':[],'device_traces':[[{'action':'alloc','addr':1,'size':2}]]}");
    CHECK(recording != NULL);
    CHECK_INT(recording->devices[0].events[0].flags & ML_EVENT_CONTEXT, 0);
    ml_recording_free(recording);
    recording =
        read_literal("{'segments':[],'device_traces':[[{'action':'alloc','addr':1,"
                     "'size':2,'frames':[]}]]}");
    CHECK(recording != NULL);
    CHECK_INT(recording->devices[0].events[0].flags & ML_EVENT_CONTEXT,
              ML_EVENT_CONTEXT);
    ml_recording_free(recording);
}

#define EXTRAS(device) \
    "{'segments':[],'device_traces':[[{'action':'alloc','addr':1,'size':2}," \
    "{'action':'oom','device_free':1,'size':2}]],'memlab':{'version':1,'source':'cpu'" \
    "," \
    "'has_segments':False,'devices':[" device "]}}"

static void
test_extras(void)
{
    ml_recording *recording = read_literal(
        EXTRAS("{'overwritten_events':5,'dropped_events':6,'lost_stacks':7,"
               "'lost_names':8,'thread':[65537,4294967295],"
               "'peak':{'allocated':1,'active':2,'requested':3,'reserved':4,'other':5},"
               "'tags':{'position':[0,2],'addr':[1,-1],'category':['gradient','odd'],"
               "'name':['w','']},'flags':'AB','block_bytes':[512,0]}"));
    CHECK(recording != NULL);
    CHECK_STR(recording->source, "cpu");
    CHECK_INT(recording->source_known, 1);
    CHECK_INT(recording->rules.has_segments, 0);
    CHECK_INT(recording->foreign, 1);
    const ml_device_trace *device = &recording->devices[0];
    CHECK_UINT(device->overwritten_events, 5);
    CHECK_UINT(device->dropped_events, 6);
    CHECK_UINT(device->lost_stacks, 7);
    CHECK_UINT(device->lost_names, 8);
    CHECK_UINT(device->events[0].thread, 65537);
    CHECK_UINT(device->events[1].thread, UINT32_MAX);
    CHECK_UINT(device->peak.allocated, 1);
    CHECK_UINT(device->peak.reserved, 4);
    CHECK_UINT(device->tag_count, 2);
    CHECK_INT(device->tags[0].category, ML_CATEGORY_GRADIENT);
    CHECK_INT(device->tags[1].category, ML_CATEGORY_UNKNOWN);
    CHECK_UINT(device->tags[1].addr, UINT64_MAX);
    CHECK_INT(device->events[0].flags, ML_EVENT_BACKWARD);
    CHECK_INT(device->events[1].flags, ML_EVENT_BLOCK_KNOWN);
    CHECK_UINT(device->events[0].block_bytes, 512);
    ml_recording_free(recording);

    /* A version that we do not know is as if it were not there. */
    recording = read_literal("{'segments':[],'memlab':{'version':2,'devices':7}}");
    CHECK(recording != NULL);
    CHECK_INT(recording->source_known, 0);
    ml_recording_free(recording);
}

#define CHECK_REFUSES(literal, code_, text_) \
    do { \
        ml_recording *read = read_literal(literal); \
        ml_recording_free(read); \
        CHECK(read == NULL); \
        CHECK_STR(failure.text, text_); \
        CHECK_INT(failure.code, code_); \
    } while (0)

/* What could not be read of a literal, "event.size 1 frame.line 2", or how it was refused.
 * Valid until the next. */
static const char *
unread_of(const char *text)
{
    static char said[400];
    ml_recording *recording = read_literal(text);
    if (recording == NULL) {
        return failure.text;
    }
    size_t length = 0;
    said[0] = '\0';
    for (unsigned kind = 0; kind < ML_UNREAD_COUNT; kind++) {
        if (recording->unread[kind] != 0) {
            length +=
                (size_t)snprintf(said + length, sizeof(said) - length, "%s%s %llu",
                                 length != 0 ? " " : "", ml_unread_text(kind),
                                 (unsigned long long)recording->unread[kind]);
        }
    }
    ml_recording_free(recording);
    return said;
}

#define CHECK_UNREAD(literal, text) CHECK_STR(unread_of(literal), text)

static int
append(void *context, const void *bytes, size_t length)
{
    ml_buffer *out = context;
    ml_buffer_append(out, bytes, length);
    return out->error;
}

/* What is saved of the literal, and again of that, has no size below zero and counts the
 * same as unread. */
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
    static const char *const lines[] = {"18446744073709551615", "-1",   "None", "1.0",
                                        "2147483648",           "True", "[]"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        char text[400];
        snprintf(text, sizeof(text),
                 "{'segments':[],'device_traces':[[{'action':'alloc','addr':1,'size':2,"
                 "'frames':[{'name':'f','filename':'a.py','line':%s},{'name':'g',"
                 "'filename':'a.py','line':2147483647}]}]]}",
                 lines[i]);
        CHECK_UNREAD(text, "frame.line 1");
        ml_recording *recording = read_literal(text);
        CHECK(recording != NULL);
        const ml_event *event = &recording->devices[0].events[0];
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
    const ml_event *events = device->events;
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

/* From 2**63 on: torch's dialect has no such sizes, so that what is saved of the recording
 * holds none, below zero or not, and says once how many there were. */
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

static void
test_wrong_extras(void)
{
    CHECK_UNREAD(EXTRAS("{},{}"), "memlab.device 1");
    CHECK_UNREAD(EXTRAS("7"), "memlab.device 1");
    CHECK_UNREAD(EXTRAS("{'lost_stacks':-1,'peak':{'active':None}}"),
                 "memlab.device 2");
    CHECK_UNREAD(EXTRAS("{'flags':'A'}"), "memlab.event 1");
    CHECK_UNREAD(EXTRAS("{'flags':'A '}"), "memlab.event 1");
    CHECK_UNREAD(EXTRAS("{'block_bytes':[1]}"), "memlab.event 1");
    CHECK_UNREAD(EXTRAS("{'block_bytes':[1,-1]}"), "memlab.event 1");
    CHECK_UNREAD(EXTRAS("{'tags':7}"), "memlab.tag 1");
    CHECK_UNREAD(EXTRAS("{'tags':{'position':[0]}}"), "memlab.tag 1");
    CHECK_UNREAD(EXTRAS("{'tags':{'position':[1,0],'addr':[0,0],'name':['',''],"
                        "'category':['','']}}"),
                 "memlab.tag 1");
    CHECK_UNREAD(EXTRAS("{'tags':{'position':[3],'addr':[0],'name':[7],"
                        "'category':['']}}"),
                 "memlab.tag 2");
    CHECK_UNREAD(EXTRAS("{'uses':{'addr':[5,5,7],'position':[0,0,3]}}"),
                 "memlab.use 2");
}

#define MODULES(modules) \
    "{'segments':[],'device_traces':[[{'action':'alloc','addr':1,'size':2,'frames':" \
    "[]}]],'memlab':{'version':1," modules "}}"
#define RANKS(ranks) \
    "{'segments':[],'device_traces':[[{'action':'alloc','addr':1,'size':2}]],'memlab'" \
    ":{" \
    "'version':1,'ranks':" ranks "}}"

static void
test_wrong_columns(void)
{
    CHECK_UNREAD(EXTRAS("{'sequence':[1]}"), "memlab.event 1");
    CHECK_UNREAD(EXTRAS("{'sequence':[1,'x']}"), "memlab.event 1");
    CHECK_UNREAD(EXTRAS("{'time':[0,1000]}"), "memlab.event 1");
    CHECK_UNREAD(EXTRAS("{'thread':[1,4294967296]}"), "memlab.event 1");
    CHECK_UNREAD(EXTRAS("{'autograd_thread':[1,-1]}"), "memlab.event 1");
    CHECK_UNREAD(EXTRAS("{'pool_id':[1,(0,1)]}"), "memlab.event 1");
    CHECK_UNREAD(EXTRAS("{'node':['',5]}"), "memlab.event 1");
    CHECK_UNREAD(MODULES("'modules':{}"), "memlab.module 1");
    CHECK_UNREAD(MODULES("'modules':[[],5]"), "memlab.module 1");
    CHECK_UNREAD(MODULES("'modules':[5,{}]"), "memlab.module 1");
    CHECK_UNREAD(MODULES("'modules':[[],{0:'m'}]"), "memlab.module 1");
    CHECK_UNREAD(MODULES("'notes':[]"), "memlab.note 1");
    CHECK_UNREAD(MODULES("'notes':{'time':[1],'kind':['step'],'name':[''],'device':[0"
                         "],'thread':[0],'values':[0,0,0,0]}"),
                 "memlab.note 1");
    CHECK_UNREAD(MODULES("'notes':{'lost':-1,'time':[],'kind':[],'name':[],'device':[],"
                         "'thread':[],'values':[]}"),
                 "memlab.note 1");
    CHECK_UNREAD(MODULES("'notes':{'time':[1]}"), "memlab.note 1");
    CHECK_UNREAD(MODULES("'notes':{'time':[2,1],'kind':['step','step'],'name':['',''],"
                         "'device':[-2,0],'thread':[0,0],'values':[0,0,0,0,0,0,0,0,0,0,"
                         "0,0,0,None]}"),
                 "memlab.note 3");
    CHECK_UNREAD(MODULES("'source':7,'has_segments':7"), "memlab 1 memlab.source 1");
    CHECK_UNREAD(MODULES("'unread':{'event.size':3,'frame.line':-1,'x':2}"),
                 "event.size 3 memlab 1");
}

static void
test_wrong_ranks(void)
{
    CHECK_UNREAD(RANKS("7"), "memlab.rank 1");
    CHECK_UNREAD(RANKS("[7]"), "memlab.rank 1");
    CHECK_UNREAD(RANKS("[{'rank':'x','world_size':-1,'state':7}]"), "memlab.rank 3");
    CHECK_UNREAD(RANKS("[{'rank':0,'numbers':[0]}]"), "");
    CHECK_UNREAD(RANKS("[{'rank':0,'numbers':['x']}]"), "memlab.rank 1");
    /* Whose the device is, is not known: there are no ranks then. */
    static const char *const lost[] = {
        RANKS("[{'rank':0,'numbers':7}]"), RANKS("[{'rank':0,'numbers':[]}]"),
        RANKS("[{'rank':0,'numbers':[0,1]}]"), RANKS("[{'rank':0},{'rank':1}]"),
        RANKS("[{'rank':0,'numbers':[0]},{'rank':1}]")};
    for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++) {
        CHECK_UNREAD(lost[i], "memlab.rank 1");
        ml_recording *recording = read_literal(lost[i]);
        CHECK(recording != NULL);
        CHECK_UINT(recording->rank_count, 0);
        ml_recording_free(recording);
    }
}

#define CODE(line, first, text) \
    MODULES("'code':{'file':['a'],'function':['f'],'line':[" line "]," \
            "'text':[" text "],'qualname':['f'],'first_line':[" first "]," \
            "'last_line':[2],'changed_us':[0]}")

static size_t
code_lines_of(const char *literal)
{
    ml_recording *recording = read_literal(literal);
    size_t count = recording != NULL ? recording->code_line_count : SIZE_MAX;
    ml_recording_free(recording);
    return count;
}

static void
test_wrong_code(void)
{
    CHECK_UINT(code_lines_of(CODE("2", "1", "'x'")), 1);
    CHECK_UNREAD(CODE("2", "1", "'x'"), "");
    /* Where its function begins is not known, then. */
    CHECK_UINT(code_lines_of(CODE("2", "-1", "'x'")), 1);
    CHECK_UNREAD(CODE("2", "-1", "'x'"), "memlab.code 1");
    static const char *const lost[] = {
        MODULES("'code':[]"),  MODULES("'code':{'file':[]}"), CODE("2", "1", ""),
        CODE("0", "1", "'x'"), CODE("'2'", "1", "'x'"),       CODE("2", "1", "5")};
    for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++) {
        CHECK_UINT(code_lines_of(lost[i]), 0);
        CHECK_UNREAD(lost[i], "memlab.code 1");
    }
}

/* Sixty-four devices that share one list of events: what two bytes each refer to costs
 * its full memory here, so the file is refused rather than multiplied. */
static void
test_shared_traces_meet_the_limit(void)
{
    ml_buffer pickle = {0};
    static const char head[] =
        "\x80\x04}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces](](";
    static const char event[] =
        "}(X\x06\0\0\0action\x94X\x05\0\0\0alloc\x94X\x04\0\0\0addr\x94K\x01"
        "X\x04\0\0\0size\x94K\x02u\x94";
    ml_buffer_append(&pickle, head, sizeof(head) - 1);
    ml_buffer_append(&pickle, event, sizeof(event) - 1);
    for (int i = 0; i < 100000; i++) {
        ml_buffer_append(&pickle, "h\x04", 2);
    }
    ml_buffer_append(&pickle, "e\x94", 2);
    for (int i = 0; i < 63; i++) {
        ml_buffer_append(&pickle, "h\x05", 2);
    }
    ml_buffer_append(&pickle, "eu.", 3);
    ml_recording *recording = NULL;
    ml_read_error error = {0};
    int result = ml_snapshot_read(pickle.bytes, pickle.length, &recording, &error);
    ml_buffer_fini(&pickle);
    CHECK_INT(result, ML_ELIMIT);
    CHECK(strstr(error.text, "far more memory than the file") != NULL);
}

static void
test_without_memory(void)
{
    for (long budget = 0;; budget++) {
        ml_buffer pickle = literal_pickle(whole);
        ml_recording *recording = NULL;
        ml_read_error error = {0};
        budget_begin(budget);
        int result = ml_snapshot_read(pickle.bytes, pickle.length, &recording, &error);
        ml_recording_free(recording);
        budget_end();
        ml_buffer_fini(&pickle);
        CHECK_INT(budget_alive, 0);
        if (result == 0) {
            CHECK(budget > 20);
            break;
        }
        CHECK_INT(result, ML_ENOMEM);
        CHECK(recording == NULL);
    }
}

/* A word that two meanings shared would be read as the first. */
static void
test_words_are_distinct(void)
{
    for (unsigned a = 0; a < ML_WORD_COUNT; a++) {
        for (unsigned b = 0; b < a; b++) {
            CHECK(strcmp(ml_word_text(a), ml_word_text(b)) != 0);
        }
    }
}

int
main(void)
{
    RUN(test_events);
    RUN(test_merged_ranks_without_a_device);
    RUN(test_stacks_are_shared_by_value);
    RUN(test_memory);
    RUN(test_settings_and_annotations);
    RUN(test_list_of_old_segments);
    RUN(test_event_frames);
    RUN(test_extras);
    RUN(test_what_is_no_snapshot);
    RUN(test_wrong_types);
    RUN(test_lines_that_are_none);
    RUN(test_events_keep_their_places);
    RUN(test_blocks_tell_of_each_other);
    RUN(test_wrong_ranks);
    RUN(test_wrong_code);
    RUN(test_missing_keys);
    RUN(test_lies);
    RUN(test_sizes_above_the_dialect);
    RUN(test_wrong_extras);
    RUN(test_wrong_columns);
    RUN(test_shared_traces_meet_the_limit);
    RUN(test_without_memory);
    RUN(test_words_are_distinct);
    return TEST_RESULT();
}
