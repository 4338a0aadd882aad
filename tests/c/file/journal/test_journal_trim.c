/* A file that drops its first part: what held there holds at its new start, and nothing
 * else. */
#define _GNU_SOURCE

#include <sched.h>
#include <sys/stat.h>

#include "file/codec/mlab_format.h"
#include "file/journal/journal_parts.h"
#include "journal_samples.h"
#include "plain_events.h"
#include "record/window.h"
#include "test.h"

#define LIMIT (16 * MIB)

static ml_mlab_info info;

static ml_window *
start(const char *path, uint64_t kept_steps)
{
    ml_window *window = NULL;
    ml_window_options options = {.max_entries = 1000,
                                 .context = ML_CONTEXT_ALL,
                                 .keep_events = true,
                                 .device = -1,
                                 .file = path,
                                 .file_bytes = LIMIT,
                                 .kept_steps = kept_steps};
    return ml_window_start(ml_recorder_source("script"), &options, &window) == 0
               ? window
               : NULL;
}

static void
note(unsigned kind, uint64_t value, const char *name)
{
    ml_note what = {.kind = (uint8_t)kind, .device = 0, .values = {value}};
    ml_recorder_note(ml_recorder_source("script"), &what, name, strlen(name));
}

static void
tag(ml_window *window, uint64_t addr, const char *module, const char *name)
{
    ml_stacks *stacks = ml_recorder_stacks();
    ml_owner owner = {ML_CATEGORY_PARAMETER,
                      ml_stacks_string(stacks, module, strlen(module)),
                      ml_stacks_string(stacks, name, strlen(name))};
    CHECK_INT(ml_window_tag(window, 0, addr, &owner), 0);
}

/* How often the first part was dropped. */
static uint64_t
trims(const ml_window *window)
{
    return atomic_load(&window->journal->header->trims);
}

/* A loop of nothing but events outruns the file's thread, which follows those that it drops:
 * waits until the thread has chunks ready again.  Without it, events are counted as a gap. */
static void
let_the_thread_catch_up(ml_window *window)
{
    unsigned ready = 0;
    while (ready < ML_JOURNAL_READY_LEAST / 2) {
        sched_yield();
        ready = 0;
        for (unsigned i = 0; i < ML_JOURNAL_SLOTS; i++) {
            ready += atomic_load(&window->journal->slots[i]) == ML_SLOT_READY;
        }
    }
}

/* Steps of events, each of which leaves nothing, until the file dropped its first part
 * TIMES more. */
static uint64_t
run_until_dropped(ml_window *window, unsigned times)
{
    uint64_t wanted = trims(window) + times;
    uint64_t steps = 0;
    while (trims(window) < wanted) {
        for (unsigned i = 0; i < 5000; i++) {
            uint64_t addr = SEGMENT + 10 * MIB + i % 7 * MIB;
            sample_emit(0, ML_ACTION_ALLOC, addr, 600 + i, 100 + i % 50);
            sample_free(0, addr, 600 + i, 200);
        }
        note(ML_NOTE_STEP, 0, "");
        steps++;
        let_the_thread_catch_up(window);
    }
    return steps;
}

static bool
text_is(const ml_recording *recording, uint32_t string, const char *text)
{
    const ml_string *found = &recording->strings[string];
    return found->length == strlen(text) &&
           memcmp(found->bytes, text, found->length) == 0;
}

static const ml_block *
block_at(const ml_device_trace *trace, uint64_t addr)
{
    for (size_t i = 0; i < trace->block_count; i++) {
        if (trace->blocks[i].addr == addr) {
            return &trace->blocks[i];
        }
    }
    return NULL;
}

static unsigned
count_notes(const ml_recording *recording, unsigned kind, const char *name)
{
    unsigned count = 0;
    for (size_t i = 0; i < recording->note_count; i++) {
        const ml_note *found = &recording->notes[i];
        count += found->kind == kind && text_is(recording, found->name, name);
    }
    return count;
}

