/* Recordings to files: what a process writes is what is read back, whatever becomes of
 * the process, the disk or the file. */
#define _GNU_SOURCE

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "journal_samples.h"
#include "test.h"

static ml_mlab_info info;

static const char *
frame_name(const ml_recording *recording, uint32_t stack, char *out, size_t bytes)
{
    const ml_frame *frame = &recording->frames[recording->stacks[stack].frame];
    const ml_string *name = &recording->strings[frame->name];
    snprintf(out, bytes, "%.*s:%lld", (int)name->length, name->bytes,
             (long long)frame->line);
    return out;
}

static void
test_what_was_recorded_is_read_back(void)
{
    const char *path = sample_path("a.mlab");
    ml_script_reset(NULL);
    /* There before the recording: 1 MiB in a segment of 20 MiB. */
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 0);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT, 2 * MIB, 0);
    ml_window *window = sample_start(path);
    CHECK(window != NULL);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT + 2 * MIB, 3 * MIB - 100, 12);
    sample_free(0, SEGMENT, 2 * MIB, 13);
    ml_window_tag(window, 0, SEGMENT + 2 * MIB, ML_CATEGORY_PARAMETER, "weight", 6);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT, 600, 12);
    ml_note mark = {.kind = ML_NOTE_MARK, .device = -1};
    ml_recorder_note(ml_recorder_source("script"), &mark, "halfway", 7);
    ml_window_stop(window);
    ml_recording *recording = sample_read(path, &info);
    CHECK(recording != NULL);
    CHECK(info.ended);
    CHECK_UINT(info.gap_count, 0);
    CHECK_UINT(info.damaged_chunks, 0);
    CHECK_UINT(info.unknown_starts, 0);
    CHECK_UINT(recording->device_count, ML_SCRIPT_DEVICES);
    CHECK_STR(recording->source, "script");
    const ml_device_trace *trace = &recording->devices[0];
    CHECK_UINT(trace->event_count, 4);
    const ml_event *event = &trace->events[0];
    CHECK_UINT(event->action, ML_ACTION_ALLOC);
    CHECK_UINT(event->addr, SEGMENT + 2 * MIB);
    CHECK_UINT(event->size, 3 * MIB - 100);
    CHECK_UINT(event->block_bytes, 3 * MIB);
    char name[64];
    CHECK_STR(frame_name(recording, event->stack, name, sizeof(name)), "step:12");
    uint32_t caller = recording->stacks[event->stack].parent;
    CHECK_STR(frame_name(recording, caller, name, sizeof(name)), "main:7");
    CHECK_UINT(trace->events[1].action, ML_ACTION_FREE_REQUESTED);
    CHECK_UINT(trace->events[3].stack, event->stack);
    CHECK_UINT(trace->tag_count, 1);
    CHECK_UINT(trace->tags[0].position, 3);
    CHECK_UINT(trace->tags[0].category, ML_CATEGORY_PARAMETER);
    CHECK_TEXT(recording->strings[trace->tags[0].name].bytes,
               recording->strings[trace->tags[0].name].length, "weight");
    CHECK_UINT(recording->note_count, 1);
    CHECK_UINT(recording->notes[0].kind, ML_NOTE_MARK);
    CHECK_UINT(recording->notes[0].time, trace->events[3].time);
    CHECK_TEXT(recording->strings[recording->notes[0].name].bytes,
               recording->strings[recording->notes[0].name].length, "halfway");
    /* 600 bytes take 1024, the parameter 3 MiB; the peak was before the free. */
    CHECK_UINT(trace->peak.allocated, 5 * MIB);
    CHECK_UINT(trace->segment_count, 1);
    CHECK_UINT(trace->segments[0].total, 20 * MIB);
    CHECK_UINT(trace->segments[0].allocated, 3 * MIB + 1024);
    CHECK_UINT(trace->block_count, 4);
    ml_recording_free(recording);
    ml_mlab_info_fini(&info);
    struct stat status;
    CHECK(stat(path, &status) == 0);
    CHECK_UINT(status.st_mode & 0777, 0600);
    unlink(path);
}

int
main(void)
{
    if (ml_recorder_init(sample_walk) < 0 ||
        ml_script_register(ml_recorder_add_source, ml_recorder_record) < 0) {
        return 1;
    }
    RUN(test_what_was_recorded_is_read_back);
    sample_remove_folder();
    return TEST_RESULT();
}
