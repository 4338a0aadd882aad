/* Recordings to files: what a process writes is what is read back, whatever becomes of
 * the process, the disk or the file. */
#define _GNU_SOURCE

#include <pthread.h>
#include <sys/stat.h>

#include "budget.h"
#include "journal_samples.h"
#include "record/window.h"
#include "test.h"
#include "plain_events.h"

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
    ml_window_tag(window, 0, SEGMENT + 2 * MIB,
                  &(ml_owner){ML_CATEGORY_PARAMETER,
                              ml_stacks_string(ml_recorder_stacks(), "h.0", 3),
                              ml_stacks_string(ml_recorder_stacks(), "weight",
                                               sizeof("weight") - 1)});
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
    const ml_event *event = &plain_events(trace)[0];
    CHECK_UINT(event->action, ML_ACTION_ALLOC);
    CHECK_UINT(event->addr, SEGMENT + 2 * MIB);
    CHECK_UINT(event->size, 3 * MIB - 100);
    CHECK_UINT(event->block_bytes, 3 * MIB);
    char name[64];
    CHECK_STR(frame_name(recording, event->stack, name, sizeof(name)), "step:12");
    uint32_t caller = recording->stacks[event->stack].parent;
    CHECK_STR(frame_name(recording, caller, name, sizeof(name)), "main:7");
    CHECK_UINT(plain_events(trace)[1].action, ML_ACTION_FREE_REQUESTED);
    CHECK_UINT(plain_events(trace)[3].stack, event->stack);
    CHECK_UINT(trace->tag_count, 1);
    CHECK_UINT(trace->tags[0].position, 3);
    CHECK_UINT(trace->tags[0].category, ML_CATEGORY_PARAMETER);
    CHECK_TEXT(recording->strings[trace->tags[0].name].bytes,
               recording->strings[trace->tags[0].name].length, "weight");
    CHECK_TEXT(recording->strings[trace->tags[0].module].bytes,
               recording->strings[trace->tags[0].module].length, "h.0");
    CHECK_UINT(recording->note_count, 1);
    CHECK_UINT(recording->notes[0].kind, ML_NOTE_MARK);
    CHECK_UINT(recording->notes[0].time, plain_events(trace)[3].time);
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
    unlink(path);
}

static unsigned
mode_of(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? (unsigned)(status.st_mode & 07777) : 0;
}

static void
record_nothing(const char *path)
{
    ml_window *window = sample_start(path);
    CHECK(window != NULL);
    if (window != NULL) {
        ml_window_stop(window);
    }
}

static void
test_a_file_follows_the_umask_and_keeps_its_mode(void)
{
    static const mode_t masks[] = {0, 022, 077};
    static const mode_t kept[] = {0600, 0640, 0664};
    const char *path = sample_path("modes.mlab");
    mode_t before = umask(0);
    for (unsigned i = 0; i < 3; i++) {
        umask(masks[i]);
        unlink(path);
        record_nothing(path);
        CHECK_UINT(mode_of(path), 0666 & ~masks[i]);
        CHECK(chmod(path, kept[i]) == 0);
        record_nothing(path);
        CHECK_UINT(mode_of(path), kept[i]);
    }
    umask(before);
    unlink(path);
}

/* Whichever of them have some. */
static void
test_the_memory_at_the_start_of_every_device(void)
{
    const char *path = sample_path("starts.mlab");
    for (unsigned holding = 0; holding < 1u << ML_SCRIPT_DEVICES; holding++) {
        ml_script_reset(NULL);
        for (int device = 0; device < ML_SCRIPT_DEVICES; device++) {
            uint64_t bytes = (uint64_t)(device + 1) * MIB;
            if ((holding >> device & 1) != 0) {
                sample_emit(device, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 0);
                sample_emit(device, ML_ACTION_ALLOC, SEGMENT, bytes, 0);
                sample_emit(device, ML_ACTION_ALLOC, SEGMENT + 8 * MIB, bytes, 0);
            }
        }
        ml_window *window = sample_start(path);
        CHECK(window != NULL);
        ml_window_stop(window);
        ml_recording *recording = sample_read(path, &info);
        CHECK(recording != NULL);
        CHECK_UINT(info.unknown_starts, 0);
        CHECK_UINT(info.repeated_starts, 0);
        CHECK_UINT(recording->device_count, ML_SCRIPT_DEVICES);
        for (size_t d = 0; d < recording->device_count; d++) {
            const ml_device_trace *trace = &recording->devices[d];
            bool held = (holding >> d & 1) != 0;
            CHECK_UINT(trace->segment_count, held);
            CHECK_UINT(trace->peak.allocated, held ? 2 * (d + 1) * MIB : 0);
            CHECK_UINT(trace->peak.reserved, held ? 20 * MIB : 0);
        }
        ml_recording_free(recording);
        ml_mlab_info_fini(&info);
        unlink(path);
    }
}

