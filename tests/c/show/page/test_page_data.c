/* The page's data: what the head says of a recording by hand, text that cannot leave
 * its element, memory failures.  What blobs say is tests/page/test_page_data.py's. */
#include "show/page/page_data.h"

#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "test.h"
#include "plain_events.h"

#define BASE UINT64_C(0x7f0000000000)
#define SECOND UINT64_C(1000000000)

static ml_recording *
new_recording(size_t event_count)
{
    ml_recording *recording = NULL;
    if (ml_recording_new(&recording) != 0) {
        return NULL;
    }
    recording->devices = ml_alloc_zeroed(1, sizeof(*recording->devices));
    recording->device_count = 1;
    recording->devices[0].events.plain = ml_alloc_zeroed(event_count, sizeof(ml_event));
    recording->devices[0].event_count = event_count;
    recording->rules.max_split_bytes = UINT64_MAX;
    recording->rules.has_segments = 1;
    return recording;
}

static ml_event
event(unsigned action, uint64_t addr, uint64_t size, uint64_t time)
{
    return (ml_event){
        .addr = addr, .size = size, .time = time, .action = (uint8_t)action};
}

/* A 2 MiB segment; 1000 bytes that go again, and 600 that stay: blocks of 1024. */
static ml_recording *
small_recording(void)
{
    ml_recording *recording = new_recording(5);
    ml_device_trace *device = &recording->devices[0];
    ml_event *events = plain_events(device);
    events[0] = event(ML_ACTION_SEGMENT_ALLOC, BASE, 2 << 20, SECOND);
    events[1] = event(ML_ACTION_ALLOC, BASE, 1000, SECOND + 5000);
    events[2] = event(ML_ACTION_ALLOC, BASE + 1024, 600, SECOND + 9999);
    events[3] = event(ML_ACTION_FREE_REQUESTED, BASE, 1000, SECOND + 20000);
    events[4] = event(ML_ACTION_FREE_COMPLETED, BASE, 1000, SECOND + 20001);
    device->segments = ml_alloc_zeroed(1, sizeof(ml_segment));
    device->segment_count = 1;
    device->segments[0] = (ml_segment){.addr = BASE,
                                       .total = 2 << 20,
                                       .allocated = 1024,
                                       .active = 1024,
                                       .requested = 600,
                                       .small = 1,
                                       .block_count = 3};
    device->blocks = ml_alloc_zeroed(3, sizeof(ml_block));
    device->block_count = 3;
    device->blocks[0] = (ml_block){.addr = BASE, .size = 1024, .requested = 1000};
    device->blocks[1] = (ml_block){.addr = BASE + 1024,
                                   .size = 1024,
                                   .requested = 600,
                                   .state = ML_BLOCK_ALLOCATED};
    device->blocks[2] = (ml_block){.addr = BASE + 2048, .size = (2 << 20) - 2048};
    return recording;
}

/* The head as a C string, to be freed; NULL on failure. */
static char *
document(const ml_recording *recording)
{
    ml_page_data data;
    char *text = NULL;
    if (ml_page_data_make(&data, recording, NULL) == 0) {
        ml_buffer_append(&data.head, "", 1);
        text = data.head.bytes;
        data.head = (ml_buffer){0};
    }
    ml_page_data_fini(&data);
    return text;
}

#define CHECK_HAS(text, part) CHECK(strstr((text), (part)) != NULL)

static void
test_head(void)
{
    ml_recording *recording = small_recording();
    CHECK_INT(ml_recording_validate(recording), 0);
    char *text = document(recording);
    CHECK(text != NULL);
    CHECK_HAS(text,
              "{\"format\":5,\"source\":\"\",\"foreign\":0,\"base_us\":\"1000000\",");
    CHECK(strstr(text, "rounded") == NULL);
    CHECK_HAS(text,
              "\"lines\":{\"file\":[0],\"function\":[0],\"line\":[0],\"until\":[0],"
              "\"no_line\":[7]}");
    CHECK_HAS(text, "\"name\":\"cuda:0\",\"events\":5,\"allocs\":2,"
                    "\"first_us\":0,\"last_us\":20,\"ooms\":[]");
    CHECK_HAS(text, "\"groups\":{\"category\":[5,10],\"module\":[0],\"line\":[0],"
                    "\"size\":[1024]}");
    CHECK_HAS(text, "\"levels\":[{\"span\":256,\"columns\":1,\"blobs\":[0]}]");
    CHECK_HAS(text, "\"bands\":[{\"span\":256,\"blobs\":[],\"first\":[],\"last\":[]}]");
    CHECK_HAS(text, "\"segments\":1,\"chunks\":{\"events\":65536,\"blobs\":[2],"
                    "\"time\":[0],\"peak\":[2048]},\"integrals\":[3]");
    CHECK_HAS(text, "\"peak\":{\"event\":2,\"allocated\":2048,\"active\":2048,"
                    "\"requested\":1600,\"reserved\":2097152,");
    CHECK_HAS(text, "\"overhead\":{\"inactive\":2095104,\"slack\":448,"
                    "\"largest_free\":2095104,\"free_blocks\":1,\"segments\":1}");
    ml_free(text);
    ml_recording_free(recording);
}

