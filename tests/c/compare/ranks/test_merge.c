/* Recordings of ranks brought together: tables, devices, notes, clocks. */
#include "compare/ranks/merge.h"

#include <stdlib.h>

#include "analysis/answers/peak.h"
#include "budget.h"
#include "compare/ranks/align.h"
#include "file/snapshot/pickle_writer.h"
#include "file/snapshot/snapshot_reader.h"
#include "recording/process.h"
#include "recording_samples.h"
#include "test.h"
#include "plain_events.h"

#define MIB (UINT64_C(1) << 20)
#define BASE UINT64_C(0x7f0000000000)
#define SECOND INT64_C(1000000000)

static const unsigned char boots[2][ML_BOOT_BYTES] = {{1}, {2}};

/* RANK of two, on the host and boot of that number. */
static void
be_rank(ml_recording *recording, uint32_t rank, unsigned host)
{
    ml_process process = {.place = {.world_size = 2, .rank = rank, .local_rank = rank},
                          .pid = 100 + rank,
                          .unix_ns = 5000 + rank,
                          .boot_ns = 1000};
    snprintf(process.host, sizeof(process.host), "host%u", host);
    memcpy(process.boot, boots[host], ML_BOOT_BYTES);
    ml_process_tell(&process, ML_RANK_ENDED, recording);
}

static void
add_note(sample *s, enum ml_note_kind kind, uint64_t time, uint64_t value,
         int32_t device)
{
    s->notes[s->recording->note_count++] = (ml_note){
        .time = time, .kind = (uint8_t)kind, .values = {value}, .device = device};
}

/* A parameter of 1 MiB and an activation of BYTES, both alive at the end, one after the
 * other in a segment of 4 MiB; a step that ends at the third event; a phase. */
static void
build(sample *s, uint32_t rank, uint64_t bytes)
{
    sample_begin(s);
    /* So that ids differ between ranks. */
    for (uint32_t i = 0; i < 3 * rank; i++) {
        sample_string(s->recording, "only here");
    }
    uint32_t outer = sample_call(s->recording, 0, "train.py", 3, "main", NULL);
    uint32_t stack =
        sample_call(s->recording, outer, "model.py", 7, "forward", "net.0");
    sample_event(s, ML_ACTION_SEGMENT_ALLOC, BASE, 4 * MIB, outer);
    sample_event(s, ML_ACTION_ALLOC, BASE, MIB, outer);
    sample_event(s, ML_ACTION_ALLOC, BASE + MIB, bytes, stack);
    sample_tag(s, BASE, ML_CATEGORY_PARAMETER);
    s->tags[0].module = sample_string(s->recording, "net.0");
    s->segments[0] = (ml_segment){.addr = BASE,
                                  .total = 4 * MIB,
                                  .allocated = MIB + bytes,
                                  .active = MIB + bytes,
                                  .stack = outer,
                                  .block_count = 3};
    s->device.segment_count = 1;
    s->blocks[0] = (ml_block){BASE, MIB, MIB, outer, ML_BLOCK_ALLOCATED, {0}};
    s->blocks[1] = (ml_block){BASE + MIB, bytes, bytes, stack, ML_BLOCK_ALLOCATED, {0}};
    s->blocks[2] =
        (ml_block){BASE + MIB + bytes, 3 * MIB - bytes, 0, 0, ML_BLOCK_INACTIVE, {0}};
    s->device.block_count = 3;
    s->device.lost_names = rank;
    s->events[0].other = sample_string(s->recording, rank == 0 ? "of 0" : "of 1");
    add_note(s, ML_NOTE_PHASE_BEGIN, 500000, 9, -1);
    s->notes[0].name = sample_string(s->recording, rank == 0 ? "warm-up" : "training");
    add_note(s, ML_NOTE_STEP, 3000000, 4 + rank, -1);
    /* One line that both have, and one of its own. */
    for (uint32_t i = 0; i < 2; i++) {
        const ml_code_line line = {
            .filename = sample_string(s->recording, "model.py"),
            .name = sample_string(s->recording, "forward"),
            .line = i == 0 ? 7 : 8 + rank,
            .text = sample_string(s->recording, rank == 0 ? "of zero" : "of one"),
            .first_line = 5 + rank,
        };
        ml_recording_add_code_line(s->recording, line);
    }
    s->recording->source_known = 1;
    memcpy(s->recording->source, "cuda", 5);
    be_rank(s->recording, rank, 0);
}

