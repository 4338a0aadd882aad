#include "file/snapshot/pickle_writer.h"

#include "base/base.h"
#include "budget.h"
#include "file/snapshot/snapshot_reader.h"
#include "literal.h"
#include "test.h"
#include "plain_events.h"

static int
sink(void *context, const void *bytes, size_t length)
{
    ml_buffer *out = context;
    ml_buffer_append(out, bytes, length);
    return out->error;
}

#define FRAMES \
    "[{'name':'f','filename':'a.py','line':3},{'name':'g','filename':'','line':0}]"
#define DIVISIONS \
    "{'1':0,'2':0,'4':0,'8':4,'16':0,'32':0,'64':0,'128':0,'256':0,'512':0,'1024':0," \
    "'2048':0,'4096':0,'8192':0,'16384':0,'32768':0}"

/* A snapshot as torch 2.11 lays it out, keys in its order: known frames of a segment
 * come last, empty ones before the blocks. */
static const char snapshot[] =
    "{'segments':[{'device':0,'address':140438048604160,'total_size':2097152,"
    "'allocated_size':512,'active_size':1024,'requested_size':904,'stream':0,"
    "'segment_type':'small','segment_pool_id':(0,0),'is_expandable':False,'frames':[],"
    "'blocks':[{'address':140438048604160,'size':512,'requested_size':500,"
    "'state':'active_allocated','frames':" FRAMES "},"
    "{'address':140438048604672,'size':512,'requested_size':404,"
    "'state':'active_pending_free','frames':[]},"
    "{'address':140438048605184,'size':2096128,'requested_size':77,'state':'inactive',"
    "'frames':[]}]},"
    "{'device':1,'address':-512,'total_size':511,'allocated_size':0,'active_size':0,"
    "'requested_size':0,'stream':-2,'segment_type':'large','segment_pool_id':(1,7),"
    "'is_expandable':True,'blocks':[],'frames':" FRAMES "}],"
    "'device_traces':[["
    "{'action':'alloc','addr':140438048604160,'size':500,'stream':0,"
    "'time_us':1795221952956587,'compile_context':'N/A','user_metadata':'epoch 1',"
    "'frames':" FRAMES "},"
    "{'action':'oom','device_free':255,'size':4398046511104,'stream':256,'time_us':"
    "65536,"
    "'compile_context':'N/A','user_metadata':'','frames':[]}],[]],"
    "'allocator_settings':{'PYTORCH_CUDA_ALLOC_CONF':'a:b','max_split_size':-1,"
    "'garbage_collection_threshold':0.5,'expandable_segments':True,"
    "'roundup_power2_divisions':" DIVISIONS "},"
    "'external_annotations':[{'stage':'START','name':'x','device':0,'time_us':1},"
    "{'stage':'END','name':'x','device':-1,'time_us':2}]}";

static void
test_torch_layout(void)
{
    ml_recording *recording = literal_recording(snapshot);
    CHECK(recording != NULL);
    char *written = literal_written(recording, 0);
    CHECK_STR(written, snapshot);
    ml_free(written);
    ml_recording_free(recording);
}

static void
test_optional_keys(void)
{
    ml_recording *recording =
        literal_recording("{'segments':[],'device_traces':[[{'action':"
                          "'snapshot','addr':0,'size':5}]]}");
    CHECK(recording != NULL);
    char *written = literal_written(recording, 0);
    CHECK_STR(written, "{'segments':[],'device_traces':[[{'action':'snapshot','addr':0,"
                       "'size':5,'stream':0,'time_us':0}]]}");
    ml_free(written);
    recording->keys = ML_KEY_POOL_ID | ML_KEY_HOST;
    plain_events(&recording->devices[0])[0].flags = ML_EVENT_CONTEXT;
    plain_events(&recording->devices[0])[0].pool[1] = 9;
    plain_events(&recording->devices[0])[0].action = ML_ACTION_OTHER;
    written = literal_written(recording, 0);
    CHECK_STR(written, "{'segments':[],'device_traces':[[{'action':'other','addr':0,"
                       "'size':5,'stream':0,'time_us':0,'pool_id':(0,9),'frames':[]}]],"
                       "'host_segments':[],'host_traces':[]}");
    ml_free(written);
    ml_recording_free(recording);
}