/* ---- Threads ---- */

static void *
number_thread(void *context)
{
    uint32_t number = ml_feed_thread_number();
    *(uint32_t *)context = number;
    return NULL;
}

static void *
emit_and_note(void *context)
{
    ml_note mark = {.kind = ML_NOTE_MARK, .device = -1};
    *(uint32_t *)context = ml_feed_thread_number();
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT + MIB, MIB, 0);
    ml_recorder_note(ml_recorder_source("script"), &mark, "theirs", 6);
    return NULL;
}

/* After 65,536 threads more the low half of the number is the first one's again. */
static void
test_threads_without_end_are_told_apart(void)
{
    const char *path = sample_path("threads.mlab");
    uint32_t mine = ml_feed_thread_number(), theirs = 0;
    pthread_t thread;
    ml_script_reset(NULL);
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 0);
    while (theirs < mine + 65535) {
        CHECK_INT(pthread_create(&thread, NULL, number_thread, &theirs), 0);
        CHECK_INT(pthread_join(thread, NULL), 0);
    }
    ml_window *window = sample_start(path);
    CHECK(window != NULL);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT, MIB, 0);
    CHECK_INT(pthread_create(&thread, NULL, emit_and_note, &theirs), 0);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_UINT(theirs, mine + 65536);
    ml_recording *recording = NULL;
    CHECK_INT(ml_window_freeze(window, 0, &recording), 0);
    ml_window_stop(window);
    for (int turn = 0; turn < 2; turn++) {
        CHECK(recording != NULL);
        CHECK_UINT(plain_events(&recording->devices[0])[0].thread, mine);
        CHECK_UINT(plain_events(&recording->devices[0])[1].thread, theirs);
        CHECK_UINT(recording->note_count, 1);
        CHECK_UINT(recording->notes[0].thread, theirs);
        ml_recording_free(recording);
        recording = turn == 0 ? sample_read(path, &info) : NULL;
    }
    ml_mlab_info_fini(&info);
    unlink(path);
}

/* Only one device is recorded: of the others nothing is missing, and its rules hold. */
static void
test_a_file_of_one_device(void)
{
    const char *path = sample_path("one.mlab");
    ml_allocator_rules rules = {
        .max_split_bytes = 64 * MIB, .expandable_segments = 1, .has_segments = 1};
    ml_script_reset(&rules);
    sample_emit(1, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 0);
    ml_window *window = NULL;
    ml_window_options options = {.max_entries = 1000,
                                 .keep_events = true,
                                 .device = 1,
                                 .file = path,
                                 .file_bytes = UINT64_MAX};
    CHECK_INT(ml_window_start(ml_recorder_source("script"), &options, &window), 0);
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 0);
    sample_emit(1, ML_ACTION_ALLOC, SEGMENT, MIB, 0);
    ml_window_stop(window);
    ml_recording *recording = sample_read(path, &info);
    CHECK(recording != NULL);
    CHECK_UINT(recording->devices[0].event_count, 0);
    CHECK_UINT(recording->devices[1].event_count, 1);
    CHECK_UINT(info.unknown_starts, 0);
    CHECK_UINT(recording->rules.max_split_bytes, 64 * MIB);
    CHECK_UINT(recording->rules.expandable_segments, 1);
    ml_recording_free(recording);
    ml_mlab_info_fini(&info);
    unlink(path);
}

/* What is too long for a record is not stored in part: it counts as lost. */
static void
test_names_too_long_for_a_record(void)
{
    const char *path = sample_path("long.mlab");
    static char text[5000];
    memset(text, 'x', sizeof(text));
    ml_script_reset(NULL);
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 0);
    ml_window *window = sample_start(path);
    CHECK(window != NULL);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT, MIB, 0);
    ml_owner owner = {ML_CATEGORY_PARAMETER, 0,
                      ml_stacks_string(ml_recorder_stacks(), text, sizeof(text))};
    CHECK_INT(ml_window_tag(window, 0, SEGMENT, &owner), 0);
    owner.name = ml_stacks_string(ml_recorder_stacks(), text, 2000);
    CHECK_INT(ml_window_tag(window, 0, SEGMENT, &owner), 0);
    ml_window_stop(window);
    ml_recording *recording = sample_read(path, &info);
    CHECK(recording != NULL);
    CHECK_UINT(info.lost_records, 1);
    CHECK_UINT(info.unread_records, 0);
    CHECK_UINT(recording->devices[0].tag_count, 1);
    CHECK_UINT(recording->strings[recording->devices[0].tags[0].name].length, 2000);
    ml_recording_free(recording);
    ml_mlab_info_fini(&info);
    unlink(path);
}

