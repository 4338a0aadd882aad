/* The tracebacks of the forward in snapshots, torch's forward_frames: of events and live
 * blocks, read and written. */
#include <string.h>

#include "base/base.h"
#include "file/snapshot/snapshot_reader.h"
#include "literal.h"
#include "plain_events.h"
#include "test.h"

static size_t
count_of(const char *text, const char *part)
{
    size_t count = 0;
    while ((text = strstr(text, part)) != NULL) {
        text += strlen(part);
        count++;
    }
    return count;
}

/* Events keep the traceback of their moment, live blocks that of their allocation; an
 * annotation has none. */
static void
test_tracebacks_of_the_forward_are_kept(void)
{
    ml_recording *recording = literal_recording(
        "{'segments':[{'device':0,'address':4096,'total_size':2048,'blocks':["
        "{'address':4096,'size':1024,'requested_size':9,'state':'active_allocated',"
        "'frames':[]},{'address':5120,'size':1024,'requested_size':9,"
        "'state':'inactive','frames':[]}]}],"
        "'device_traces':[["
        "{'action':'alloc','addr':4096,'size':9,'frames':[],'forward_frames':['old']},"
        "{'action':'free_requested','addr':4096,'size':9,'frames':[]},"
        "{'action':'free_completed','addr':4096,'size':9,'frames':[]},"
        "{'action':'alloc','addr':5120,'size':9,'frames':[],'forward_frames':['old']},"
        "{'action':'alloc','addr':4096,'size':9,'frames':[],"
        "'forward_frames':['outer','inner']},"
        "{'action':'annotate','addr':4096,'size':9,'frames':[],"
        "'forward_frames':['outer']},"
        "{'action':'oom','device_free':1,'size':9,'frames':[],'forward_frames':[1]},"
        "{'action':'oom','device_free':1,'size':9,'frames':[],'forward_frames':[]}]]}");
    CHECK(recording != NULL);
    CHECK_INT(ml_recording_validate(recording), 0);
    const ml_event *events = plain_events(&recording->devices[0]);
    const ml_string *both = &recording->strings[ml_event_forward(&events[4])];
    CHECK_UINT(both->length, 11);
    CHECK(memcmp(both->bytes, "outer\0inner", 11) == 0);
    CHECK_UINT(ml_event_forward(&events[1]), 0);
    CHECK_UINT(events[5].other, ML_OTHER_ANNOTATE);
    CHECK_UINT(ml_event_forward(&events[5]), 0);
    CHECK_UINT(recording->unread[ML_UNREAD_EVENT_FORWARD_FRAMES], 1);
    char *text = literal_written(recording, 0);
    CHECK_UINT(count_of(text, "'forward_frames':['old']"), 2);
    CHECK_UINT(count_of(text, "'forward_frames':['outer','inner']"), 2);
    CHECK_UINT(count_of(text, "forward_frames"), 4);
    const char *segments = strstr(text, "'segments'");
    const char *block = strstr(text, "'forward_frames':['outer','inner']");
    CHECK(segments != NULL && block < strstr(text, "'device_traces'"));
    ml_free(text);
    /* An id above the last string. */
    plain_events(&recording->devices[0])[0].other = 1000;
    CHECK(ml_recording_validate(recording) != 0);
    ml_recording_free(recording);
}

/* The traceback is the recording's first string. */
static void
test_a_block_has_the_only_traceback(void)
{
    ml_recording *recording = literal_recording(
        "{'segments':[{'device':0,'address':4096,'total_size':1024,'blocks':["
        "{'address':4096,'size':1024,'requested_size':9,'state':'active_allocated',"
        "'frames':[]}]}],'device_traces':[[{'action':'alloc','addr':4096,'size':9,"
        "'frames':[],'forward_frames':['only']}]]}");
    CHECK(recording != NULL);
    CHECK_UINT(ml_event_forward(&plain_events(&recording->devices[0])[0]), 1);
    char *text = literal_written(recording, 0);
    CHECK_UINT(count_of(text, "'forward_frames':['only']"), 2);
    ml_free(text);
    ml_recording_free(recording);
}

/* A segment has that of its own allocation, not of the block at its address. */
static void
test_a_segment_has_that_of_its_allocation(void)
{
    ml_recording *recording = literal_recording(
        "{'segments':[{'device':0,'address':4096,'total_size':1024,'blocks':["
        "{'address':4096,'size':1024,'requested_size':9,'state':'active_allocated',"
        "'frames':[]}]},{'device':0,'address':8192,'total_size':1024,'blocks':["
        "{'address':8192,'size':1024,'requested_size':0,'state':'inactive',"
        "'frames':[]}]}],'device_traces':[["
        "{'action':'segment_alloc','addr':4096,'size':1024,'frames':[],"
        "'forward_frames':['whole']},"
        "{'action':'alloc','addr':4096,'size':9,'frames':[],'forward_frames':['one']},"
        "{'action':'segment_map','addr':8192,'size':1024,'frames':[]}]]}");
    CHECK(recording != NULL);
    char *text = literal_written(recording, 0);
    CHECK_UINT(count_of(text, "forward_frames"), 4);
    CHECK(strstr(text, "'forward_frames':['one']}],'forward_frames':['whole']},"
                       "{'device':0,'address':8192") != NULL);
    ml_free(text);
    ml_recording_free(recording);
}

int
main(void)
{
    RUN(test_tracebacks_of_the_forward_are_kept);
    RUN(test_a_block_has_the_only_traceback);
    RUN(test_a_segment_has_that_of_its_allocation);
    return TEST_RESULT();
}