static void
check_peak(const ml_recording *merged, size_t device, uint64_t bytes)
{
    size_t own = device;
    const ml_recording *part = ml_recording_part(merged, &own);
    CHECK_UINT(own, 0);
    ml_peak *peak;
    CHECK_INT(ml_peak_new(part, own, &peak), 0);
    CHECK_UINT(peak->totals.allocated, MIB + bytes);
    CHECK_UINT(peak->replay.misfits + peak->replay.mismatched_blocks, 0);
    CHECK_UINT(peak->line_count, 2);
    CHECK_UINT(peak->categories[ML_CATEGORY_PARAMETER].bytes, MIB);
    const ml_peak_line *line = &peak->lines[peak->lines[0].line == 7 ? 0 : 1];
    CHECK_TEXT(line->file.bytes, line->file.length, "model.py");
    CHECK_TEXT(line->function.bytes, line->function.length, "forward");
    CHECK_STR(line->module, "net.0");
    CHECK_UINT(line->bytes, bytes);
    ml_peak_free(peak);
}

static void
check_merged(const ml_recording *merged)
{
    CHECK_INT(ml_recording_validate(merged), 0);
    CHECK(ml_recording_is_merged(merged));
    CHECK_UINT(merged->rank_count, 2);
    CHECK_UINT(merged->device_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const ml_rank *rank = &merged->ranks[i];
        CHECK_INT(rank->rank, i);
        CHECK_INT(rank->local_rank, i);
        CHECK_UINT(rank->world_size, 2);
        CHECK_UINT(rank->pid, 100 + i);
        CHECK_UINT(rank->first_device, i);
        CHECK_UINT(rank->device_count, 1);
        CHECK_UINT(rank->state, ML_RANK_ENDED);
        CHECK_TEXT(merged->strings[rank->host].bytes,
                   merged->strings[rank->host].length, "host0");
        CHECK_TEXT(merged->strings[rank->file].bytes,
                   merged->strings[rank->file].length, i == 0 ? "zero" : "one");
        CHECK_UINT(rank->alignment,
                   i == 0 ? ML_ALIGNMENT_REFERENCE : ML_ALIGNMENT_HOST);
        CHECK_UINT(rank->bound, i);
        CHECK_INT(rank->offset, 0);
        CHECK_UINT(merged->devices[i].lost_names, i);
        CHECK_UINT(rank->part->note_count, 2);
        const ml_note *notes = rank->part->notes;
        CHECK_TEXT(merged->strings[notes[0].name].bytes,
                   merged->strings[notes[0].name].length,
                   i == 0 ? "warm-up" : "training");
        CHECK_UINT(notes[1].values[0], 4 + i);
        check_peak(merged, i, (2 - i) * MIB / 2);
    }
    /* "one" came first, here. */
    static const int64_t lines[] = {7, 9, 8};
    CHECK_UINT(merged->code_line_count, 3);
    for (size_t i = 0; i < 3; i++) {
        const ml_code_line *line = &merged->code_lines[i];
        CHECK_INT(line->line, lines[i]);
        CHECK_INT(line->first_line, i < 2 ? 6 : 5);
        ml_string text = merged->strings[line->text];
        CHECK_TEXT(text.bytes, text.length, i < 2 ? "of one" : "of zero");
    }
    /* Equal texts, and so frames and stacks, are one. */
    const ml_event *zero = plain_events(&merged->devices[0]);
    const ml_event *one = plain_events(&merged->devices[1]);
    for (size_t k = 0; k < 3; k++) {
        CHECK_UINT(zero[k].stack, one[k].stack);
        CHECK_UINT(zero[k].time, one[k].time);
    }
    const ml_string *forward = &merged->strings[ml_event_forward(&one[0])];
    CHECK_TEXT(forward->bytes, forward->length, "of 1");
    forward = &merged->strings[ml_event_forward(&zero[0])];
    CHECK_TEXT(forward->bytes, forward->length, "of 0");
    char name[64];
    ml_recording_device_name(merged, 1, name, sizeof(name));
    CHECK_STR(name, "rank 1 (cuda:0)");
}

