#include "recording/recording.h"

#include "budget.h"
#include "test.h"
#include "plain_events.h"

/* One device, one segment of two blocks, two events, one tag, one stack of two frames:
 * correct in every field that ml_recording_validate looks at. */
static ml_recording *
small_recording(void)
{
    ml_recording *recording = NULL;
    uint32_t name, file, frame, outer, inner;
    if (ml_recording_new(&recording) != 0) {
        return NULL;
    }
    bool built =
        ml_recording_add_string(recording, "forward", 7, &name) == 0 &&
        ml_recording_add_string(recording, "net.py", 6, &file) == 0 &&
        ml_recording_add_frame(recording, (ml_frame){name, file, 12}, &frame) == 0 &&
        ml_recording_add_stack(recording, (ml_stack){.frame = frame}, &outer) == 0 &&
        ml_recording_add_stack(recording, (ml_stack){.parent = outer, .frame = frame},
                               &inner) == 0;
    recording->devices = ml_alloc_zeroed(1, sizeof(ml_device_trace));
    recording->settings = ml_alloc_zeroed(1, sizeof(ml_setting));
    recording->annotations = ml_alloc_zeroed(1, sizeof(ml_annotation));
    if (!built || recording->devices == NULL || recording->settings == NULL ||
        recording->annotations == NULL) {
        ml_recording_free(recording);
        return NULL;
    }
    recording->device_count = 1;
    recording->setting_count = 1;
    recording->settings[0].kind = 'b';
    recording->annotation_count = 1;
    ml_device_trace *device = &recording->devices[0];
    device->events.plain = ml_alloc_zeroed(2, sizeof(ml_event));
    device->segments = ml_alloc_zeroed(2, sizeof(ml_segment));
    device->blocks = ml_alloc_zeroed(2, sizeof(ml_block));
    device->tags = ml_alloc_zeroed(2, sizeof(ml_tag));
    if (device->events.plain == NULL || device->segments == NULL ||
        device->blocks == NULL || device->tags == NULL) {
        ml_recording_free(recording);
        return NULL;
    }
    device->event_count = 2;
    plain_events(device)[0] = (ml_event){.addr = 4096, .size = 500, .stack = inner};
    device->segment_count = 2;
    device->segments[0] = (ml_segment){.addr = 4096, .total = 2048, .block_count = 2};
    device->segments[1] = (ml_segment){.addr = 8192, .total = 512, .first_block = 2};
    device->block_count = 2;
    device->blocks[0] = (ml_block){.addr = 4096, .size = 512, .stack = inner};
    device->blocks[1] = (ml_block){.addr = 4608, .size = 1536};
    device->tag_count = 2;
    device->tags[0] = (ml_tag){.position = 1, .category = ML_CATEGORY_GRADIENT};
    device->tags[1] = (ml_tag){.position = 2, .name = name};
    ml_code_line line = {.filename = file, .name = name, .line = 12};
    if (ml_recording_add_code_line(recording, line) != 0) {
        ml_recording_free(recording);
        return NULL;
    }
    return recording;
}

static void
test_new_has_the_first_entries(void)
{
    ml_recording *recording = NULL;
    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_UINT(recording->string_count, 1);
    CHECK_UINT(recording->strings[0].length, 0);
    CHECK_UINT(recording->frame_count, 1);
    CHECK_UINT(recording->stack_count, 1);
    CHECK_INT(ml_recording_validate(recording), 0);
    ml_recording_free(recording);
}

static void
test_strings_are_copied(void)
{
    ml_recording *recording = NULL;
    CHECK_INT(ml_recording_new(&recording), 0);
    char text[] = "a name";
    uint32_t id = 0, big_id = 0, last = 0;
    CHECK_INT(ml_recording_add_string(recording, text, 6, &id), 0);
    text[0] = 'X';
    static char big[200000];
    memset(big, 'b', sizeof(big));
    CHECK_INT(ml_recording_add_string(recording, big, sizeof(big), &big_id), 0);
    for (int i = 0; i < 20000; i++) {
        CHECK_INT(ml_recording_add_string(recording, "12345678", 8, &last), 0);
    }
    CHECK_UINT(id, 1);
    CHECK_UINT(big_id, 2);
    CHECK_UINT(last, 20002);
    CHECK_TEXT(recording->strings[1].bytes, recording->strings[1].length, "a name");
    CHECK_UINT(recording->strings[2].length, 200000);
    CHECK_INT(recording->strings[2].bytes[199999], 'b');
    CHECK_TEXT(recording->strings[last].bytes, 8, "12345678");
    ml_recording_free(recording);
}

static void
test_free_takes_nothing(void)
{
    ml_recording_free(NULL);
}