static void
test_what_held_holds(void)
{
    const char *path = sample_path("trim.mlab");
    ml_script_reset(NULL);
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 0);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT, 2 * MIB, 0);
    ml_window *window = start(path, 3);
    CHECK(window != NULL);
    note(ML_NOTE_PROGRAM, 0, "train.py");
    note(ML_NOTE_PHASE_BEGIN, 1, "setup");
    note(ML_NOTE_PHASE_END, 1, "setup");
    note(ML_NOTE_PHASE_BEGIN, 2, "epoch");
    /* Lives; lives and waits for its free; ends; ends, and another begins there. */
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT + 2 * MIB, MIB, 12);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT + 3 * MIB, MIB, 13);
    sample_emit(0, ML_ACTION_FREE_REQUESTED, SEGMENT + 3 * MIB, MIB, 14);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT + 4 * MIB, MIB, 15);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT + 5 * MIB, MIB, 16);
    tag(window, SEGMENT, "h.0", "before");
    tag(window, SEGMENT + 2 * MIB, "h.1", "weight");
    tag(window, SEGMENT + 4 * MIB, "h.2", "ended");
    tag(window, SEGMENT + 5 * MIB, "h.3", "replaced");
    sample_free(0, SEGMENT + 4 * MIB, MIB, 17);
    sample_free(0, SEGMENT + 5 * MIB, MIB, 17);
    sample_emit(0, ML_ACTION_ALLOC, SEGMENT + 5 * MIB, MIB, 18);
    note(ML_NOTE_HOLDER, SEGMENT, "held before");
    note(ML_NOTE_HOLDER, SEGMENT + 4 * MIB, "held and ended");
    /* Far less than a chunk after its block was made. */
    for (unsigned i = 0; i < 200; i++) {
        sample_emit(0, ML_ACTION_ALLOC, SEGMENT + 6 * MIB, MIB, 19);
        sample_free(0, SEGMENT + 6 * MIB, MIB, 20);
    }
    note(ML_NOTE_HOLDER, SEGMENT + 2 * MIB, "held early");
    uint64_t steps = run_until_dropped(window, UNDER_TSAN ? 1 : 3);
    note(ML_NOTE_PHASE_END, 2, "epoch");
    ml_window_stop(window);
    ml_recording *recording = sample_read(path, &info);
    CHECK(recording != NULL);
    CHECK_UINT(info.damaged_chunks, 0);
    CHECK_UINT(info.gap_count, 0);
    CHECK_UINT(info.unknown_starts, 0);
    CHECK_UINT(info.unread_records, 0);
    CHECK_UINT(info.lost_records, 0);
    CHECK(info.gone_events > 0 && info.gone_steps > 0 && info.gone_steps + 3 <= steps);
    const ml_device_trace *trace = &recording->devices[0];
    /* 3 events a loop, those by hand, and the look at the memory is left out. */
    CHECK_UINT(trace->overwritten_events + trace->event_count, 15000 * steps + 610);
    CHECK_UINT(trace->overwritten_events, info.gone_events);
    const uint64_t addrs[] = {SEGMENT, SEGMENT + 2 * MIB, SEGMENT + 3 * MIB,
                              SEGMENT + 5 * MIB};
    const int64_t lines[] = {0, 12, 13, 18};
    for (unsigned i = 0; i < 4; i++) {
        const ml_block *block = block_at(trace, addrs[i]);
        CHECK(block != NULL);
        CHECK_UINT(block->state, i == 2 ? ML_BLOCK_PENDING_FREE : ML_BLOCK_ALLOCATED);
        const ml_stack *stack = &recording->stacks[block->stack];
        CHECK_INT(recording->frames[stack->frame].line, lines[i]);
    }
    CHECK_UINT(trace->tag_count, 2);
    CHECK_UINT(trace->tags[0].position, 0);
    CHECK(text_is(recording, trace->tags[0].name, "before"));
    CHECK(text_is(recording, trace->tags[1].module, "h.1"));
    CHECK(text_is(recording, trace->tags[1].name, "weight"));
    CHECK_UINT(count_notes(recording, ML_NOTE_PROGRAM, "train.py"), 1);
    CHECK_UINT(count_notes(recording, ML_NOTE_PHASE_BEGIN, "setup"), 0);
    CHECK_UINT(count_notes(recording, ML_NOTE_PHASE_BEGIN, "epoch"), 1);
    CHECK_UINT(count_notes(recording, ML_NOTE_PHASE_END, "epoch"), 1);
    CHECK_UINT(count_notes(recording, ML_NOTE_HOLDER, "held before"), 1);
    CHECK_UINT(count_notes(recording, ML_NOTE_HOLDER, "held and ended"), 0);
    CHECK_UINT(count_notes(recording, ML_NOTE_HOLDER, "held early"), 1);
    CHECK_UINT(count_notes(recording, ML_NOTE_STEP, ""), steps - info.gone_steps);
    for (size_t i = 0; i < recording->note_count; i++) {
        if (recording->notes[i].kind == ML_NOTE_STEP) {
            CHECK_UINT(recording->notes[i].values[0], info.gone_steps);
            break;
        }
    }
    ml_recording_free(recording);
    ml_mlab_info_fini(&info);
    unlink(path);
}

/* A step needs a fraction of the limit: only that bounds the file. */
static void
test_the_limit_is_never_passed(void)
{
    const char *path = sample_path("limit.mlab");
    ml_script_reset(NULL);
    sample_emit(0, ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 0);
    ml_window *window = start(path, UINT64_MAX);
    CHECK(window != NULL);
    for (unsigned i = 0; i < (UNDER_TSAN ? 1 : 3); i++) {
        struct stat status;
        run_until_dropped(window, 1);
        CHECK_INT(stat(path, &status), 0);
        CHECK((uint64_t)status.st_size <= LIMIT);
        CHECK((uint64_t)status.st_size > LIMIT / 2);
        ml_recording *recording = sample_read(path, &info);
        CHECK(recording != NULL);
        CHECK_UINT(info.damaged_chunks, 0);
        CHECK_UINT(info.gap_count, 0);
        /* Of so small a file much is chunks at hand, and a new start. */
        CHECK(info.event_bytes > LIMIT / 16);
        ml_recording_free(recording);
        ml_mlab_info_fini(&info);
    }
    ml_window_stop(window);
    unlink(path);
}

int
main(void)
{
    if (ml_recorder_init(sample_walk) < 0 || ml_script_register() < 0) {
        return 1;
    }
    RUN(test_what_held_holds);
    RUN(test_the_limit_is_never_passed);
    sample_remove_folder();
    return TEST_RESULT();
}