/* As torch 2.15 writes them: the action of an annotation, and the allocator's own note
 * in the events that have one. */
static void
test_annotation_and_internal_metadata(void)
{
    static const char literal[] =
        "{'segments':[],'device_traces':[[{'action':'alloc','addr':512,'size':5,"
        "'stream':0,'time_us':1,'user_metadata':'','pool_id':(0,0),"
        "'internal_metadata':'mallocWithAddress'},{'action':'annotate','addr':512,"
        "'size':5,'stream':0,'time_us':2,'user_metadata':'packed','pool_id':(0,0)}]]}";
    ml_recording *recording = literal_recording(literal);
    CHECK(recording != NULL);
    char *written = literal_written(recording, 0);
    CHECK_STR(written, literal);
    ml_free(written);
    /* To a version of torch without the key it is memlab's. */
    recording->keys &= ~ML_KEY_INTERNAL_METADATA;
    written = literal_written(recording, ML_PICKLE_EXTRAS);
    CHECK(strstr(written, "'internal_metadata':['mallocWithAddress','']") != NULL);
    ml_free(written);
    ml_recording_free(recording);
}

static void
test_extras(void)
{
    static const char literal[] =
        "{'segments':[],'device_traces':[[{'action':'alloc','addr':1,'size':2,'stream':"
        "0,"
        "'time_us':0}]],'memlab':{'version':1,'source':'cpu','has_segments':False,"
        "'devices':[{'overwritten_events':1,'dropped_events':2,'lost_stacks':3,"
        "'lost_names':8,"
        "'peak':{'allocated':4,'active':5,'requested':6,'reserved':7},"
        "'tags':{'position':[0,1],'addr':[9,-9],'category':['parameter','before_"
        "recording'],"
        "'name':['w',''],'module':['h.0','']},'flags':'C','block_bytes':[512]}]}}";
    ml_recording *recording = literal_recording(literal);
    CHECK(recording != NULL);
    char *written = literal_written(recording, ML_PICKLE_EXTRAS);
    CHECK_STR(written, literal);
    ml_free(written);
    ml_recording_free(recording);
}

/* What events say of autograd and of time, the modules of stacks that say the same,
 * and notes. */