/* The frame that called the event's: its function's name and line. */
static void
check_caller(const ml_recording *recording, size_t event, const char *name,
             int64_t line)
{
    uint32_t stack = plain_events(&recording->devices[0])[event].stack;
    uint32_t caller = recording->stacks[stack].parent;
    ml_frame frame = recording->frames[recording->stacks[caller].frame];
    CHECK_TEXT(recording->strings[frame.name].bytes,
               recording->strings[frame.name].length, name);
    CHECK_INT(frame.line, line);
}

/* What is known when the file begins, and what comes later, each file once. */
static void
test_what_made_compiled_code_is_read_back(void)
{
    static const char trace[] = "  File \"net.py\", line 3, in forward\n    return y\n";
    static const char longer[] = "  File \"net.py\", line 4, in backward\n";
    static char name[3000];
    static char longest[sizeof(name) + 64];
    memset(name, 'x', sizeof(name) - 1);
    int length =
        snprintf(longest, sizeof(longest), "  File \"a.py\", line 1, in %s\n", name);
    const ml_slice first = {"first.py", 8};
    ml_made_line wide[1] = {{1, {longest, (size_t)length}}};
    const ml_slice made = {"model.py", 8};
    const ml_slice other = {"train.py", 8};
    ml_made_line lines[2] = {{10, {trace, sizeof(trace) - 1}}, {20, {"", 0}}};
    ml_made_line more[1] = {{0, {longer, sizeof(longer) - 1}}};
    const char *path = sample_path("made.mlab");
    ml_script_reset(NULL);
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 0);
    /* Cut to what a record takes, it keeps no other from being read. */
    CHECK_INT(ml_recorder_add_origins(first, wide, 1), 0);
    CHECK_INT(ml_recorder_add_origins(made, lines, 2), 0);
    ml_window *window = sample_start(path);
    CHECK(window != NULL);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT, MIB, 9);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT + MIB, MIB, 19);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT + 2 * MIB, MIB, 20);
    CHECK_INT(ml_recorder_add_origins(other, more, 1), 0);
    /* Said again, it stays. */
    CHECK_INT(ml_recorder_add_origins(made, more, 1), 0);
    ml_recording *memory = NULL;
    CHECK_INT(ml_window_freeze(window, 0, &memory), 0);
    ml_window_stop(window);
    ml_recording *recording = sample_read(path, &info);
    CHECK(recording != NULL);
    CHECK_UINT(info.unread_records, 0);
    CHECK_UINT(info.lost_records, 0);
    const ml_recording *both[] = {memory, recording};
    for (size_t i = 0; i < 2; i++) {
        check_caller(both[i], 0, "main", 7);
        check_caller(both[i], 1, "forward", 3);
        check_caller(both[i], 2, "main", 7);
        /* And main's own line was made, too. */
        uint32_t stack = plain_events(&both[i]->devices[0])[0].stack;
        uint32_t outer = both[i]->stacks[both[i]->stacks[stack].parent].parent;
        CHECK_INT(both[i]->frames[both[i]->stacks[outer].frame].line, 4);
    }
    ml_recording_free(memory);
    ml_recording_free(recording);
    ml_mlab_info_fini(&info);
    unlink(path);
}

/* ---- Lines of code ---- */

static bool
names_line(const ml_recording *frames, const char *file, int64_t line)
{
    bool found = false;
    for (size_t i = 1; i < frames->frame_count; i++) {
        ml_string name = frames->strings[frames->frames[i].filename];
        found |= name.length == strlen(file) && frames->frames[i].line == line &&
                 memcmp(name.bytes, file, name.length) == 0;
    }
    return found;
}