/* The chunk of the small recording, byte for byte. */
static void
test_chunk(void)
{
    static const unsigned char expected[] = {
        5,    0,    2,    0,     /* events, rows carried, new; the first of these */
        0,    0,    0,           /* totals before */
        4,    2,                 /* starts, of moments 2 and 3 */
        3,    0,    2,    0,     /* asked to go after 2 events; gone with the next */
        0x80, 8,    0x80, 8,     /* 1024 bytes each */
        0x2f, 0xcf, 6,           /* asked for: 24 and 424 less */
        0,    1,    0,    0,     /* kinds; no earlier row at their addresses */
        0x80, 0xfc, 3,    0,     /* high halves of addresses: 0x7f00 */
        0,    0x80, 8,           /* low halves */
        0,    0,                 /* the first at their addresses */
        3,    0,    0,    1,  2, /* actions */
        0,    10,   8,    22, 0, /* times, 0 5 9 20 20 us */
        0,    0,    0,    0,  0, /* stacks */
        0,    0,    0,    0,  0, /* flags */
        0,                       /* no event is of a row that it does not change */
        2,    0,                 /* reserved bytes change once, at the first event */
        0x80, 0x80, 0x80, 2,     /* by 2 MiB */
        0x80, 0xfc, 3,    0,  0x80, 0x80, 0x80, 1, 0}; /* the segment's event */
    ml_recording *recording = small_recording();
    ml_page_data data;
    CHECK_INT(ml_page_data_make(&data, recording, NULL), 0);
    CHECK_INT(data.blob_count, 4);
    CHECK_INT(data.blobs[2].length, sizeof(expected));
    for (size_t i = 0; i < sizeof(expected) && i < data.blobs[2].length; i++) {
        CHECK_INT((unsigned char)data.blobs[2].bytes[i], expected[i]);
    }
    ml_page_data_fini(&data);
    ml_recording_free(recording);
}

static uint32_t
add_string(ml_recording *recording, const char *text)
{
    uint32_t id = 0;
    return ml_recording_add_string(recording, text, strlen(text), &id) == 0 ? id : 0;
}

/* A library's frame is not the line of its stack where a caller is the user's. */
static void
test_lines(void)
{
    ml_recording *recording = small_recording();
    uint32_t frames[2] = {0};
    uint32_t outer = 0;
    uint32_t inner = 0;
    ml_frame user = {.name = add_string(recording, "step"),
                     .filename = add_string(recording, "/u/train.py"),
                     .line = 7};
    ml_frame library = {.name = add_string(recording, "forward"),
                        .filename = add_string(recording, "/x/site-packages/nn.py"),
                        .line = 9};
    CHECK_INT(ml_recording_add_frame(recording, user, &frames[0]), 0);
    CHECK_INT(ml_recording_add_frame(recording, library, &frames[1]), 0);
    CHECK_INT(ml_recording_add_stack(recording, (ml_stack){.frame = frames[0]}, &outer),
              0);
    CHECK_INT(ml_recording_add_stack(
                  recording, (ml_stack){.parent = outer, .frame = frames[1]}, &inner),
              0);
    plain_events(&recording->devices[0])[1].stack = inner;
    char *text = document(recording);
    CHECK(text != NULL);
    CHECK_HAS(text, "\"lines\":{\"file\":[2,0],\"function\":[1,0],\"line\":[7,0],");
    CHECK_HAS(text, "\"kinds\":{\"stack\":[2,0],\"line\":[0,1],");
    CHECK_HAS(text, "\"frames\":{\"name\":[0,1,3],\"file\":[0,2,4],\"line\":[0,7,9],"
                    "\"qualname\":[0,1,3],\"own\":[0,1,0]}");
    CHECK_HAS(text, "\"bytes\":[1024,1024]");
    ml_free(text);
    ml_recording_free(recording);
}

static void
test_large_integers_are_strings(void)
{
    ml_recording *recording = new_recording(2);
    ml_event *events = plain_events(&recording->devices[0]);
    recording->rules.has_segments = 0;
    events[0] = event(ML_ACTION_ALLOC, 512, UINT64_C(9007199254740992), 0);
    char *text = document(recording);
    CHECK(text != NULL);
    CHECK_HAS(text, "\"peak\":[9007199254740992]");
    CHECK(strstr(text, "\"rounded\":true") == NULL);
    ml_free(text);
    events[1] = event(ML_ACTION_ALLOC, 513, 1, 0);
    ml_recording_detach(recording);
    text = document(recording);
    CHECK(text != NULL);
    CHECK_HAS(text, "\"peak\":[\"9007199254740993\"]");
    CHECK_HAS(text, "\"rounded\":true");
    ml_free(text);
    ml_recording_free(recording);
}