#define CHECK_BREAKS(change) \
    do { \
        ml_recording *r = small_recording(); \
        CHECK(r != NULL); \
        ml_device_trace *d = &r->devices[0]; \
        (void)d; \
        change; \
        int result = ml_recording_validate(r); \
        ml_recording_free(r); \
        if (result != ML_EFORMAT) { \
            CHECK_FAIL("%s was not noticed", #change); \
        } \
    } while (0)

static void
test_validate_accepts(void)
{
    ml_recording *recording = small_recording();
    CHECK(recording != NULL);
    CHECK_INT(ml_recording_validate(recording), 0);
    ml_recording_free(recording);
}

static void
test_validate_checks_indexes(void)
{
    CHECK_BREAKS(r->frames[1].name = 99);
    CHECK_BREAKS(r->frames[1].filename = 3);
    CHECK_BREAKS(r->stacks[0].frame = 1);
    CHECK_BREAKS(r->stacks[1].frame = 2);
    CHECK_BREAKS(r->stacks[1].parent = 1);
    CHECK_BREAKS(r->stacks[1].parent = 2);
    CHECK_BREAKS(plain_events(d)[0].stack = 3);
    CHECK_BREAKS(plain_events(d)[1].origin_stack = 3);
    CHECK_BREAKS(plain_events(d)[1].metadata = 3);
    CHECK_BREAKS(plain_events(d)[1].action = ML_ACTION_COUNT);
    CHECK_BREAKS(d->blocks[1].stack = 3);
    CHECK_BREAKS(d->blocks[1].state = 3);
    CHECK_BREAKS(d->segments[1].stack = 3);
    CHECK_BREAKS(d->tags[0].name = 3);
    CHECK_BREAKS(d->tags[0].category = ML_CATEGORY_TAG_LAST + 1);
    CHECK_BREAKS(r->settings[0].kind = 'x');
    CHECK_BREAKS(r->settings[0].kind = 0);
    CHECK_BREAKS(r->settings[0].key = 3);
    CHECK_BREAKS(r->settings[0].text = 3);
    CHECK_BREAKS(r->annotations[0].name = 3);
    CHECK_BREAKS(r->annotations[0].end = 2);
    CHECK_BREAKS(r->code_lines[0].filename = 3);
    CHECK_BREAKS(r->code_lines[0].name = 3);
    CHECK_BREAKS(r->code_lines[0].text = 3);
    CHECK_BREAKS(r->code_lines[0].qualname = 3);
    CHECK_BREAKS(r->code_lines[0].line = 0);
    CHECK_BREAKS(memset(r->source, 'x', sizeof(r->source)));
}

static void
test_validate_checks_orders(void)
{
    CHECK_BREAKS(d->tags[0].position = 3);
    CHECK_BREAKS(d->tags[1].position = 0);
    CHECK_BREAKS(d->segments[1].addr = 4096);
    CHECK_BREAKS(d->segments[1].addr = UINT64_MAX);
    CHECK_BREAKS(d->segments[1].first_block = 1);
    CHECK_BREAKS(d->segments[0].block_count = 3);
    CHECK_BREAKS(d->segments[0].block_count = 1);
    CHECK_BREAKS(d->blocks[0].addr = 4095);
    CHECK_BREAKS(d->blocks[0].size = 513);
    CHECK_BREAKS(d->blocks[1].size = 1537);
    CHECK_BREAKS(d->blocks[1].size = UINT64_MAX);
}

static void
test_without_memory(void)
{
    for (long budget = 0;; budget++) {
        budget_begin(budget);
        ml_recording *recording = small_recording();
        bool built = recording != NULL;
        bool valid = !built || ml_recording_validate(recording) == 0;
        ml_recording_free(recording);
        budget_end();
        CHECK_INT(budget_alive, 0);
        CHECK(valid);
        if (built) {
            CHECK(budget > 8);
            break;
        }
    }
}

static void
test_texts(void)
{
    CHECK_STR(ml_action_text(ML_ACTION_FREE_COMPLETED), "free_completed");
    CHECK_STR(ml_action_text(ML_ACTION_OOM), "oom");
    CHECK_STR(ml_action_text(200), "other");
    CHECK_STR(ml_category_text(ML_CATEGORY_OPTIMIZER_STATE), "optimizer_state");
    CHECK_STR(ml_category_text(200), "unknown");
}

static void
test_strings_are_utf8(void)
{
    static const struct {
        const char *bytes, *kept;
    } cases[] = {
        {"plain", "plain"},
        {"\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9"},
        {"cut \xe2\x82", "cut ??"},
        {"latin \xe9.", "latin ?."},
        {"\xff\xc0\xaf", "???"},
        {"\xed\xa0\x80", "\xed\xa0\x80"}, /* a lone surrogate passes */
        {"\xf4\x90\x80\x80", "????"},     /* past the last character */
    };
    ml_recording *recording;
    CHECK_INT(ml_recording_new(&recording), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t id;
        CHECK_INT(ml_recording_add_string(recording, cases[i].bytes,
                                          strlen(cases[i].bytes), &id),
                  0);
        CHECK_TEXT(recording->strings[id].bytes, recording->strings[id].length,
                   cases[i].kept);
    }
    ml_recording_free(recording);
}

int
main(void)
{
    RUN(test_strings_are_utf8);
    RUN(test_new_has_the_first_entries);
    RUN(test_strings_are_copied);
    RUN(test_free_takes_nothing);
    RUN(test_validate_accepts);
    RUN(test_validate_checks_indexes);
    RUN(test_validate_checks_orders);
    RUN(test_without_memory);
    RUN(test_texts);
    return TEST_RESULT();
}