/* In whatever order they come. */
static int
merge_two(const sample *first, const sample *second, ml_recording **out)
{
    ml_merge *merge;
    int result = ml_merge_new(&merge);
    if (result < 0) {
        return result;
    }
    result = ml_merge_add(merge, second->recording, "one", 7);
    if (result == 0) {
        result = ml_merge_add(merge, first->recording, "zero", 7);
    }
    if (result == 0) {
        result = ml_merge_finish(merge, out);
    }
    ml_merge_free(merge);
    return result;
}

static void
test_two_ranks(void)
{
    static sample zero, one;
    ml_recording *merged;
    build(&zero, 0, MIB);
    build(&one, 1, MIB / 2);
    CHECK_INT(merge_two(&zero, &one, &merged), 0);
    check_merged(merged);
    ml_recording_free(merged);
    sample_end(&zero);
    sample_end(&one);
}

static int
write_to_buffer(void *context, const void *bytes, size_t length)
{
    ml_buffer_append(context, bytes, length);
    return 0;
}

static void
test_what_is_written_is_read_again(void)
{
    static sample zero, one;
    ml_recording *merged, *read;
    build(&zero, 0, MIB);
    build(&one, 1, MIB / 2);
    /* Rules are each rank's own. */
    one.recording->rules.max_split_bytes = 20 * MIB;
    one.recording->rules.roundup_divisions[3] = 4;
    CHECK_INT(merge_two(&zero, &one, &merged), 0);
    ml_buffer file = {0};
    CHECK_INT(ml_pickle_write(merged, ML_PICKLE_EXTRAS, write_to_buffer, &file), 0);
    ml_read_error error;
    CHECK_INT(ml_snapshot_read(file.bytes, file.length, &read, &error), 0);
    check_merged(read);
    CHECK_UINT(read->ranks[0].part->rules.max_split_bytes, UINT64_MAX);
    CHECK_UINT(read->ranks[1].part->rules.max_split_bytes, 20 * MIB);
    CHECK_UINT(read->ranks[1].part->rules.roundup_divisions[3], 4);
    CHECK_UINT(read->ranks[1].part->rules.has_segments, 1);
    /* As part of another merge its ranks are ranks still. */
    ml_merge *merge;
    ml_recording *again;
    CHECK_INT(ml_merge_new(&merge), 0);
    CHECK_INT(ml_merge_add(merge, read, "both", -1), 0);
    CHECK_INT(ml_merge_finish(merge, &again), 0);
    check_merged(again);
    ml_merge_free(merge);
    ml_recording_free(again);
    ml_recording_free(read);
    ml_recording_free(merged);
    ml_buffer_fini(&file);
    sample_end(&zero);
    sample_end(&one);
}

/* Of a process that has three devices and uses the last. */
static void
test_devices_that_were_not_used(void)
{
    static sample s;
    ml_device_trace devices[3] = {{0}, {0}, {0}};
    ml_event looked = {.action = ML_ACTION_SNAPSHOT};
    ml_annotation annotations[2] = {{.time = 5, .device = 2}, {.time = 6, .device = 0}};
    build(&s, 0, MIB);
    add_note(&s, ML_NOTE_GPU, 3000001, 1, 1);
    add_note(&s, ML_NOTE_GPU, 3000002, 2, 2);
    devices[1].events.plain = &looked;
    devices[1].event_count = 1;
    devices[2] = s.device;
    s.recording->devices = devices;
    s.recording->device_count = 3;
    s.recording->annotations = annotations;
    s.recording->annotation_count = 2;
    ml_merge *merge;
    ml_recording *merged;
    CHECK_INT(ml_merge_new(&merge), 0);
    CHECK_INT(ml_merge_add(merge, s.recording, "a", -1), 0);
    CHECK_INT(ml_merge_finish(merge, &merged), 0);
    ml_merge_free(merge);
    CHECK_INT(ml_recording_validate(merged), 0);
    CHECK_UINT(merged->device_count, 1);
    CHECK_UINT(merged->devices[0].number, 2);
    const ml_recording *part = merged->ranks[0].part;
    CHECK_UINT(part->note_count, 3);
    CHECK_UINT(part->notes[2].values[0], 2);
    CHECK_INT(part->notes[2].device, 0);
    CHECK_UINT(merged->annotation_count, 2);
    CHECK_INT(merged->annotations[0].device, 0);
    CHECK_INT(merged->annotations[1].device, 0);
    ml_recording_free(merged);
    s.recording->annotations = NULL;
    s.recording->annotation_count = 0;
    sample_end(&s);
}

