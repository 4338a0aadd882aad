/* The recorder on the scripted source: windows, seeding, overwriting, contexts, tags.
 * Figures are worked out by hand from the allocator's rules: blocks are multiples of 512
 * bytes, small segments 2 MiB, large ones of requests up to 10 MiB 20 MiB. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "budget.h"
#include "record/recorder.h"
#include "record/script.h"
#include "record/window.h"
#include "afresh.h"
#include "test.h"
#include "plain_events.h"

#define MIB (UINT64_C(1) << 20)
#define SEGMENT UINT64_C(0x700000000000)

#define LOST UINT32_MAX

static uint32_t next_line; /* what the walker claims to see; LOST: a full table */

/* One frame per line number, as a walker of a language with one function would. */
static uint32_t
walk(void *stacks, uint8_t *flags)
{
    if (next_line == 0) {
        *flags |= ML_EVENT_NO_PYTHON;
        return 0;
    }
    if (next_line == LOST) {
        *flags |= ML_EVENT_STACK_LOST;
        return 0;
    }
    ml_frame_key key = {.code = 1, .fingerprint = 1, .offset = next_line};
    ml_code_text text = {
        .name = {"train", 5},
        .filename = {"train.py", 8},
        .firstlineno = 1,
    };
    return ml_stacks_add(stacks, 0, &key, &text);
}

static void
emit(unsigned action, uint64_t addr, uint64_t size, uint32_t line)
{
    static uint64_t clock_ns = 1000;
    next_line = line;
    ml_event event = {.action = (uint8_t)action, .addr = addr, .size = size};
    event.time = clock_ns += 1000;
    ml_script_emit(0, &event, NULL);
}

static void
free_block(uint64_t addr, uint64_t size, uint32_t line)
{
    emit(ML_ACTION_FREE_REQUESTED, addr, size, line);
    emit(ML_ACTION_FREE_COMPLETED, addr, size, line);
}

static const ml_source *
script(void)
{
    return ml_recorder_source("script");
}

static ml_window *
start(uint64_t max_entries, enum ml_context context)
{
    ml_window_options options = {.max_entries = max_entries,
                                 .context = context,
                                 .keep_events = true,
                                 .device = -1};
    ml_window *window = NULL;
    return ml_window_start(script(), &options, &window) == 0 ? window : NULL;
}

static ml_recording *
freeze(ml_window *window)
{
    ml_recording *recording = NULL;
    return ml_window_freeze(window, 0, &recording) == 0 ? recording : NULL;
}

static int64_t
line_of(const ml_recording *recording, uint32_t stack)
{
    return recording->frames[recording->stacks[stack].frame].line;
}

static void
test_events_and_state(void)
{
    /* Before recording: a segment with one block. */
    emit(ML_ACTION_SEGMENT_ALLOC, SEGMENT, 20 * MIB, 1);
    emit(ML_ACTION_ALLOC, SEGMENT, 4 * MIB, 1);
    ml_window *window = start(1000, ML_CONTEXT_ALL);
    CHECK(window != NULL);
    emit(ML_ACTION_ALLOC, SEGMENT + 4 * MIB, 3 * MIB + 100, 10);
    free_block(SEGMENT, 4 * MIB, 11);
    ml_recorder_stats stats;
    CHECK_INT(ml_recorder_stats_of(script(), 0, &stats), 0);
    /* 3 MiB + 100 B round up to 3 MiB + 512 B. */
    CHECK_INT(stats.current.allocated, 3 * MIB + 512);
    CHECK_INT(stats.peak.allocated, 7 * MIB + 512);
    CHECK_INT(stats.current.reserved, 20 * MIB);
    CHECK_INT(stats.current.requested, 3 * MIB + 100);
    CHECK_INT(stats.events, 3);
    CHECK_INT(stats.inconsistencies, 0);

    ml_recording *recording = freeze(window);
    CHECK(recording != NULL);
    CHECK_INT(ml_recording_validate(recording), 0);
    ml_device_trace *trace = &recording->devices[0];
    CHECK_INT(trace->event_count, 3);
    CHECK_INT(plain_events(trace)[0].action, ML_ACTION_ALLOC);
    CHECK_INT(plain_events(trace)[0].block_bytes, 3 * MIB + 512);
    CHECK_INT(line_of(recording, plain_events(trace)[0].stack), 10);
    CHECK_INT(line_of(recording, plain_events(trace)[1].stack), 11);
    CHECK_INT(line_of(recording, plain_events(trace)[2].stack), 11);
    /* The freed block was there before recording: where it came from is not known. */
    CHECK_INT(plain_events(trace)[1].origin_stack, 0);
    CHECK_INT(plain_events(trace)[1].block_bytes, 4 * MIB);
    CHECK_INT(trace->overwritten_events, 0);
    CHECK_INT(trace->peak.allocated, 7 * MIB + 512);
    CHECK_INT(trace->segment_count, 1);
    CHECK_INT(trace->block_count, 3);
    CHECK_INT(trace->blocks[0].state, ML_BLOCK_INACTIVE);
    CHECK_INT(trace->blocks[1].state, ML_BLOCK_ALLOCATED);
    CHECK_INT(trace->blocks[1].size, 3 * MIB + 512);
    CHECK_INT(line_of(recording, trace->blocks[1].stack), 10);
    CHECK_INT(trace->blocks[2].state, ML_BLOCK_INACTIVE);
    ml_recording_free(recording);
    ml_window_stop(window);
}