static void
test_extras_of_events(void)
{
    static const char literal[] =
        "{'segments':[],'device_traces':[[{'action':'alloc','addr':1,'size':2,'stream':"
        "0,'time_us':0,'frames':" FRAMES "},{'action':'alloc','addr':3,'size':2,"
        "'stream':0,'time_us':5,'frames':" FRAMES "}]],'memlab':{'version':1,"
        "'source':'cpu','has_segments':False,"
        "'devices':[{'overwritten_events':0,'dropped_events':0,'lost_stacks':0,"
        "'lost_names':0,"
        "'peak':{'allocated':0,'active':0,'requested':0,'reserved':0},"
        "'tags':{'position':[],'addr':[],'category':[],'name':[],'module':[]},"
        "'flags':'a`',"
        "'block_bytes':[0,0],'time':[0,999],'thread':[1,2],'autograd_thread':[1,1],"
        "'sequence':[-1,70000],'node':['N','']}],"
        "'modules':[" FRAMES ",{0:'h.0.mlp',1:'h.0'}," FRAMES ",{1:'h.1'}],"
        "'notes':{'lost':8,'time':[5,6],'kind':['step','gpu'],'name':['','x'],"
        "'device':[-1,0],'thread':[1,0],"
        "'values':[7,0,0,0,0,0,0,1,2,3,-1,0,0,4]},"
        "'code':{'file':['x',''],'function':['N','N'],'line':[3,4],"
        "'text':['h.0',''],'qualname':['h.1',''],'first_line':[2,0],"
        "'last_line':[70000,0],'changed_us':[5000000000,0],"
        "'forward':[2,0]}}}";
    ml_recording *recording = literal_recording(
        "{'segments':[],'device_traces':[[{'action':'alloc','addr':1,'size':2,"
        "'frames':" FRAMES "},{'action':'alloc','addr':3,'size':2,'frames':" FRAMES
        "}]],'memlab':{'version':1,'source':'cpu','has_segments':False,'devices':[{"
        "'flags':'a`'}]}}");
    CHECK(recording != NULL);
    ml_event *events = plain_events(&recording->devices[0]);
    /* The second stack of the same frames differs from the first in its modules
     * alone. */
    uint32_t names[4];
    static const char *const texts[4] = {"h.0.mlp", "h.0", "h.1", "N"};
    for (size_t i = 0; i < 4; i++) {
        CHECK_INT(
            ml_recording_add_string(recording, texts[i], strlen(texts[i]), &names[i]),
            0);
    }
    uint32_t leaf = events[0].stack;
    ml_stack outer = recording->stacks[recording->stacks[leaf].parent];
    ml_stack inner = recording->stacks[leaf];
    for (size_t i = 0; i < 2; i++) {
        outer.module = names[1 + i];
        CHECK_INT(ml_recording_add_stack(recording, outer, &inner.parent), 0);
        inner.module = i == 0 ? names[0] : 0;
        CHECK_INT(ml_recording_add_stack(recording, inner, &events[i].stack), 0);
        events[i].thread = (uint32_t)(1 + i);
        events[i].autograd_thread = 1;
    }
    events[1].time = 5999;
    events[0].sequence = UINT64_MAX;
    events[1].sequence = 70000;
    events[0].node = names[3];
    recording->notes = ml_alloc_zeroed(2, sizeof(ml_note));
    recording->note_count = 2;
    recording->lost_notes = 8;
    recording->notes[0] = (ml_note){
        .time = 5, .values = {7}, .device = -1, .thread = 1, .kind = ML_NOTE_STEP};
    recording->notes[1] = (ml_note){
        .time = 6, .values = {1, 2, 3, UINT64_MAX, 0, 0, 4}, .kind = ML_NOTE_GPU};
    CHECK_INT(ml_recording_add_string(recording, "x", 1, &recording->notes[1].name), 0);
    const ml_code_line lines[] = {{.filename = recording->notes[1].name,
                                   .name = names[3],
                                   .line = 3,
                                   .text = names[1],
                                   .qualname = names[2],
                                   .first_line = 2,
                                   .last_line = 70000,
                                   .changed_us = 5000000000,
                                   .forward = ML_CODE_FORWARD_FUNCTIONS},
                                  {.name = names[3], .line = 4}};
    CHECK_INT(ml_recording_add_code_line(recording, lines[0]), 0);
    CHECK_INT(ml_recording_add_code_line(recording, lines[1]), 0);
    char *written = literal_written(recording, ML_PICKLE_EXTRAS);
    CHECK_STR(written, literal);
    ml_free(written);

    /* And all of it is read back. */
    ml_buffer out = {0};
    CHECK_INT(ml_pickle_write(recording, ML_PICKLE_EXTRAS, sink, &out), 0);
    ml_recording *read = NULL;
    CHECK_INT(ml_snapshot_read(out.bytes, out.length, &read, NULL), 0);
    written = literal_written(read, ML_PICKLE_EXTRAS);
    CHECK_STR(written, literal);
    CHECK_UINT(plain_events(&read->devices[0])[1].time, 5999);
    CHECK(plain_events(&read->devices[0])[0].stack !=
          plain_events(&read->devices[0])[1].stack);
    ml_free(written);
    ml_recording_free(read);
    ml_buffer_fini(&out);
    ml_recording_free(recording);
}

#define POOLED(extras, pool) \
    "{'segments':[],'device_traces':[[" \
    "{'action':'alloc','addr':1,'size':2,'stream':0,'time_us':0" pool "}," \
    "{'action':'alloc','addr':3,'size':2,'stream':0,'time_us':0" pool "}]]," \
    "'memlab':{'version':1,'source':'','has_segments':True,'devices':[{" \
    "'overwritten_events':0,'dropped_events':0,'lost_stacks':0,'lost_names':0," \
    "'peak':{'allocated':0,'active':0,'requested':0,'reserved':0}," \
    "'tags':{'position':[],'addr':[],'category':[],'name':[],'module':[]}," \
    "'flags':'PP','block_bytes':[0,0]" extras "}]}}"

