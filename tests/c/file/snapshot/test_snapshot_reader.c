/* Snapshots as literals, read: events, stacks, segments, settings, and of what version. */
#include "file/snapshot/snapshot_reader.h"

#include "base/base.h"
#include "budget.h"
#include "file/snapshot/torch_schema.h"
#include "literal.h"
#include "snapshot_literals.h"
#include "test.h"
#include "plain_events.h"

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
    const ml_event *events = plain_events(&recording->devices[0]);
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
    CHECK_UINT(events[1].other, ML_OTHER_ANNOTATE);
    CHECK_UINT(events[0].other, ML_OTHER_UNKNOWN);
    CHECK_UINT(events[1].addr, UINT64_MAX - 4095);
    CHECK_UINT(events[1].stream, UINT64_MAX);
    CHECK_UINT(events[1].stack, 0);
    CHECK_INT(events[2].action, ML_ACTION_OOM);
    CHECK_UINT(events[2].addr, 777);
    CHECK_UINT(recording->devices[1].event_count, 1);
    CHECK_INT(plain_events(&recording->devices[1])[0].action, ML_ACTION_SEGMENT_MAP);
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
    uint32_t stack = plain_events(&recording->devices[0])[0].stack;
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
    CHECK_INT(plain_events(&recording->devices[0])[0].flags & ML_EVENT_CONTEXT, 0);
    ml_recording_free(recording);
    recording =
        read_literal("{'segments':[],'device_traces':[[{'action':'alloc','addr':1,"
                     "'size':2,'frames':[]}]]}");
    CHECK(recording != NULL);
    CHECK_INT(plain_events(&recording->devices[0])[0].flags & ML_EVENT_CONTEXT,
              ML_EVENT_CONTEXT);
    ml_recording_free(recording);
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
    RUN(test_shared_traces_meet_the_limit);
    RUN(test_without_memory);
    RUN(test_words_are_distinct);
    return TEST_RESULT();
}
