#include "show/export/recording_json.h"

#include "base/base.h"
#include "budget.h"
#include "file/snapshot/snapshot_reader.h"
#include "literal.h"
#include "test.h"

static int
sink(void *context, const void *bytes, size_t length)
{
    ml_buffer *out = context;
    ml_buffer_append(out, bytes, length);
    return out->error;
}

static int
full(void *context, const void *bytes, size_t length)
{
    (void)context;
    (void)bytes;
    (void)length;
    return ML_EFULL;
}

#define F "{'name':'f','filename':'a\"b','line':3}"
#define G "{'name':'g','filename':'','line':0}"

static const char snapshot[] =
    "{'segments':[{'device':0,'address':140438048604160,'total_size':2097152,"
    "'allocated_size':512,'active_size':512,'requested_size':500,'stream':0,"
    "'segment_type':'small','segment_pool_id':(0,1),'is_expandable':False,'frames':[],"
    "'blocks':[{'address':140438048604160,'size':512,'requested_size':500,"
    "'state':'active_allocated','frames':[" F "," G "]},"
    "{'address':140438048604672,'size':2096640,'requested_size':0,"
    "'state':'inactive','frames':[]}]}],"
    "'device_traces':[[{'action':'alloc','addr':140438048604160,'size':500,'stream':-1,"
    "'time_us':7,'frames':[" F "," G "]}],[]],"
    "'allocator_settings':{'a':0.5,'b':True,'c':2.0}}";

/* Of each place where frames stand what is written there. */
#define EXPECTED(head, none, stack) \
    "{" head "\"segments\":[{\"device\":0,\"address\":140438048604160,\"total_size\":" \
    "2097152,\"allocated_size\":512,\"active_size\":512,\"requested_size\":500," \
    "\"stream\":0,\"segment_type\":\"small\",\"segment_pool_id\":[0,1]," \
    "\"is_expandable\":false,\"frames\":" none ",\"blocks\":[{\"address\":" \
    "140438048604160,\"size\":512,\"requested_size\":500,\"state\":" \
    "\"active_allocated\",\"frames\":" stack \
    "},{\"address\":140438048604672,\"size\":" \
    "2096640,\"requested_size\":0,\"state\":\"inactive\",\"frames\":" none "}]}]," \
    "\"device_traces\":[[{\"action\":\"alloc\",\"addr\":140438048604160,\"size\":500," \
    "\"stream\":-1,\"time_us\":7,\"frames\":" stack "}],[]]," \
    "\"allocator_settings\":{\"a\":0.5,\"b\":true,\"c\":2.0}}"
#define F_JSON "{\"name\":\"f\",\"filename\":\"a\\u0022b\",\"line\":3}"
#define G_JSON "{\"name\":\"g\",\"filename\":\"\",\"line\":0}"

static void
check_written(unsigned options, const char *expected)
{
    ml_recording *recording = literal_recording(snapshot);
    CHECK(recording != NULL);
    ml_buffer out = {0};
    CHECK_INT(ml_recording_json_write(recording, options, sink, &out), 0);
    CHECK_TEXT(out.bytes, out.length, expected);
    ml_buffer_fini(&out);
    ml_recording_free(recording);
}

/* Two frames and two stacks, g and f that g called, behind the unknown ones. */
static void
test_stacks_stand_in_one_table(void)
{
    check_written(0,
                  EXPECTED("\"version\":2,\"frames\":[{\"name\":\"\",\"filename\":\"\","
                           "\"line\":0}," G_JSON "," F_JSON "],\"stacks\":[[0,0],[1,0],"
                           "[2,1]],",
                           "0", "2"));
}

static void
test_stacks_written_out(void)
{
    check_written(ML_RECORDING_JSON_EXPAND,
                  EXPECTED("", "[]", "[" F_JSON "," G_JSON "]"));
}

static void
test_a_sink_that_takes_nothing_more(void)
{
    ml_recording *recording = literal_recording(snapshot);
    CHECK(recording != NULL);
    CHECK_INT(ml_recording_json_write(recording, 0, full, NULL), ML_EFULL);
    ml_recording_free(recording);
}

static void
test_without_memory(void)
{
    ml_recording *recording = literal_recording(snapshot);
    CHECK(recording != NULL);
    for (long budget = 0;; budget++) {
        ml_buffer out = {0};
        budget_begin(budget);
        int result =
            ml_recording_json_write(recording, ML_RECORDING_JSON_EXPAND, sink, &out);
        ml_buffer_fini(&out);
        budget_end();
        CHECK_INT(budget_alive, 0);
        if (result == 0) {
            CHECK(budget > 0);
            break;
        }
        CHECK_INT(result, ML_ENOMEM);
    }
    ml_recording_free(recording);
}

int
main(void)
{
    RUN(test_stacks_stand_in_one_table);
    RUN(test_stacks_written_out);
    RUN(test_a_sink_that_takes_nothing_more);
    RUN(test_without_memory);
    return TEST_RESULT();
}