/* By hand: of 1000 turns of an allocation and two frees, the newest 10 entries that
 * count are the last 10 allocations. */
static void
test_skipped_actions_do_not_count(void)
{
    emit(ML_ACTION_SEGMENT_ALLOC, SEGMENT, 2 * MIB, 0);
    ml_window_options options = {.max_entries = 10,
                                 .skipped = 1u << ML_ACTION_FREE_REQUESTED |
                                            1u << ML_ACTION_FREE_COMPLETED,
                                 .keep_events = true,
                                 .device = -1};
    ml_window *window = NULL;
    CHECK_INT(ml_window_start(script(), &options, &window), 0);
    for (uint32_t i = 0; i < 1000; i++) {
        emit(ML_ACTION_ALLOC, SEGMENT, 1024, 8);
        free_block(SEGMENT, 1024, 9);
    }
    ml_recording *recording = freeze(window);
    CHECK(recording != NULL);
    CHECK_INT(ml_recording_validate(recording), 0);
    ml_device_trace *trace = &recording->devices[0];
    /* The two frees before the first allocation stay: they are left out on reading. */
    CHECK_INT(trace->event_count, 32);
    CHECK_INT(plain_events(trace)[2].action, ML_ACTION_ALLOC);
    CHECK_INT(trace->overwritten_events, 3000 - 32);
    ml_recording_free(recording);
    options.keep_events = false;
    CHECK_INT(ml_window_configure(window, &options), 0);
    recording = freeze(window);
    CHECK(recording != NULL);
    /* The first look at the memory counts, and two frees lie before it. */
    CHECK_INT(recording->devices[0].event_count, 3);
    ml_recording_free(recording);
    ml_window_stop(window);
}

static void
test_overwriting_is_counted(void)
{
    emit(ML_ACTION_SEGMENT_ALLOC, SEGMENT, 2 * MIB, 0);
    ml_window *window = start(100, ML_CONTEXT_ALL);
    CHECK(window != NULL);
    emit(ML_ACTION_ALLOC, SEGMENT, 512, 7); /* stays, its event is overwritten */
    for (uint32_t i = 0; i < 1000; i++) {
        emit(ML_ACTION_ALLOC, SEGMENT + 512, 1024, 8);
        free_block(SEGMENT + 512, 1024, 9);
    }
    ml_recording *recording = freeze(window);
    CHECK(recording != NULL);
    ml_device_trace *trace = &recording->devices[0];
    CHECK_INT(trace->event_count, 100);
    CHECK_INT(trace->overwritten_events, 3001 - 100);
    CHECK_INT(plain_events(trace)[99].action, ML_ACTION_FREE_COMPLETED);
    CHECK_INT(trace->blocks[0].state, ML_BLOCK_ALLOCATED);
    CHECK_INT(line_of(recording, trace->blocks[0].stack), 7);
    CHECK_INT(trace->peak.allocated, 512 + 1024);
    ml_recording_free(recording);
    ml_window_stop(window);
}