static void
test_what_cannot_be_merged(void)
{
    static sample zero, one;
    ml_merge *merge;
    ml_recording *merged;
    CHECK_INT(ml_merge_new(&merge), 0);
    CHECK_INT(ml_merge_finish(merge, &merged), ML_EINVALID);
    build(&zero, 0, MIB);
    build(&one, 1, MIB);
    memcpy(one.recording->source, "cpu", 4);
    CHECK_INT(ml_merge_add(merge, zero.recording, "zero", -1), 0);
    CHECK_INT(ml_merge_add(merge, one.recording, "one", -1), ML_EINVALID);
    ml_merge_free(merge);
    /* Ranks are bounded as devices are: setting clocks takes time for each two hosts. */
    ml_recording *empty;
    CHECK_INT(ml_recording_new(&empty), 0);
    CHECK_INT(ml_merge_new(&merge), 0);
    int result = 0;
    int ranks = 0;
    while (result == 0 && ranks < 5000) {
        result = ml_merge_add(merge, empty, "empty", ranks++);
    }
    CHECK_INT(result, ML_EFULL);
    CHECK_INT(ranks, 4096 + 1);
    ml_merge_free(merge);
    ml_recording_free(empty);
    sample_end(&zero);
    sample_end(&one);
    ml_merge_free(NULL);
}

/* A recording that does not say whose it is has the rank that it is given, and one of no
 * rank comes last. */
static void
test_ranks_that_files_do_not_say(void)
{
    static sample s;
    ml_merge *merge;
    ml_recording *merged;
    sample_begin(&s);
    sample_event(&s, ML_ACTION_ALLOC, BASE, 512, 0);
    s.recording->rules.has_segments = 0;
    CHECK_INT(ml_merge_new(&merge), 0);
    CHECK_INT(ml_merge_add(merge, s.recording, "none", -1), 0);
    CHECK_INT(ml_merge_add(merge, s.recording, "five", 5), 0);
    CHECK_INT(ml_merge_finish(merge, &merged), 0);
    ml_merge_free(merge);
    CHECK_INT(ml_recording_validate(merged), 0);
    CHECK_INT(merged->ranks[0].rank, 5);
    CHECK_INT(merged->ranks[1].rank, -1);
    CHECK_UINT(merged->ranks[1].alignment, ML_ALIGNMENT_WALL);
    char name[64];
    ml_recording_device_name(merged, 1, name, sizeof(name));
    CHECK_STR(name, "none (cuda:0)");
    ml_recording_free(merged);
    sample_end(&s);
}

static void
test_no_memory(void)
{
    static sample zero, one;
    ml_annotation annotation = {.time = 5};
    build(&zero, 0, MIB);
    build(&one, 1, MIB / 2);
    zero.recording->annotations = &annotation;
    zero.recording->annotation_count = 1;
    ml_recording *merged = NULL;
    int result = ML_ENOMEM;
    long tries = 0;
    for (; result == ML_ENOMEM && budget_alive == 0 && tries < 300; tries++) {
        budget_begin(tries);
        result = merge_two(&zero, &one, &merged);
        if (result == 0) {
            ml_recording_free(merged);
        }
        budget_end();
    }
    CHECK_INT(result, 0);
    CHECK_INT(budget_alive, 0);
    CHECK(tries > 20);
    zero.recording->annotations = NULL;
    zero.recording->annotation_count = 0;
    sample_end(&zero);
    sample_end(&one);
}