/* Of events in a schema that has no key for them. */
static void
test_extras_of_pools(void)
{
    static const char literal[] = POOLED(",'pool_id':[157,12884901889]", "");
    ml_recording *recording = literal_recording(literal);
    CHECK(recording != NULL);
    const ml_event *events = plain_events(&recording->devices[0]);
    CHECK_INT(events[0].flags, ML_EVENT_POOL_KNOWN);
    CHECK_UINT(events[0].pool[0], 0);
    CHECK_UINT(events[0].pool[1], 157);
    CHECK_UINT(events[1].pool[0], 3);
    CHECK_UINT(events[1].pool[1], 1);
    char *written = literal_written(recording, ML_PICKLE_EXTRAS);
    CHECK_STR(written, literal);
    ml_free(written);
    ml_recording_free(recording);

    /* The first files lost them, and said that they were known. */
    recording = literal_recording(POOLED("", ""));
    CHECK(recording != NULL);
    CHECK_INT(plain_events(&recording->devices[0])[0].flags, 0);
    ml_recording_free(recording);

    /* Once is enough. */
    static const char newer[] = POOLED("", ",'pool_id':(0,0)");
    recording = literal_recording(newer);
    CHECK(recording != NULL);
    CHECK_INT(plain_events(&recording->devices[0])[0].flags, ML_EVENT_POOL_KNOWN);
    written = literal_written(recording, ML_PICKLE_EXTRAS);
    CHECK_STR(written, newer);
    ml_free(written);
    ml_recording_free(recording);
}

/* With torch's context="alloc" a free shows the frames of its allocation. */

/* Every boundary of an integer's encodings comes back. */
static void
test_integers(void)
{
    static const uint64_t values[] = {0,
                                      1,
                                      255,
                                      256,
                                      65535,
                                      65536,
                                      INT32_MAX,
                                      (uint64_t)INT32_MAX + 1,
                                      UINT32_MAX,
                                      (uint64_t)UINT32_MAX + 1,
                                      (uint64_t)1 << 39,
                                      ((uint64_t)1 << 39) - 1,
                                      (uint64_t)1 << 47,
                                      (uint64_t)1 << 53,
                                      ((uint64_t)1 << 53) + 1,
                                      ((uint64_t)1 << 55) - 1,
                                      (uint64_t)1 << 55,
                                      INT64_MAX,
                                      (uint64_t)INT64_MAX + 1,
                                      UINT64_MAX,
                                      UINT64_MAX - 127,
                                      UINT64_MAX - 128,
                                      UINT64_MAX - INT32_MAX,
                                      UINT64_MAX - UINT32_MAX};
    ml_recording *recording = literal_recording(
        "{'segments':[],'device_traces':[[{'action':'alloc','addr':1,'size':2}]]}");
    CHECK(recording != NULL);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        plain_events(&recording->devices[0])[0].stream = values[i];
        ml_buffer out = {0};
        CHECK_INT(ml_pickle_write(recording, 0, sink, &out), 0);
        ml_recording *read = NULL;
        CHECK_INT(ml_snapshot_read(out.bytes, out.length, &read, NULL), 0);
        CHECK_UINT(plain_events(&read->devices[0])[0].stream, values[i]);
        ml_recording_free(read);
        ml_buffer_fini(&out);
    }
    ml_recording_free(recording);
}