static void
test_time_that_runs_backwards_stands_still(void)
{
    ml_recording *recording = new_recording(3);
    ml_event *events = plain_events(&recording->devices[0]);
    events[0] = event(ML_ACTION_SNAPSHOT, 0, 0, SECOND);
    events[1] = event(ML_ACTION_SNAPSHOT, 0, 0, SECOND + 9000);
    events[2] = event(ML_ACTION_OOM, 0, 0, SECOND - 3000);
    char *text = document(recording);
    CHECK(text != NULL);
    CHECK_HAS(text, "\"first_us\":0,\"last_us\":9,\"ooms\":[2]");
    ml_free(text);
    ml_recording_free(recording);
}

/* Strings on the left arrive in the document as on the right. */
static const struct {
    const char *bytes;
    size_t length;
    const char *written;
} strings[] = {
    {"forward", 7, "forward"},
    {"a\"b\\c", 5, "a\\u0022b\\u005cc"},
    {"</script>", 9, "\\u003c/script\\u003e"},
    {"<!--&amp;", 9, "\\u003c!--\\u0026amp;"},
    {"\0\n\x1b\x7f", 4, "\\u0000\\u000a\\u001b\\u007f"},
    {"\xc2\x85", 2, "\\u0085"},
    {"\xe2\x80\xa8\xe2\x80\xa9", 6, "\\u2028\\u2029"},
    {"\xe2\x80\xaa", 3, "\xe2\x80\xaa"},
    {"gr\xc3\xb6\xc3\x9f", 6, "gr\xc3\xb6\xc3\x9f"},
    {"\xf0\x9f\x98\x80", 4, "\xf0\x9f\x98\x80"},
    {"\xed\xa0\x80", 3, "\\ud800"},
    {"\xed\xbf\xbf!", 4, "\\udfff!"},
    {"\xff\xc0\x80x\xe2\x82", 6, "???x??"},
    {"\xf4\x90\x80\x80", 4, "????"},
    {"\xe0\x80\xbc", 3, "???"},
};

static void
test_strings(void)
{
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
        ml_recording *recording = NULL;
        uint32_t id = 0;
        char expected[128];
        CHECK_INT(ml_recording_new(&recording), 0);
        CHECK_INT(ml_recording_add_string(recording, strings[i].bytes,
                                          strings[i].length, &id),
                  0);
        char *text = document(recording);
        CHECK(text != NULL);
        snprintf(expected, sizeof(expected), "\"strings\":[\"\",\"%s\"]",
                 strings[i].written);
        CHECK_HAS(text, expected);
        ml_free(text);
        ml_recording_free(recording);
    }
}

static void
test_every_byte_stays_inside(void)
{
    ml_recording *recording = NULL;
    uint32_t id = 0;
    CHECK_INT(ml_recording_new(&recording), 0);
    for (unsigned pair = 0; pair < 0x10000; pair++) {
        char bytes[2] = {(char)(pair >> 8), (char)(pair & 0xff)};
        CHECK_INT(ml_recording_add_string(recording, bytes, 2, &id), 0);
    }
    char *text = document(recording);
    CHECK(text != NULL);
    CHECK(strpbrk(text, "<>&") == NULL);
    for (const char *at = text; *at != '\0'; at++) {
        CHECK((unsigned char)*at >= 0x20 && *at != 0x7f);
    }
    ml_free(text);
    ml_recording_free(recording);
}

static void
test_empty(void)
{
    ml_recording *recording = NULL;
    CHECK_INT(ml_recording_new(&recording), 0);
    char *text = document(recording);
    CHECK(text != NULL);
    CHECK_HAS(text, "\"devices\":[]}");
    ml_free(text);
    ml_recording_free(recording);
}

static void
test_memory_failures(void)
{
    ml_recording *recording = small_recording();
    int code = ML_ENOMEM;
    long tries = 0;
    for (; code == ML_ENOMEM && tries < 1000; tries++) {
        ml_page_data data;
        budget_begin(tries);
        code = ml_page_data_make(&data, recording, NULL);
        ml_page_data_fini(&data);
        ml_recording_detach(recording);
        budget_end();
        if (budget_alive != 0) {
            break;
        }
    }
    ml_recording_free(recording);
    CHECK_INT(budget_alive, 0);
    CHECK_INT(code, 0);
    CHECK(tries > 30);
}

int
main(void)
{
    RUN(test_head);
    RUN(test_chunk);
    RUN(test_lines);
    RUN(test_large_integers_are_strings);
    RUN(test_time_that_runs_backwards_stands_still);
    RUN(test_strings);
    RUN(test_every_byte_stays_inside);
    RUN(test_empty);
    RUN(test_memory_failures);
    return TEST_RESULT();
}
