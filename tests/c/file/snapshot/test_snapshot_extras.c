/* What memlab adds to torch's snapshots: read, and where it makes no sense left out. */
#include "file/snapshot/snapshot_extras.h"

#include <limits.h>

#include "snapshot_literals.h"
#include "test.h"
#include "plain_events.h"

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
    CHECK_UINT(plain_events(device)[0].thread, 65537);
    CHECK_UINT(plain_events(device)[1].thread, UINT32_MAX);
    CHECK_UINT(device->peak.allocated, 1);
    CHECK_UINT(device->peak.reserved, 4);
    CHECK_UINT(device->tag_count, 2);
    CHECK_INT(device->tags[0].category, ML_CATEGORY_GRADIENT);
    CHECK_INT(device->tags[1].category, ML_CATEGORY_UNKNOWN);
    CHECK_UINT(device->tags[1].addr, UINT64_MAX);
    CHECK_INT(plain_events(device)[0].flags, ML_EVENT_BACKWARD);
    CHECK_INT(plain_events(device)[1].flags, ML_EVENT_BLOCK_KNOWN);
    CHECK_UINT(plain_events(device)[0].block_bytes, 512);
    ml_recording_free(recording);

    /* A version that we do not know is as if it were not there. */
    recording = read_literal("{'segments':[],'memlab':{'version':2,'devices':7}}");
    CHECK(recording != NULL);
    CHECK_INT(recording->source_known, 0);
    CHECK_UINT(recording->unread[ML_UNREAD_MEMLAB_NEWER], 1);
    ml_recording_free(recording);
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
                        "'category':['unknown','unknown']}}"),
                 "memlab.tag 1");
    CHECK_UNREAD(EXTRAS("{'tags':{'position':[3],'addr':[0],'name':[7],"
                        "'category':['unknown']}}"),
                 "memlab.tag 2");
    CHECK_UNREAD(EXTRAS("{'tags':{'position':[0],'addr':[0],'name':[''],"
                        "'category':[7],'module':7}}"),
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
                 "event.size 3 memlab 1 memlab.newer 2");
}

#define NOTES(kind, fields) \
    "'notes':{'time':[1],'kind':[" kind "],'name':[''],'device':[0],'thread':[0]," \
    "'values':[0,0,0,0,0,0,0]" fields "}"
#define NEWER(literal, count) \
    do { \
        CHECK_UNREAD(literal, "memlab.newer " #count); \
        ml_recording *read = read_literal(literal); \
        CHECK(read != NULL); \
        CHECK_UINT(read->device_count, 1); \
        ml_recording_free(read); \
    } while (0)

/* Keys, kinds and categories of a newer memlab, at each depth; what is known beside
 * them is read. */
static void
test_what_a_newer_memlab_wrote(void)
{
    NEWER(MODULES("'lists':[1,2]"), 1);
    NEWER(MODULES("'lists':[1,2],'more':{},7:7"), 3);
    /* Words of other places are unknown here. */
    NEWER(MODULES("'tags':{}"), 1);
    NEWER(EXTRAS("{'lists':[1,2]}"), 1);
    NEWER(EXTRAS("{'position':[1,2]}"), 1);
    NEWER(EXTRAS("{'peak':{'active':1,'pinned':2}}"), 1);
    NEWER(EXTRAS("{'tags':{'position':[0],'addr':[0],'name':['w'],'category':["
                 "'gradient'],'more':[0]}}"),
          1);
    NEWER(EXTRAS("{'tags':{'position':[0],'addr':[0],'name':['w'],'category':["
                 "'of later']}}"),
          1);
    NEWER(EXTRAS("{'uses':{'addr':[5],'position':[0],'more':[0]}}"), 1);
    NEWER(MODULES(NOTES("'step'", ",'more':[0]")), 1);
    NEWER(MODULES(NOTES("'of later'", "")), 1);
    CHECK_UNREAD(MODULES(NOTES("'step'", ",'lost':3")), "");
    NEWER(MODULES("'code':{'file':['a'],'function':['f'],'line':[1],'text':[''],"
                  "'qualname':['f'],'first_line':[1],'last_line':[1],'changed_us':[0],"
                  "'more':[0]}"),
          1);
    NEWER(RANKS("[{'rank':0,'more':0}]"), 1);

    ml_recording *recording = read_literal(
        MODULES("'more':[1]," NOTES("'step'", ",'more':[0]") ",'source':'cuda'"));
    CHECK(recording != NULL);
    CHECK_UINT(recording->note_count, 1);
    CHECK_STR(recording->source, "cuda");
    CHECK_UINT(recording->unread[ML_UNREAD_MEMLAB_NEWER], 2);
    ml_recording_free(recording);
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

#define CODE_WITH(line, first, text, more) \
    MODULES("'code':{'file':['a'],'function':['f'],'line':[" line "]," \
            "'text':[" text "],'qualname':['f'],'first_line':[" first "]," \
            "'last_line':[2],'changed_us':[0]" more "}")
#define CODE(line, first, text) CODE_WITH(line, first, text, "")

static size_t
code_lines_of(const char *literal)
{
    ml_recording *recording = read_literal(literal);
    size_t count = recording != NULL ? recording->code_line_count : SIZE_MAX;
    ml_recording_free(recording);
    return count;
}

/* Whether the one line of code is of a Function's forward. */
static unsigned
forward_of(const char *literal)
{
    ml_recording *recording = read_literal(literal);
    unsigned forward = UINT_MAX;
    if (recording != NULL && recording->code_line_count == 1) {
        forward = recording->code_lines[0].forward;
    }
    ml_recording_free(recording);
    return forward;
}

static void
test_code_of_forwards(void)
{
    static const char none[] = CODE_WITH("2", "1", "'x'", ",'forward':[1]");
    static const char functions[] = CODE_WITH("2", "1", "'x'", ",'forward':[2]");
    /* A file of earlier does not say, and what a later one says is not known. */
    static const char later[] = CODE_WITH("2", "1", "'x'", ",'forward':[3]");
    CHECK_UINT(forward_of(none), ML_CODE_FORWARD_NONE);
    CHECK_UINT(forward_of(functions), ML_CODE_FORWARD_FUNCTIONS);
    CHECK_UINT(forward_of(later), ML_CODE_FORWARD_UNKNOWN);
    CHECK_UINT(forward_of(CODE("2", "1", "'x'")), ML_CODE_FORWARD_UNKNOWN);
    CHECK_UNREAD(functions, "");
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

int
main(void)
{
    RUN(test_extras);
    RUN(test_wrong_ranks);
    RUN(test_code_of_forwards);
    RUN(test_wrong_code);
    RUN(test_wrong_extras);
    RUN(test_wrong_columns);
    RUN(test_what_a_newer_memlab_wrote);
    return TEST_RESULT();
}