static void
test_skipped_actions_are_left_out(void)
{
    ml_recording *recording = literal_recording(
        "{'segments':[],'device_traces':[[{'action':'alloc','addr':1,'size':2},"
        "{'action':'free_requested','addr':1,'size':2},"
        "{'action':'free_completed','addr':1,'size':2}]]}");
    CHECK(recording != NULL);
    char *text =
        literal_written(recording, ML_PICKLE_SKIP(ML_ACTION_ALLOC) |
                                       ML_PICKLE_SKIP(ML_ACTION_FREE_COMPLETED));
    CHECK(strstr(text, "'free_requested'") != NULL);
    CHECK(strstr(text, "'alloc'") == NULL);
    CHECK(strstr(text, "'free_completed'") == NULL);
    ml_free(text);
    ml_recording_free(recording);
}

static void
test_the_region_of_torch_compile_is_kept(void)
{
    ml_recording *recording = literal_recording(
        "{'segments':[],'device_traces':[[{'action':'alloc','addr':1,'size':2,"
        "'compile_context':'N/A'},{'action':'alloc','addr':1,'size':2,"
        "'compile_context':'Torch-Compiled Region: 0/0'}]]}");
    CHECK(recording != NULL);
    const ml_event *events = plain_events(&recording->devices[0]);
    CHECK_UINT(events[0].compiled, 0);
    CHECK_TEXT(recording->strings[events[1].compiled].bytes,
               recording->strings[events[1].compiled].length,
               "Torch-Compiled Region: 0/0");
    char *text = literal_written(recording, 0);
    const char *none = strstr(text, "'compile_context':'N/A'");
    CHECK(none != NULL);
    CHECK(strstr(none, "'compile_context':'Torch-Compiled Region: 0/0'") != NULL);
    ml_free(text);
    ml_recording_free(recording);
}

/* Walks the opcodes by their lengths alone: which there are, how many values a batch
 * holds at most, how many bytes. */
static void
scan(const ml_buffer *pickle, bool seen[256], size_t *longest_batch)
{
    const unsigned char *at = (const unsigned char *)pickle->bytes + 2;
    const unsigned char *end = (const unsigned char *)pickle->bytes + pickle->length;
    size_t counts[32] = {0};
    int depth = 0;
    *longest_batch = 0;
    while (at < end) {
        unsigned char opcode = *at++;
        seen[opcode] = true;
        switch (opcode) {
        case 'K':
        case 'h':
            at += 1;
            counts[depth]++;
            break;
        case 'M':
            at += 2;
            counts[depth]++;
            break;
        case 'J':
        case 'j':
            at += 4;
            counts[depth]++;
            break;
        case 'G':
            at += 8;
            counts[depth]++;
            break;
        case 0x8a:
        case 0x8c:
            at += 1 + *at;
            counts[depth]++;
            break;
        case 'X':
            at += 4 + (at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16);
            counts[depth]++;
            break;
        case '(':
            counts[++depth] = 0;
            break;
        case 'e':
        case 'u':
            *longest_batch = counts[depth] > *longest_batch && opcode == 'e'
                                 ? counts[depth]
                                 : *longest_batch;
            depth--;
            break;
        case 0x86:
            counts[depth]--;
            break;
        case ']':
        case '}':
        case 0x88:
        case 0x89:
            counts[depth]++;
            break;
        default:
            break;
        }
    }
}

static void
test_only_what_the_viewer_reads(void)
{
    ml_recording *recording = literal_recording(snapshot);
    CHECK(recording != NULL);
    ml_event *events = ml_alloc_zeroed(2500, sizeof(ml_event));
    CHECK(events != NULL);
    for (size_t i = 0; i < 2500; i++) {
        events[i] = plain_events(&recording->devices[0])[i % 2];
        events[i].addr += i << 40;
    }
    ml_events_free(&recording->devices[0].events);
    recording->devices[0].events.plain = events;
    recording->devices[0].event_count = 2500;
    ml_buffer out = {0};
    CHECK_INT(ml_pickle_write(recording, ML_PICKLE_EXTRAS, sink, &out), 0);
    bool seen[256] = {false};
    size_t longest_batch = 0;
    scan(&out, seen, &longest_batch);
    CHECK_UINT(longest_batch, 1000);
    static const unsigned char viewer[] = {
        0x80, 0x95, '(', '.', 'N', 0x88, 0x89, 'J', 'K', 'M',  0x8a,
        'G',  0x8c, 'X', ']', '}', ')',  'l',  'd', 't', 0x85, 0x86,
        0x87, 'a',  'e', 's', 'u', 0x94, 'q',  'r', 'h', 'j'};
    for (unsigned opcode = 0; opcode < 256; opcode++) {
        CHECK(!seen[opcode] || memchr(viewer, (int)opcode, sizeof(viewer)) != NULL);
    }
    CHECK_INT((unsigned char)out.bytes[1], 4);
    ml_recording *read = NULL;
    CHECK_INT(ml_snapshot_read(out.bytes, out.length, &read, NULL), 0);
    CHECK_UINT(read->devices[0].event_count, 2500);
    CHECK_UINT(plain_events(&read->devices[0])[2499].addr, events[2499].addr);
    ml_recording_free(read);
    ml_buffer_fini(&out);
    ml_recording_free(recording);
}

