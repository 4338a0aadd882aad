/* Settings, notes, owners, uses: a recording takes them in their order, and nothing else. */
#include "budget.h"
#include "recording/side_data.h"
#include "test.h"

static void
test_settings_by_key(void)
{
    ml_recording *recording;
    size_t capacity = 0;
    CHECK_INT(ml_recording_new(&recording), 0);
    for (uint32_t key = 1; key <= 1001; key++) {
        ml_setting setting = {.key = key, .kind = 'i', .integer = key};
        CHECK_INT(ml_recording_add_setting(recording, &capacity, &setting),
                  key <= 1000 ? 0 : ML_EFORMAT);
    }
    ml_setting again = {.key = 7, .kind = 'b', .integer = 1};
    CHECK_INT(ml_recording_add_setting(recording, &capacity, &again), 0);
    CHECK_UINT(recording->setting_count, 1000);
    CHECK_INT(recording->settings[6].kind, 'b');
    CHECK_INT(recording->settings[7].integer, 8);
    ml_setting unknown = {.key = 7, .kind = 'x'};
    CHECK_INT(ml_recording_add_setting(recording, &capacity, &unknown), ML_EFORMAT);
    unknown.kind = '\0';
    CHECK_INT(ml_recording_add_setting(recording, &capacity, &unknown), ML_EFORMAT);
    CHECK_INT(recording->settings[6].kind, 'b');
    ml_recording_free(recording);
}

static void
test_notes_by_time(void)
{
    static const uint64_t times[] = {5, 7, 6, 7, 0, 8};
    ml_recording *recording;
    size_t capacity = 0;
    CHECK_INT(ml_recording_new(&recording), 0);
    for (size_t i = 0; i < 6; i++) {
        ml_note note = {.time = times[i], .kind = ML_NOTE_MARK};
        CHECK_INT(ml_recording_add_note(recording, &capacity, &note),
                  i == 2 || i == 4 ? ML_EFORMAT : 0);
    }
    CHECK_UINT(recording->note_count, 4);
    CHECK_UINT(recording->notes[2].time, 7);
    CHECK_UINT(recording->notes[3].time, 8);
    ml_recording_free(recording);
}

static void
test_tags_and_uses(void)
{
    ml_recording *recording;
    size_t tags = 0, uses = 0;
    CHECK_INT(ml_recording_new(&recording), 0);
    ml_device_trace *trace = ml_recording_add_device(recording, 0);
    CHECK_INT(ml_device_trace_add_tag(trace, &tags, &(ml_tag){.position = 1}),
              ML_EFORMAT);
    CHECK_INT(ml_device_trace_add_tag(trace, &tags, &(ml_tag){.position = 0}), 0);
    trace->events.plain = ml_alloc_zeroed(2, sizeof(ml_event));
    trace->event_count = 2;
    CHECK_INT(ml_device_trace_add_tag(trace, &tags, &(ml_tag){.position = 2}), 0);
    CHECK_INT(ml_device_trace_add_tag(trace, &tags, &(ml_tag){.position = 2}), 0);
    CHECK_INT(ml_device_trace_add_tag(trace, &tags, &(ml_tag){.position = 1}),
              ML_EFORMAT);
    CHECK_UINT(trace->tag_count, 3);
    CHECK_INT(ml_device_trace_add_use(trace, &uses, &(ml_use){512, 3}), ML_EFORMAT);
    CHECK_INT(ml_device_trace_add_use(trace, &uses, &(ml_use){512, 2}), 0);
    CHECK_INT(ml_device_trace_add_use(trace, &uses, &(ml_use){512, 1}), ML_EFORMAT);
    CHECK_INT(ml_device_trace_add_use(trace, &uses, &(ml_use){1024, 0}), 0);
    CHECK_UINT(trace->use_count, 2);
    CHECK_INT(ml_recording_validate(recording), 0);
    ml_recording_free(recording);
}

static void
test_no_memory(void)
{
    ml_recording *recording;
    CHECK_INT(ml_recording_new(&recording), 0);
    ml_device_trace *trace = ml_recording_add_device(recording, 0);
    size_t capacity[4] = {0};
    budget_begin(0);
    CHECK_INT(ml_recording_add_setting(recording, &capacity[0],
                                       &(ml_setting){.key = 1, .kind = 'i'}),
              ML_ENOMEM);
    CHECK_INT(ml_recording_add_note(recording, &capacity[1], &(ml_note){0}), ML_ENOMEM);
    CHECK_INT(ml_device_trace_add_tag(trace, &capacity[2], &(ml_tag){0}), ML_ENOMEM);
    CHECK_INT(ml_device_trace_add_use(trace, &capacity[3], &(ml_use){0}), ML_ENOMEM);
    budget_end();
    CHECK_UINT(recording->setting_count + recording->note_count + trace->tag_count +
                   trace->use_count,
               0);
    ml_recording_free(recording);
}

int
main(void)
{
    RUN(test_settings_by_key);
    RUN(test_notes_by_time);
    RUN(test_tags_and_uses);
    RUN(test_no_memory);
    return TEST_RESULT();
}