static void
test_windows_do_not_disturb_each_other(void)
{
    emit(ML_ACTION_SEGMENT_ALLOC, SEGMENT, 2 * MIB, 0);
    ml_window *first = start(1000, ML_CONTEXT_ALL);
    emit(ML_ACTION_ALLOC, SEGMENT, 4096, 1);
    ml_window *second = start(1000, ML_CONTEXT_NONE);
    CHECK(first != NULL && second != NULL);
    free_block(SEGMENT, 4096, 2);
    emit(ML_ACTION_ALLOC, SEGMENT, 512, 3);
    ml_recording *late = freeze(second);
    CHECK(late != NULL);
    CHECK_INT(late->devices[0].event_count, 3);
    CHECK_INT(plain_events(&late->devices[0])[0].stack, 0);
    CHECK_INT(late->devices[0].peak.allocated, 4096);
    ml_recording_free(late);
    ml_window_stop(second);
    emit(ML_ACTION_ALLOC, SEGMENT + 512, 512, 4);
    ml_recording *whole = freeze(first);
    CHECK(whole != NULL);
    /* The walk with which the second was read is an event of its own, as in torch. */
    CHECK_INT(whole->devices[0].event_count, 6);
    CHECK_INT(plain_events(&whole->devices[0])[4].action, ML_ACTION_SNAPSHOT);
    CHECK_INT(line_of(whole, plain_events(&whole->devices[0])[0].stack), 1);
    CHECK_INT(line_of(whole, plain_events(&whole->devices[0])[5].stack), 4);
    ml_recording_free(whole);
    ml_window_stop(first);
}

static void
test_contexts_change_while_recording(void)
{
    emit(ML_ACTION_SEGMENT_ALLOC, SEGMENT, 2 * MIB, 0);
    ml_window *window = start(1000, ML_CONTEXT_ALL);
    ml_window_options options = {
        .max_entries = 1000, .keep_events = true, .device = -1};
    emit(ML_ACTION_ALLOC, SEGMENT, 512, 1);
    options.context = ML_CONTEXT_NONE;
    CHECK_INT(ml_window_configure(window, &options), 0);
    emit(ML_ACTION_ALLOC, SEGMENT + 512, 512, 2);
    options.context = ML_CONTEXT_ALLOC;
    CHECK_INT(ml_window_configure(window, &options), 0);
    emit(ML_ACTION_ALLOC, SEGMENT + 1024, 512, 3);
    free_block(SEGMENT, 512, 4);
    ml_recording *recording = freeze(window);
    CHECK(recording != NULL);
    ml_event *events = plain_events(&recording->devices[0]);
    CHECK_INT(recording->devices[0].event_count, 5);
    CHECK_INT(line_of(recording, events[0].stack), 1);
    CHECK_INT(events[1].stack, 0);
    CHECK_INT(line_of(recording, events[2].stack), 3);
    /* With "alloc" a free shows where its block came from. */
    CHECK_INT(line_of(recording, events[3].stack), 1);
    ml_recording_free(recording);
    ml_window_stop(window);
}

/* With "state" alone, as in torch: a segment whose first block was split is of no known
 * origin, also when all of it is free again. */
static void
test_state_keeps_the_stacks_of_whole_segments(void)
{
    for (int context = ML_CONTEXT_NONE; context <= ML_CONTEXT_ALL; context++) {
        ml_script_reset(NULL);
        ml_window *window = start(1000, (enum ml_context)context);
        CHECK(window != NULL);
        emit(ML_ACTION_SEGMENT_ALLOC, SEGMENT, 2 * MIB, 1);
        emit(ML_ACTION_ALLOC, SEGMENT, 512, 1);
        emit(ML_ACTION_SEGMENT_ALLOC, SEGMENT + 2 * MIB, 20 * MIB, 2);
        emit(ML_ACTION_ALLOC, SEGMENT + 2 * MIB, 20 * MIB, 2);
        free_block(SEGMENT, 512, 3);
        free_block(SEGMENT + 2 * MIB, 20 * MIB, 3);
        ml_recording *recording = freeze(window);
        CHECK(recording != NULL);
        const ml_device_trace *trace = &recording->devices[0];
        CHECK_UINT(trace->segment_count, 2);
        bool split_told = context >= ML_CONTEXT_ALLOC;
        bool whole_told = context >= ML_CONTEXT_STATE;
        CHECK_INT(trace->segments[0].stack != 0, split_told);
        CHECK_INT(trace->segments[1].stack != 0, whole_told);
        if (whole_told) {
            CHECK_INT(line_of(recording, trace->segments[1].stack), 2);
        }
        ml_recording_free(recording);
        ml_window_stop(window);
    }
}

