#include "snapshot_reader.h"

#include "base.h"
#include "budget.h"
#include "dialect.h"
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

#define EVENT(fields) "{'segments':[],'device_traces':[[],[{" fields "}]]}"
#define SEGMENT(fields) "{'segments':[{'device':0,'total_size':1024," fields "}]}"
#define BLOCKS(blocks) SEGMENT("'address':4096,'blocks':[" blocks "]")

static void
test_wrong_types(void)
{
    CHECK_REFUSES("7", ML_EFORMAT, "the file holds an integer, not a memory snapshot");
    CHECK_REFUSES("{}", ML_EFORMAT, "the dictionary has no segments");
    CHECK_REFUSES("{'segments':7}", ML_EFORMAT, "segments is an integer, not a list");
    CHECK_REFUSES("[7]", ML_EFORMAT,
                  "segments[0]: the segment is an integer, not a dictionary");
    CHECK_REFUSES("{'segments':[],'device_traces':{}}", ML_EFORMAT,
                  "device_traces is a dictionary, not a list");
    CHECK_REFUSES("{'segments':[],'device_traces':[None]}", ML_EFORMAT,
                  "device_traces[0]: the trace is None, not a list");
    CHECK_REFUSES(EVENT("'action':3"), ML_EFORMAT,
                  "device_traces[1][0]: action is not a string");
    CHECK_REFUSES(EVENT("'addr':'x'"), ML_EFORMAT,
                  "device_traces[1][0]: addr is a string, not an integer");
    CHECK_REFUSES(EVENT("'size':1.5"), ML_EFORMAT,
                  "device_traces[1][0]: size is a float, not an integer");
    CHECK_REFUSES(EVENT("'frames':{}"), ML_EFORMAT,
                  "device_traces[1][0]: frames is not a list");
    CHECK_REFUSES(EVENT("'frames':[7]"), ML_EFORMAT,
                  "device_traces[1][0]: a frame is not a dictionary");
    CHECK_REFUSES(EVENT("'frames':[{'line':'x'}]"), ML_EFORMAT,
                  "device_traces[1][0]: the line of a frame is not an integer");
    CHECK_REFUSES(EVENT("'frames':[{'name':1}]"), ML_EFORMAT,
                  "device_traces[1][0]: a name is not a string");
    CHECK_REFUSES(EVENT("'user_metadata':1"), ML_EFORMAT,
                  "device_traces[1][0]: user_metadata is an integer, not a string");
    CHECK_REFUSES(EVENT("'pool_id':(1,2,3)"), ML_EFORMAT,
                  "device_traces[1][0]: pool_id is not a pair");
    CHECK_REFUSES(EVENT("'pool_id':(4294967296,0)"), ML_EFORMAT,
                  "device_traces[1][0]: pool_id is out of range");
    CHECK_REFUSES(BLOCKS("{'size':1,'state':'free'}"), ML_EFORMAT,
                  "segments[0].blocks[0]: state is not one of torch's");
    CHECK_REFUSES("{'segments':[],'allocator_settings':[]}", ML_EFORMAT,
                  "allocator_settings is a list, not a dictionary");
    CHECK_REFUSES("{'segments':[],'external_annotations':[{'time_us':-1}]}", ML_EFORMAT,
                  "external_annotations[0]: time_us is negative");
}

static void
test_missing_keys(void)
{
    CHECK_REFUSES(EVENT("'addr':1,'size':2"), ML_EFORMAT,
                  "device_traces[1][0]: no action");
    CHECK_REFUSES(EVENT("'action':'alloc','size':2"), ML_EFORMAT,
                  "device_traces[1][0]: no addr");
    CHECK_REFUSES(EVENT("'action':'alloc','addr':2"), ML_EFORMAT,
                  "device_traces[1][0]: no size");
    CHECK_REFUSES(SEGMENT("'blocks':[]"), ML_EFORMAT, "segments[0]: no address");
    CHECK_REFUSES(BLOCKS("{'state':'inactive'}"), ML_EFORMAT,
                  "segments[0].blocks[0]: no size");
    CHECK_REFUSES(BLOCKS("{'size':1}"), ML_EFORMAT, "segments[0].blocks[0]: no state");
}

static void
test_lies(void)
{
    CHECK_REFUSES(EVENT("'action':'alloc','addr':2,'size':-1"), ML_EFORMAT,
                  "device_traces[1][0]: size is negative");
    CHECK_REFUSES(EVENT("'action':'alloc','addr':-1,'size':2"), ML_EFORMAT,
                  "device_traces[1][0]: addr and size reach past the last address");
    CHECK_REFUSES(EVENT("'time_us':18446744073709552"), ML_EFORMAT,
                  "device_traces[1][0]: time_us is out of range");
    CHECK_REFUSES(SEGMENT("'address':-512"), ML_EFORMAT,
                  "segments[0]: reaches past the last address");
    CHECK_REFUSES(SEGMENT("'address':0,'allocated_size':1025"), ML_EFORMAT,
                  "segments[0]: holds more than its total_size");
    CHECK_REFUSES(
        "[{'address':4096,'total_size':1024},{'address':4608,'total_size':512}]",
        ML_EFORMAT, "segments[1]: overlaps another segment");
    CHECK_REFUSES("[{'address':4096,'total_size':0},{'address':4096,'total_size':0}]",
                  ML_EFORMAT, "segments[1]: overlaps another segment");
    CHECK_REFUSES("[{'device':4096,'address':0}]", ML_ELIMIT,
                  "segments[0]: more than 4096 devices");
    CHECK_REFUSES("[{'device':18446744073709551615,'address':0}]", ML_ELIMIT,
                  "segments[0]: more than 4096 devices");
    CHECK_REFUSES(BLOCKS("{'address':4096,'size':512,'state':'inactive'},"
                         "{'address':4607,'size':1,'state':'inactive'}"),
                  ML_EFORMAT, "segments[0].blocks[1]: overlaps the block before it");
    CHECK_REFUSES(BLOCKS("{'address':4095,'size':1,'state':'inactive'}"), ML_EFORMAT,
                  "segments[0].blocks[0]: overlaps the block before it");
    CHECK_REFUSES(BLOCKS("{'address':4096,'size':1025,'state':'inactive'}"), ML_EFORMAT,
                  "segments[0].blocks[0]: reaches past its segment");
    CHECK_REFUSES(BLOCKS("{'address':5121,'size':0,'state':'inactive'}"), ML_EFORMAT,
                  "segments[0].blocks[0]: reaches past its segment");
    CHECK_REFUSES(BLOCKS("{'address':4096,'size':18446744073709551615,"
                         "'state':'inactive'}"),
                  ML_EFORMAT, "segments[0].blocks[0]: reaches past its segment");
    CHECK_REFUSES(
        BLOCKS("{'size':512,'requested_size':513,'state':'active_allocated'}"),
        ML_EFORMAT, "segments[0].blocks[0]: requested_size is more than size");
}