static void
test_no_memory_for_a_process(void)
{
    int result = ML_ENOMEM;
    long tries = 0;
    ml_process process;
    ml_process_here(&process, (ml_process_place){0}, NULL);
    CHECK(process.pid != 0 && process.unix_ns != 0 && process.boot_ns != 0);
    for (; result == ML_ENOMEM && budget_alive == 0 && tries < 30; tries++) {
        ml_recording *recording;
        budget_begin(tries);
        result = ml_recording_new(&recording);
        if (result == 0) {
            result = ml_process_tell(&process, ML_RANK_CUT_OFF, recording);
            ml_recording_free(recording);
        }
        budget_end();
    }
    CHECK_INT(result, 0);
    CHECK_INT(budget_alive, 0);
}

/* The kernel's own text of the boot's id, and of a place that is not known nothing. */
static void
test_this_process(void)
{
    ml_process process;
    ml_recording *recording;
    ml_process_here(&process, (ml_process_place){.rank = 3}, NULL);
    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_INT(ml_process_tell(&process, ML_RANK_UNKNOWN, recording), 0);
    CHECK_INT(ml_recording_validate(recording), 0);
    CHECK_INT(recording->ranks[0].rank, -1);
    CHECK_INT(recording->ranks[0].local_rank, -1);
    char boot[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    CHECK(file == NULL || fgets(boot, sizeof(boot), file) != NULL);
    if (file != NULL) {
        fclose(file);
    }
    boot[strcspn(boot, "\n")] = '\0';
    ml_string told = recording->strings[recording->ranks[0].boot];
    CHECK_TEXT(told.bytes, told.length, boot);
    ml_recording_free(recording);
}

/* ---- Clocks ---- */

#define STEPS 40

/* A rank whose clock is AHEAD by so many ns; step K ends at K seconds, and JITTER of the
 * ends, from a generator of its own, ns at most. */
typedef struct clocked {
    ml_recording part;
    ml_note notes[STEPS];
} clocked;

static uint64_t
next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static void
be_clocked(clocked *c, size_t first, size_t count, int64_t ahead, int64_t jitter,
           uint64_t seed)
{
    *c = (clocked){0};
    c->part.notes = c->notes;
    for (size_t i = 0; i < count; i++) {
        int64_t off =
            (int64_t)(next_random(&seed) % (uint64_t)(2 * jitter + 1)) - jitter;
        c->notes[i] = (ml_note){
            .time = (uint64_t)((int64_t)(100 + first + i) * SECOND + ahead + off),
            .kind = ML_NOTE_STEP,
            .values = {first + i},
            .device = -1};
    }
    c->part.note_count = count;
}

static void
test_hosts_are_set_by_their_steps(void)
{
    static clocked c[4];
    const int64_t jitter = 2000000; /* 2 ms */
    for (uint64_t seed = 1; seed <= 50; seed++) {
        /* Ranks 1 and 3 are on a host whose clock is 250 ms behind; rank 2 on one an hour
         * ahead, recorded from step 10 on. */
        be_clocked(&c[0], 0, STEPS, 0, 0, 1);
        be_clocked(&c[1], 0, STEPS, -250000000, jitter, seed);
        be_clocked(&c[2], 10, STEPS - 10, 3600 * SECOND, jitter, seed + 100);
        be_clocked(&c[3], 0, STEPS, -250000000, jitter, seed + 200);
        ml_rank ranks[4];
        for (uint32_t i = 0; i < 4; i++) {
            ranks[i] =
                (ml_rank){.boot = i == 3 ? 2 : i + 1, .host = 9, .part = &c[i].part};
        }
        CHECK_INT(ml_align(ranks, 4), 0);
        CHECK_UINT(ranks[0].alignment, ML_ALIGNMENT_REFERENCE);
        const int64_t planted[4] = {0, -250000000, 3600 * SECOND, -250000000};
        for (size_t i = 1; i < 4; i++) {
            CHECK_UINT(ranks[i].alignment, ML_ALIGNMENT_STEPS);
            CHECK(llabs(ranks[i].offset - planted[i]) <= jitter);
            CHECK(ranks[i].bound > 0 && ranks[i].bound <= (uint64_t)(2 * jitter));
        }
        CHECK_INT(ranks[3].offset, ranks[1].offset);
        CHECK_UINT(ranks[1].common_steps, 2 * STEPS);
        CHECK_UINT(ranks[2].common_steps, STEPS - 10);
    }
}

/* Differences of 0, 1, ... 8 and one of 1000 ns: the median of ten is the fifth, and the
 * one in ten that is farthest does not count. */
static void
test_bounds_leave_out_one_in_ten(void)
{
    static clocked c[2];
    be_clocked(&c[0], 0, 10, 0, 0, 1);
    be_clocked(&c[1], 0, 10, 0, 0, 1);
    for (size_t i = 0; i < 10; i++) {
        c[1].notes[i].time += i == 9 ? 1000 : i;
    }
    ml_rank ranks[2] = {{.boot = 1, .part = &c[0].part},
                        {.boot = 2, .part = &c[1].part}};
    CHECK_INT(ml_align(ranks, 2), 0);
    CHECK_INT(ranks[1].offset, 4);
    CHECK_UINT(ranks[1].bound, 4);
}

static void
test_too_few_steps_and_names_of_hosts(void)
{
    static clocked c[4];
    be_clocked(&c[0], 0, 20, 0, 0, 1);
    be_clocked(&c[1], 18, 20, 5, 0, 1); /* two steps in common */
    be_clocked(&c[2], 0, 20, 5, 0, 1);
    be_clocked(&c[3], 0, 20, 5, 0, 1);
    ml_rank ranks[4] = {{.boot = 1, .host = 5, .part = &c[0].part},
                        {.boot = 2, .host = 6, .part = &c[1].part},
                        {.host = 5, .part = &c[2].part}, /* an older file */
                        {.part = &c[3].part}};           /* a stranger's */
    CHECK_INT(ml_align(ranks, 4), 0);
    CHECK_UINT(ranks[1].alignment, ML_ALIGNMENT_WALL);
    CHECK_UINT(ranks[1].bound, ML_NOTE_UNKNOWN);
    CHECK_INT(ranks[1].offset, 0);
    CHECK_UINT(ranks[2].alignment, ML_ALIGNMENT_HOST);
    CHECK_UINT(ranks[2].bound, ML_NOTE_UNKNOWN);
    CHECK_UINT(ranks[3].alignment, ML_ALIGNMENT_STEPS);
    CHECK_INT(ranks[3].offset, 5);
    /* None at all. */
    CHECK_INT(ml_align(ranks, 0), 0);
}

/* Times at the borders stay in their order. */
static void
test_times_at_the_borders(void)
{
    CHECK_UINT(ml_align_time(10, 3), 7);
    CHECK_UINT(ml_align_time(10, -3), 13);
    CHECK_UINT(ml_align_time(2, 3), 0);
    CHECK_UINT(ml_align_time(UINT64_MAX - 1, -3), UINT64_MAX);
    CHECK_UINT(ml_align_time(UINT64_MAX, INT64_MIN), UINT64_MAX);
    CHECK_UINT(ml_align_time(UINT64_MAX, INT64_MAX), UINT64_MAX - INT64_MAX);
}

int
main(void)
{
    RUN(test_two_ranks);
    RUN(test_what_is_written_is_read_again);
    RUN(test_devices_that_were_not_used);
    RUN(test_what_cannot_be_merged);
    RUN(test_ranks_that_files_do_not_say);
    RUN(test_no_memory);
    RUN(test_no_memory_for_a_process);
    RUN(test_this_process);
    RUN(test_hosts_are_set_by_their_steps);
    RUN(test_bounds_leave_out_one_in_ten);
    RUN(test_too_few_steps_and_names_of_hosts);
    RUN(test_times_at_the_borders);
    return TEST_RESULT();
}