static void
test_tags(void)
{
    emit(ML_ACTION_SEGMENT_ALLOC, SEGMENT, 2 * MIB, 0);
    ml_window *window = start(4, ML_CONTEXT_ALL);
    emit(ML_ACTION_ALLOC, SEGMENT, 512, 1);
    CHECK_INT(ml_window_tag(window, 0, SEGMENT,
                            &(ml_owner){ML_CATEGORY_PARAMETER, 0,
                                        ml_stacks_string(ml_recorder_stacks(), "weight",
                                                         sizeof("weight") - 1)}),
              0);
    emit(ML_ACTION_ALLOC, SEGMENT + 512, 512, 2);
    CHECK_INT(ml_window_tag(window, 0, SEGMENT + 512,
                            &(ml_owner){.category = ML_CATEGORY_GRADIENT}),
              0);
    CHECK_INT(
        ml_window_tag(window, 99, SEGMENT, &(ml_owner){.category = ML_CATEGORY_BUFFER}),
        ML_EINVALID);
    ml_recording *recording = freeze(window);
    ml_device_trace *trace = &recording->devices[0];
    CHECK_INT(trace->tag_count, 2);
    CHECK_INT(trace->tags[0].position, 1);
    CHECK_INT(trace->tags[0].category, ML_CATEGORY_PARAMETER);
    CHECK_TEXT(recording->strings[trace->tags[0].name].bytes,
               recording->strings[trace->tags[0].name].length, "weight");
    CHECK_INT(trace->tags[1].position, 2);
    ml_recording_free(recording);
    ml_window_stop(window);
}

static void
test_clear_forgets_events_only(void)
{
    emit(ML_ACTION_SEGMENT_ALLOC, SEGMENT, 2 * MIB, 0);
    ml_window *window = start(100, ML_CONTEXT_ALL);
    emit(ML_ACTION_ALLOC, SEGMENT, 512, 5);
    ml_window_clear(window);
    emit(ML_ACTION_ALLOC, SEGMENT + 512, 512, 6);
    ml_recording *recording = freeze(window);
    CHECK_INT(recording->devices[0].event_count, 1);
    CHECK_INT(recording->devices[0].overwritten_events, 0);
    CHECK_INT(line_of(recording, plain_events(&recording->devices[0])[0].stack), 6);
    CHECK_INT(line_of(recording, recording->devices[0].blocks[0].stack), 5);
    ml_recording_free(recording);
    ml_window_stop(window);
}

static void
test_clear_forgets_the_peak(void)
{
    emit(ML_ACTION_SEGMENT_ALLOC, SEGMENT, 2 * MIB, 0);
    ml_window *window = start(100, ML_CONTEXT_ALL);
    emit(ML_ACTION_ALLOC, SEGMENT, 512, 0);
    emit(ML_ACTION_ALLOC, SEGMENT + 512, 4096, 0);
    free_block(SEGMENT + 512, 4096, 0);
    emit(ML_ACTION_ALLOC, SEGMENT + 512, 1024, 0);
    ml_window_clear(window);
    free_block(SEGMENT + 512, 1024, 0);
    ml_recording *recording = freeze(window);
    CHECK(recording != NULL);
    /* 512 and 1024 bytes were live when the history was cleared. */
    CHECK_INT(recording->devices[0].peak.allocated, 1536);
    ml_recording_free(recording);
    ml_window_clear(window);
    recording = freeze(window);
    CHECK(recording != NULL);
    CHECK_INT(recording->devices[0].event_count, 0);
    CHECK_INT(recording->devices[0].peak.allocated, 512);
    ml_recording_free(recording);
    ml_window_stop(window);
}