static void
test_wrong_extras(void)
{
    CHECK_REFUSES(EXTRAS("{},{}"), ML_EFORMAT,
                  "memlab: devices is not one entry a device");
    CHECK_REFUSES(EXTRAS("7"), ML_EFORMAT, "memlab: a device is not a dictionary");
    CHECK_REFUSES(EXTRAS("{'flags':'A'}"), ML_EFORMAT,
                  "memlab: flags is not one character an event");
    CHECK_REFUSES(EXTRAS("{'flags':'A '}"), ML_EFORMAT,
                  "memlab: flags holds an unknown character");
    CHECK_REFUSES(EXTRAS("{'block_bytes':[1]}"), ML_EFORMAT,
                  "memlab: block_bytes is not one number an event");
    CHECK_REFUSES(EXTRAS("{'block_bytes':[1,-1]}"), ML_EFORMAT,
                  "memlab: a count is not a positive integer");
    CHECK_REFUSES(EXTRAS("{'tags':{'position':[0]}}"), ML_EFORMAT,
                  "memlab: tags are not columns of one length");
    CHECK_REFUSES(EXTRAS("{'tags':{'position':[1,0],'addr':[0,0],'name':['',''],"
                         "'category':['','']}}"),
                  ML_EFORMAT, "memlab: tags are out of order");
    CHECK_REFUSES(EXTRAS("{'tags':{'position':[3],'addr':[0],'name':[''],"
                         "'category':['']}}"),
                  ML_EFORMAT, "memlab: tags are out of order");
}

#define MODULES(modules) \
    "{'segments':[],'device_traces':[[{'action':'alloc','addr':1,'size':2,'frames':" \
    "[]}]],'memlab':{'version':1," modules "}}"

static void
test_wrong_columns(void)
{
    CHECK_REFUSES(EXTRAS("{'sequence':[1]}"), ML_EFORMAT,
                  "memlab: a column is not one value an event");
    CHECK_REFUSES(EXTRAS("{'sequence':[1,'x']}"), ML_EFORMAT,
                  "memlab: a number is not an integer");
    CHECK_REFUSES(EXTRAS("{'time':[0,1000]}"), ML_EFORMAT,
                  "memlab: time is not below a microsecond");
    CHECK_REFUSES(EXTRAS("{'thread':[1,4294967296]}"), ML_EFORMAT,
                  "memlab: the number of a thread is too large");
    CHECK_REFUSES(EXTRAS("{'autograd_thread':[1,-1]}"), ML_EFORMAT,
                  "memlab: a count is not a positive integer");
    CHECK_REFUSES(EXTRAS("{'node':['',5]}"), ML_EFORMAT,
                  "memlab: a name is not a string");
    CHECK_REFUSES(MODULES("'modules':{}"), ML_EFORMAT, "memlab: modules is not a list");
    CHECK_REFUSES(MODULES("'modules':[[],5]"), ML_EFORMAT,
                  "memlab: the modules of a stack are not a dictionary");
    CHECK_REFUSES(MODULES("'modules':[5,{}]"), ML_EFORMAT,
                  "memlab: frames is not a list");
    CHECK_REFUSES(MODULES("'modules':[[],{0:'m'}]"), ML_EFORMAT,
                  "memlab: modules do not fit their frames");
    CHECK_REFUSES(MODULES("'notes':[]"), ML_EFORMAT,
                  "memlab: notes is not one dictionary");
    CHECK_REFUSES(MODULES("'notes':{'time':[1],'kind':['step'],'name':[''],'device':[0"
                          "],'thread':[0],'values':[0,0,0,0]}"),
                  ML_EFORMAT, "memlab: notes are not columns of one length");
    CHECK_REFUSES(MODULES("'notes':{'lost':-1}"), ML_EFORMAT,
                  "memlab: a count is not a positive integer");
    CHECK_REFUSES(MODULES("'notes':{'time':[1]}"), ML_EFORMAT,
                  "memlab: notes are not columns of one length");
    CHECK_REFUSES(MODULES("'notes':{'time':[1],'kind':['step'],'name':[''],'device':[-2"
                          "],'thread':[0],'values':[0,0,0,0,0,0,0]}"),
                  ML_EFORMAT, "memlab: the device of a note is not one");
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
    RUN(test_wrong_types);
    RUN(test_missing_keys);
    RUN(test_lies);
    RUN(test_wrong_extras);
    RUN(test_wrong_columns);
    RUN(test_shared_traces_meet_the_limit);
    RUN(test_without_memory);
    RUN(test_words_are_distinct);
    return TEST_RESULT();
}