/* Of the frames that the file names, not of those that other recordings have. */
static void
test_lines_of_code(void)
{
    const char *path = sample_path("code.mlab");
    ml_script_reset(NULL);
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 71);
    ml_window *window = sample_start(path);
    CHECK(window != NULL);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT, MIB, 72);
    sample_emit(1, ML_ACTION_SEGMENT_ALLOC, SEGMENT, MIB, 73);
    ml_recording *frames = NULL;
    CHECK_INT(ml_window_file_frames(window, &frames), 0);
    CHECK(frames != NULL);
    CHECK(!names_line(frames, "model.py", 71));
    CHECK(names_line(frames, "model.py", 72));
    CHECK(names_line(frames, "model.py", 73));
    CHECK(names_line(frames, "train.py", 7));
    CHECK_UINT(frames->frame_count, 4);
    ml_code_line line = {.filename = frames->frames[1].filename,
                         .line = 72,
                         .first_line = 70,
                         .last_line = 80,
                         .changed_us = 5,
                         .forward = ML_CODE_FORWARD_NONE};
    static char text[3000];
    memset(text, 'x', sizeof(text));
    const size_t lengths[] = {2000, sizeof(text)};
    for (size_t i = 0; i < 2; i++) {
        CHECK_INT(ml_recording_add_string(frames, text, lengths[i], &line.text), 0);
        CHECK_INT(ml_recording_add_code_line(frames, line), 0);
        line.line++;
    }
    ml_window_tell_code(window, frames);
    ml_recording_free(frames);
    ml_window_stop(window);
    ml_recording *recording = sample_read(path, &info);
    CHECK(recording != NULL);
    /* What no record has room for is left out. */
    CHECK_UINT(recording->code_line_count, 1);
    CHECK_INT(recording->code_lines[0].line, 72);
    CHECK_INT(recording->code_lines[0].first_line, 70);
    CHECK_INT(recording->code_lines[0].last_line, 80);
    CHECK_INT(recording->code_lines[0].changed_us, 5);
    CHECK_INT(recording->code_lines[0].forward, ML_CODE_FORWARD_NONE);
    CHECK_UINT(recording->strings[recording->code_lines[0].text].length, 2000);
    CHECK_UINT(info.lost_records + info.unread_records, 0);
    ml_recording_free(recording);
    ml_mlab_info_fini(&info);
    unlink(path);
}

static void
test_lines_of_code_without_a_file_or_memory(void)
{
    const char *path = sample_path("few.mlab");
    ml_script_reset(NULL);
    ml_recording *frames = NULL;
    ml_window *window = sample_start(NULL);
    CHECK_INT(ml_window_file_frames(window, &frames), 0);
    CHECK(frames == NULL);
    ml_window_stop(window);
    window = sample_start(path);
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 72);
    int result = ML_ENOMEM;
    long budget = 0;
    for (; result == ML_ENOMEM && budget < 100; budget++) {
        budget_begin(budget);
        result = ml_window_file_frames(window, &frames);
        CHECK((result == 0) == (frames != NULL));
        ml_recording_free(frames);
        budget_end();
        CHECK_INT(budget_alive, 0);
    }
    CHECK_INT(result, 0);
    CHECK(budget > 5);
    ml_window_stop(window);
    unlink(path);
}

typedef struct learner {
    int result;
    _Atomic bool done;
} learner;

/* Each of another file, so that what holds them grows again and again. */
static void *
learn(void *self)
{
    learner *own = self;
    for (int i = 0; i < 2000 && own->result == 0; i++) {
        char path[32];
        char trace[64];
        int length = snprintf(path, sizeof(path), "made/%d.py", i);
        ml_made_line line = {.line = 1, .trace.bytes = trace};
        line.trace.length = (size_t)snprintf(
            trace, sizeof(trace), "  File \"net%d.py\", line 3, in forward\n", i);
        own->result =
            ml_recorder_add_origins((ml_slice){path, (size_t)length}, &line, 1);
    }
    atomic_store(&own->done, true);
    return NULL;
}

static void
test_frames_are_asked_for_while_compiled_code_is_learnt(void)
{
    const char *path = sample_path("learnt.mlab");
    ml_script_reset(NULL);
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 0);
    ml_window *window = sample_start(path);
    CHECK(window != NULL);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT, MIB, 72);
    learner other = {0};
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, learn, &other), 0);
    bool last = false;
    while (!last) {
        last = atomic_load(&other.done);
        ml_recording *frames = NULL;
        CHECK_INT(ml_window_file_frames(window, &frames), 0);
        CHECK(names_line(frames, "model.py", 72));
        ml_recording_free(frames);
    }
    pthread_join(thread, NULL);
    CHECK_INT(other.result, 0);
    ml_window_stop(window);
    unlink(path);
}

int
main(void)
{
    if (ml_recorder_init(sample_walk) < 0 || ml_script_register() < 0) {
        return 1;
    }
    RUN(test_what_was_recorded_is_read_back);
    RUN(test_the_memory_at_the_start_of_every_device);
    RUN(test_a_file_follows_the_umask_and_keeps_its_mode);
    RUN_LONG_IN_ONE_THREAD(test_threads_without_end_are_told_apart);
    RUN(test_a_file_of_one_device);
    RUN(test_names_too_long_for_a_record);
    RUN(test_lines_of_code);
    RUN(test_lines_of_code_without_a_file_or_memory);
    RUN(test_frames_are_asked_for_while_compiled_code_is_learnt);
    /* Last: what it tells of compiled code holds for the process. */
    RUN(test_what_made_compiled_code_is_read_back);
    sample_remove_folder();
    return TEST_RESULT();
}