static void
test_losses_are_those_of_the_window(void)
{
    emit(ML_ACTION_SEGMENT_ALLOC, SEGMENT, 2 * MIB, 0);
    ml_window *first = start(100, ML_CONTEXT_ALL);
    emit(ML_ACTION_ALLOC, SEGMENT, 512, LOST);
    emit(ML_ACTION_ALLOC, SEGMENT + 512, 512, LOST);
    ml_window *second = start(100, ML_CONTEXT_ALL);
    emit(ML_ACTION_ALLOC, SEGMENT + 1024, 512, LOST);
    ml_recording *one = freeze(first);
    ml_recording *two = freeze(second);
    CHECK(one != NULL && two != NULL);
    CHECK_INT(one->devices[0].lost_stacks, 3);
    CHECK_INT(two->devices[0].lost_stacks, 1);
    CHECK_INT(two->devices[0].dropped_events, 0);
    ml_recording_free(one);
    ml_recording_free(two);
    ml_window_clear(first);
    one = freeze(first);
    CHECK(one != NULL);
    CHECK_INT(one->devices[0].lost_stacks, 0);
    ml_recording_free(one);
    ml_window_stop(first);
    ml_window_stop(second);
    ml_recorder_stats stats;
    CHECK_INT(ml_recorder_stats_of(script(), 0, &stats), 0);
    CHECK(stats.lost_stacks >= 3);
}

/* The most bytes that the core asked for at once. */
static size_t largest_request;

static void *
watch_requests(void *pointer, size_t bytes)
{
    largest_request = bytes > largest_request ? bytes : largest_request;
    if (bytes == 0) {
        free(pointer);
        return NULL;
    }
    return realloc(pointer, bytes);
}

static void
test_tags_do_not_pile_up(void)
{
    emit(ML_ACTION_SEGMENT_ALLOC, SEGMENT, 2 * MIB, 0);
    ml_window *window = start(100, ML_CONTEXT_ALL);
    emit(ML_ACTION_ALLOC, SEGMENT, 512, 0);
    emit(ML_ACTION_ALLOC, SEGMENT + 512, 512, 0);
    largest_request = 0;
    ml_set_realloc(watch_requests);
    int wrong = 0;
    /* Steps that allocate, with tags at each event: those of the newest 100 count. */
    for (int i = 0; i < 5000; i++) {
        emit(ML_ACTION_ALLOC, SEGMENT + 1024, 512, 0);
        wrong += ml_window_tag(window, 0, SEGMENT,
                               &(ml_owner){.category = ML_CATEGORY_PARAMETER});
        free_block(SEGMENT + 1024, 512, 0);
    }
    /* Steps that allocate nothing: each says the same again. */
    for (int i = 0; i < 5000; i++) {
        wrong += ml_window_tag(window, 0, SEGMENT,
                               &(ml_owner){.category = ML_CATEGORY_PARAMETER});
        wrong += ml_window_tag(window, 0, SEGMENT + 512,
                               &(ml_owner){.category = ML_CATEGORY_GRADIENT});
    }
    ml_set_realloc(NULL);
    CHECK_INT(wrong, 0);
    /* One tag in three events of 100, and two more, are at most 36; doubled twice. */
    CHECK(largest_request > 0 && largest_request <= 36 * 4 * sizeof(ml_tag));
    ml_recording *recording = freeze(window);
    CHECK(recording != NULL);
    CHECK_INT(ml_recording_validate(recording), 0);
    ml_device_trace *trace = &recording->devices[0];
    size_t parameters = 0, gradients = 0, earlier = 0;
    for (size_t i = 0; i < trace->tag_count; i++) {
        parameters += trace->tags[i].category == ML_CATEGORY_PARAMETER;
        gradients += trace->tags[i].category == ML_CATEGORY_GRADIENT;
        earlier += trace->tags[i].position < trace->event_count;
    }
    CHECK(parameters > 0 && gradients > 0);
    /* Before events 1, 4, ... 97 or so of the 100 kept. */
    CHECK(earlier == 33 || earlier == 34);
    ml_recording_free(recording);
    ml_window_stop(window);
}

static void
test_failing_to_change_changes_nothing(void)
{
    emit(ML_ACTION_SEGMENT_ALLOC, SEGMENT, 2 * MIB, 0);
    ml_window *window = start(1000, ML_CONTEXT_ALL);
    ml_window_options options = {
        .max_entries = 1000000, .context = ML_CONTEXT_NONE, .keep_events = true};
    budget_begin(0);
    CHECK_INT(ml_window_configure(window, &options), ML_ENOMEM);
    budget_end();
    emit(ML_ACTION_ALLOC, SEGMENT, 512, 5);
    ml_recording *recording = freeze(window);
    CHECK(recording != NULL);
    CHECK_INT(line_of(recording, plain_events(&recording->devices[0])[0].stack), 5);
    ml_recording_free(recording);
    ml_window_stop(window);
}