/* Frames are written once each, lists of frames once for each stack. */
static void
test_sharing(void)
{
    ml_recording *recording = literal_recording(snapshot);
    CHECK(recording != NULL);
    ml_buffer out = {0};
    CHECK_INT(ml_pickle_write(recording, 0, sink, &out), 0);
    int names = 0;
    for (size_t i = 0; i + 4 < out.length; i++) {
        names += memcmp(out.bytes + i, "a.py", 4) == 0;
    }
    CHECK_INT(names, 1);
    ml_tree tree;
    CHECK_INT(ml_unpickle(out.bytes, out.length, &tree, NULL), 0);
    const ml_array *root = ml_value_as_array(tree.root);
    const ml_array *segments = ml_value_as_array(root->items[1]);
    const ml_array *first = ml_value_as_array(segments->items[0]);
    const ml_array *blocks = ml_value_as_array(first->items[first->count - 1]);
    const ml_array *block = ml_value_as_array(blocks->items[0]);
    const ml_array *second = ml_value_as_array(segments->items[1]);
    CHECK(block->items[9].bits == second->items[second->count - 1].bits);
    ml_tree_fini(&tree);
    ml_buffer_fini(&out);
    ml_recording_free(recording);
}

static int
broken_sink(void *context, const void *bytes, size_t length)
{
    (void)bytes;
    (void)length;
    return --*(int *)context < 0 ? ML_EIO : 0;
}

static void
test_sink_fails(void)
{
    ml_recording *recording = literal_recording(snapshot);
    CHECK(recording != NULL);
    int calls = 0;
    CHECK_INT(ml_pickle_write(recording, 0, broken_sink, &calls), ML_EIO);
    CHECK_INT(calls, -1);
    calls = 1;
    CHECK_INT(ml_pickle_write(recording, 0, broken_sink, &calls), 0);
    CHECK_INT(calls, 0);
    ml_recording_free(recording);
}

static int
null_sink(void *context, const void *bytes, size_t length)
{
    (void)bytes;
    *(size_t *)context += length;
    return 0;
}

static void
test_without_memory(void)
{
    ml_recording *recording = literal_recording(snapshot);
    CHECK(recording != NULL);
    for (long budget = 0;; budget++) {
        size_t length = 0;
        budget_begin(budget);
        int result = ml_pickle_write(recording, ML_PICKLE_EXTRAS, null_sink, &length);
        budget_end();
        CHECK_INT(budget_alive, 0);
        if (result == 0) {
            CHECK(budget >= 5);
            break;
        }
        CHECK_INT(result, ML_ENOMEM);
    }
    ml_recording_free(recording);
}

int
main(void)
{
    RUN(test_torch_layout);
    RUN(test_optional_keys);
    RUN(test_annotation_and_internal_metadata);
    RUN(test_extras);
    RUN(test_extras_of_events);
    RUN(test_extras_of_pools);
    RUN(test_integers);
    RUN(test_skipped_actions_are_left_out);
    RUN(test_the_region_of_torch_compile_is_kept);
    RUN(test_only_what_the_viewer_reads);
    RUN(test_sharing);
    RUN(test_sink_fails);
    RUN(test_without_memory);
    return TEST_RESULT();
}
