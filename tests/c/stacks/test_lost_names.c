/* Names that find no room in the tables: said in their place, and counted, in a recording
 * in memory and in a file.  The table of the process stays full: nothing else is here. */
#define _GNU_SOURCE

#include "journal_samples.h"
#include "record/window.h"
#include "test.h"
#include "plain_events.h"

static ml_mlab_info info;

static uint32_t
string(const char *text)
{
    return ml_stacks_string(ml_recorder_stacks(), text, strlen(text));
}

static void
fill_table(void)
{
    char text[32];
    for (unsigned i = 0;; i++) {
        snprintf(text, sizeof(text), "filler %u", i);
        if (string(text) == ML_STACK_LOST) {
            break;
        }
    }
}

static uint64_t
lost_so_far(void)
{
    ml_recorder_stats stats = {0};
    return ml_recorder_stats_of(ml_recorder_source("script"), 0, &stats) == 0
               ? stats.lost_names
               : UINT64_MAX;
}

/* An allocation of block NUMBER. */
static void
emit(uint64_t number, const char *metadata, const char *node)
{
    ml_event event = {.action = ML_ACTION_ALLOC,
                      .addr = SEGMENT + number * MIB,
                      .size = MIB,
                      .time = 1000 + number,
                      .flags = node != NULL ? ML_EVENT_BACKWARD : 0};
    ml_event_text text = {
        .metadata = metadata, .metadata_bytes = strlen(metadata), .node = node};
    ml_script_emit(0, &event, &text);
}

static const char *
text_of(const ml_recording *recording, uint32_t id)
{
    static char text[64];
    const ml_string *string_ = &recording->strings[id];
    snprintf(text, sizeof(text), "%.*s", (int)string_->length, string_->bytes);
    return text;
}

static void
check(const ml_recording *recording)
{
    const ml_device_trace *trace = &recording->devices[0];
    CHECK(trace->event_count >= 4);
    CHECK_STR(text_of(recording, plain_events(trace)[0].metadata), "known");
    CHECK_STR(text_of(recording, plain_events(trace)[0].node), "KnownBackward");
    CHECK_STR(text_of(recording, plain_events(trace)[1].metadata), "<lost>");
    CHECK_STR(text_of(recording, plain_events(trace)[1].node), "<lost>");
    CHECK_STR(text_of(recording, plain_events(trace)[2].metadata), "");
    CHECK_STR(text_of(recording, plain_events(trace)[2].node), "<lost>");
    CHECK_STR(text_of(recording, plain_events(trace)[3].metadata), "known");
    CHECK_STR(text_of(recording, plain_events(trace)[3].node), "");
    CHECK_UINT(trace->tag_count, 3);
    CHECK_STR(text_of(recording, trace->tags[0].name), "<lost>");
    CHECK_STR(text_of(recording, trace->tags[0].module), "<lost>");
    CHECK_STR(text_of(recording, trace->tags[1].name), "known");
    CHECK_STR(text_of(recording, trace->tags[1].module), "<lost>");
    CHECK_STR(text_of(recording, trace->tags[2].name), "");
    CHECK_STR(text_of(recording, trace->tags[2].module), "known");
    CHECK_UINT(trace->tags[0].category, ML_CATEGORY_PARAMETER);
    CHECK_UINT(trace->tags[2].category, ML_CATEGORY_BUFFER);
    /* Three of events, three of owners. */
    CHECK_UINT(trace->lost_names, 6);
    CHECK_UINT(trace->lost_stacks, 0);
}

static void
test_they_are_said_and_counted(void)
{
    const char *path = sample_path("a.mlab");
    uint32_t known = string("known");
    string("KnownBackward");
    CHECK_UINT(string("<"), known + 2);
    ml_script_reset(NULL);
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 0);
    ml_window *window = sample_start(path);
    CHECK(window != NULL);
    fill_table();
    uint64_t before = lost_so_far();
    emit(0, "known", "KnownBackward");
    emit(1, "new", "NewBackward");
    emit(2, "", "NewBackward");
    emit(3, "known", NULL);
    CHECK_UINT(lost_so_far() - before, 3);
    ml_owner owners[] = {{ML_CATEGORY_PARAMETER, string("h.0"), string("weight")},
                         {ML_CATEGORY_PARAMETER, string("h.1"), known},
                         {ML_CATEGORY_BUFFER, known, 0}};
    CHECK_UINT(lost_so_far() - before, 6);
    for (unsigned i = 0; i < 3; i++) {
        CHECK_INT(ml_window_tag(window, 0, SEGMENT + i * MIB, &owners[i]), 0);
    }
    ml_recording *recording = NULL;
    CHECK_INT(ml_window_freeze(window, 0, &recording), 0);
    ml_window_stop(window);
    check(recording);
    ml_recording_free(recording);
    recording = sample_read(path, &info);
    CHECK(recording != NULL);
    check(recording);
    CHECK_UINT(info.unread_records, 0);
    CHECK_UINT(info.lost_records, 0);
    ml_recording_free(recording);
    ml_mlab_info_fini(&info);
    unlink(path);
}

int
main(void)
{
    if (ml_recorder_init(sample_walk) < 0 || ml_script_register() < 0) {
        return 1;
    }
    RUN(test_they_are_said_and_counted);
    sample_remove_folder();
    return TEST_RESULT();
}