static _Atomic int stop_writing;

static void *
keep_allocating(void *context)
{
    uint64_t addr = SEGMENT + (uint64_t)(uintptr_t)context;
    while (!stop_writing) {
        ml_event event = {.action = ML_ACTION_ALLOC, .addr = addr, .size = 512};
        ml_script_emit(0, &event, NULL);
        event.action = ML_ACTION_FREE_REQUESTED;
        ml_script_emit(0, &event, NULL);
        event.action = ML_ACTION_FREE_COMPLETED;
        ml_script_emit(0, &event, NULL);
    }
    return NULL;
}

static void
test_starting_beside_a_writer(void)
{
    next_line = 0;
    emit(ML_ACTION_SEGMENT_ALLOC, SEGMENT, 2 * MIB, 0);
    emit(ML_ACTION_ALLOC, SEGMENT, 4096, 0);
    stop_writing = 0;
    pthread_t writer;
    CHECK_INT(pthread_create(&writer, NULL, keep_allocating, (void *)4096), 0);
    uint64_t problems = 0, wrong = 0;
    for (int i = 0; i < (UNDER_SANITIZER ? 60 : 300); i++) {
        ml_window *window = start(100, ML_CONTEXT_ALL);
        ml_recording *recording = freeze(window);
        wrong += recording == NULL || ml_recording_validate(recording) != 0;
        ml_recorder_stats stats;
        wrong += ml_recorder_stats_of(script(), 0, &stats) != 0;
        /* The one block that stays, and the writer's, which comes and goes. */
        wrong += stats.current.allocated != 4096 && stats.current.allocated != 4608;
        problems += stats.inconsistencies;
        ml_recording_free(recording);
        ml_window_stop(window);
    }
    stop_writing = 1;
    pthread_join(writer, NULL);
    CHECK_INT(wrong, 0);
    CHECK_INT(problems, 0);
}

/* Some are forked while the writer, which they have not, was publishing its totals. */
static void
test_forked_children_read_totals_of_one_instant(void)
{
    next_line = 0;
    emit(ML_ACTION_SEGMENT_ALLOC, SEGMENT, 2 * MIB, 0);
    ml_window *window = start(100, ML_CONTEXT_ALL);
    stop_writing = 0;
    pthread_t writer;
    CHECK_INT(pthread_create(&writer, NULL, keep_allocating, NULL), 0);
    int failed = 0;
    for (int i = 0; i < (UNDER_SANITIZER ? 150 : 1500); i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20); /* it would wait for ever */
            ml_recorder_stats stats;
            int result = ml_recorder_stats_of(script(), 0, &stats);
            uint64_t allocated = stats.current.allocated;
            uint64_t active = stats.current.active;
            _exit(result != 0 || allocated > active ||
                  (allocated != 0 && allocated != 512) ||
                  (active != 0 && active != 512));
        }
        int status = 0;
        waitpid(child, &status, 0);
        failed += status != 0;
    }
    stop_writing = 1;
    pthread_join(writer, NULL);
    ml_window_stop(window);
    CHECK_INT(failed, 0);
}

static int
begin(void)
{
    return ml_recorder_init(walk) != 0 || ml_script_register() != 0;
}

int
main(void)
{
    RUN_AFRESH(begin, test_events_and_state);
    RUN_AFRESH(begin, test_skipped_actions_do_not_count);
    RUN_AFRESH(begin, test_overwriting_is_counted);
    RUN_AFRESH(begin, test_windows_do_not_disturb_each_other);
    RUN_AFRESH(begin, test_contexts_change_while_recording);
    RUN_AFRESH(begin, test_state_keeps_the_stacks_of_whole_segments);
    RUN_AFRESH(begin, test_tags);
    RUN_AFRESH(begin, test_clear_forgets_events_only);
    RUN_AFRESH(begin, test_clear_forgets_the_peak);
    RUN_AFRESH(begin, test_losses_are_those_of_the_window);
    RUN_AFRESH(begin, test_tags_do_not_pile_up);
    RUN_AFRESH(begin, test_failing_to_change_changes_nothing);
    RUN_AFRESH(begin, test_starting_beside_a_writer);
    RUN_AFRESH(begin, test_forked_children_read_totals_of_one_instant);
    return TEST_RESULT();
}
