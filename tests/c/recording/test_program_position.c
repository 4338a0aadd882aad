/* What notes come to: the step and the phase at a time, and the annotations of torch's
 * schema.  Every expected value is read off the notes that stand above it. */
#include <string.h>

#include "budget.h"
#include "recording/annotations.h"
#include "recording/program_position.h"
#include "test.h"

/* Names are one letter. */
static int
add_name(ml_recording *recording, char letter, uint32_t *id)
{
    return ml_recording_add_string(recording, &letter, 1, id);
}

static ml_recording *
recording_of(const ml_note *notes, const char *letters, size_t count)
{
    ml_recording *recording = NULL;
    if (ml_recording_new(&recording) != 0) {
        return NULL;
    }
    recording->notes = ml_alloc_zeroed(count, sizeof(*notes));
    recording->note_count = count;
    for (size_t i = 0; i < count; i++) {
        recording->notes[i] = notes[i];
        if (letters[i] != ' ' &&
            add_name(recording, letters[i], &recording->notes[i].name) != 0) {
            return NULL;
        }
    }
    return recording;
}

#define BEGIN(ns, n) \
    { \
        .time = (ns), .kind = ML_NOTE_PHASE_BEGIN, .device = -1, .values = { n } \
    }
#define END(ns, n) \
    { \
        .time = (ns), .kind = ML_NOTE_PHASE_END, .device = -1, .values = { n } \
    }
#define STEP(ns, n) \
    { \
        .time = (ns), .kind = ML_NOTE_STEP, .device = -1, .values = { n } \
    }
#define MARK(ns) \
    { \
        .time = (ns), .kind = ML_NOTE_MARK, .device = -1 \
    }
#define ENTER(ns) \
    { \
        .time = (ns), .kind = ML_NOTE_REGION_BEGIN, .device = -1 \
    }
#define LEAVE(ns) \
    { \
        .time = (ns), .kind = ML_NOTE_REGION_END, .device = -1 \
    }

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The step, and the phase's letter or '-', as in "0a". */
static const char *
at(const ml_recording *recording, uint64_t time)
{
    static char text[8];
    ml_program_position moment;
    if (ml_program_position_at(recording, time, &moment) != 0) {
        return "error";
    }
    char phase = '-';
    if (moment.in_phase) {
        phase = moment.phase != 0 ? recording->strings[moment.phase].bytes[0] : '?';
    }
    snprintf(text, sizeof(text), "%c%c",
             moment.has_steps ? (char)('0' + moment.step) : '-', phase);
    return text;
}

static void
test_steps_and_phases(void)
{
    static const ml_note notes[] = {BEGIN(10, 1), STEP(20, 0), BEGIN(30, 2),
                                    END(40, 2),   STEP(50, 1), END(60, 1)};
    ml_recording *recording = recording_of(notes, "a bb a", COUNT(notes));
    CHECK(recording != NULL);
    CHECK_STR(at(recording, 9), "0-");
    CHECK_STR(at(recording, 10), "0a");
    CHECK_STR(at(recording, 19), "0a");
    CHECK_STR(at(recording, 20), "1a");
    CHECK_STR(at(recording, 39), "1b");
    CHECK_STR(at(recording, 40), "1a");
    CHECK_STR(at(recording, 50), "2a");
    CHECK_STR(at(recording, 99), "2-");
    ml_recording_free(recording);
}

static void
test_without_notes(void)
{
    ml_recording *recording = NULL;
    CHECK_INT(ml_recording_new(&recording), 0);
    CHECK_STR(at(recording, 5), "--");
    CHECK_INT(ml_annotations_add_notes(recording), 0);
    CHECK_INT(recording->annotation_count, 0);
    ml_recording_free(recording);
}

/* Two phases were open before the notes begin, and steps 0 to 6 are lost. */
static void
test_what_began_before(void)
{
    static const ml_note notes[] = {END(10, 8), STEP(15, 7), END(20, 7), END(30, 8)};
    ml_recording *recording = recording_of(notes, "i oi", COUNT(notes));
    CHECK(recording != NULL);
    CHECK_STR(at(recording, 5), "7i");
    CHECK_STR(at(recording, 12), "7o");
    CHECK_STR(at(recording, 16), "8o");
    /* The second end of a phase ends nothing: a file may say anything. */
    CHECK_STR(at(recording, 20), "8i");
    CHECK_STR(at(recording, 30), "8-");
    ml_recording_free(recording);
}

/* Threads and generators: phases end in another order than they began. */
static void
test_phases_that_overlap(void)
{
    static const ml_note notes[] = {BEGIN(10, 1), BEGIN(20, 2), END(30, 1), END(40, 2)};
    ml_recording *recording = recording_of(notes, "abab", COUNT(notes));
    CHECK(recording != NULL);
    CHECK_STR(at(recording, 15), "-a");
    CHECK_STR(at(recording, 25), "-b");
    CHECK_STR(at(recording, 35), "-b");
    CHECK_STR(at(recording, 45), "--");
    ml_recording_free(recording);
}

/* A file may say anything.  Each note is looked at once: were the open phases
 * searched for each end, this would take minutes. */
static void
test_phases_without_end_and_ends_without_phase(void)
{
    enum {
        MANY = 300000
    };
    ml_recording *recording = NULL;
    CHECK_INT(ml_recording_new(&recording), 0);
    recording->notes = ml_alloc_zeroed(3 * MANY, sizeof(ml_note));
    CHECK(recording->notes != NULL);
    /* Many begin, as many others end, then the first end in the order of their
     * begin. */
    for (uint64_t i = 0; i < 3 * MANY; i++) {
        recording->notes[i] = (ml_note){
            .time = i,
            .kind = i < MANY ? ML_NOTE_PHASE_BEGIN : ML_NOTE_PHASE_END,
            .device = -1,
            .values = {i < 2 * MANY ? i : i - 2 * MANY},
        };
    }
    recording->note_count = 3 * MANY;
    uint32_t last, early;
    CHECK_INT(add_name(recording, 'l', &last), 0);
    CHECK_INT(add_name(recording, 'e', &early), 0);
    recording->notes[MANY - 1].name = last;
    recording->notes[MANY].name = early;
    CHECK_STR(at(recording, 0), "-?");
    CHECK_STR(at(recording, MANY), "-l");
    CHECK_STR(at(recording, 3 * MANY - 2), "-l");
    /* All that began has ended, and so have those that were open from the start. */
    CHECK_STR(at(recording, 3 * MANY - 1), "--");
    recording->notes[0].kind = ML_NOTE_MARK;
    CHECK_STR(at(recording, 0), "-e");
    ml_recording_free(recording);
}

/* START as '(', END as ')', torch's own in the same list as "(x@device". */
static const char *
annotations(const ml_recording *recording)
{
    static char text[256];
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < recording->annotation_count; i++) {
        const ml_annotation *one = &recording->annotations[i];
        length += (size_t)snprintf(
            text + length, sizeof(text) - length, "%s%c%c%d %llu", i > 0 ? ", " : "",
            one->end ? ')' : '(', recording->strings[one->name].bytes[0], one->device,
            (unsigned long long)one->time);
    }
    return text;
}

static int
add_torchs(ml_recording *recording, uint64_t time, char letter, uint8_t end)
{
    size_t count = recording->annotation_count;
    recording->annotations =
        ml_realloc(recording->annotations, (count + 1) * sizeof(ml_annotation));
    recording->annotations[count] =
        (ml_annotation){.time = time, .device = 1, .end = end};
    recording->annotation_count++;
    return add_name(recording, letter, &recording->annotations[count].name);
}

static void
test_annotations_in_order(void)
{
    static const ml_note notes[] = {BEGIN(10, 1),
                                    ENTER(20),
                                    STEP(25, 0),
                                    LEAVE(30),
                                    MARK(40),
                                    END(50, 1),
                                    {.time = 60, .kind = ML_NOTE_GPU}};
    ml_recording *recording = recording_of(notes, "pr rmp ", COUNT(notes));
    CHECK(recording != NULL);
    CHECK_INT(ml_annotations_add_notes(recording), 0);
    CHECK_STR(annotations(recording), "(p0 10, (r0 20, )r0 30, (m0 40, )m0 40, )p0 50");
    CHECK_INT(ml_recording_validate(recording), 0);
    ml_recording_free(recording);
}

#define MS 1000000ull

/* torch noted the regions too, but the first of each name, which came before it
 * began. */
static void
test_regions_that_torch_noted_too(void)
{
    static const ml_note notes[] = {ENTER(100), LEAVE(200), MARK(250),
                                    ENTER(300), LEAVE(400), ENTER(200 * MS)};
    ml_recording *recording = recording_of(notes, "rrmrrs", COUNT(notes));
    CHECK(recording != NULL);
    CHECK_INT(add_torchs(recording, 150, 'x', 0), 0);
    CHECK_INT(add_torchs(recording, 303, 'r', 0), 0);
    CHECK_INT(add_torchs(recording, 403, 'r', 1), 0);
    /* Too far from ours to be the same. */
    CHECK_INT(add_torchs(recording, 99 * MS, 's', 0), 0);
    CHECK_INT(ml_annotations_add_notes(recording), 0);
    CHECK_STR(annotations(recording),
              "(r0 100, (x1 150, )r0 200, (m0 250, )m0 250, (r1 303, )r1 403, "
              "(s1 99000000, (s0 200000000");
    ml_recording_free(recording);
}

/* The thread waited for a processor between torch's callback and ours, and torch
 * measured its clock 25 ms off: regions of 10 ms whose nearest is another one's,
 * each there once. */
static void
test_regions_nearer_to_another_than_to_their_own(void)
{
    static const ml_note notes[] = {ENTER(100 * MS), LEAVE(110 * MS), ENTER(110 * MS),
                                    LEAVE(120 * MS), ENTER(134 * MS), LEAVE(136 * MS)};
    ml_recording *recording = recording_of(notes, "rrrrrr", COUNT(notes));
    CHECK(recording != NULL);
    CHECK_INT(add_torchs(recording, 75 * MS, 'r', 0), 0);
    CHECK_INT(add_torchs(recording, 85 * MS, 'r', 1), 0);
    CHECK_INT(add_torchs(recording, 85 * MS, 'r', 0), 0);
    CHECK_INT(add_torchs(recording, 95 * MS, 'r', 1), 0);
    CHECK_INT(add_torchs(recording, 95 * MS, 'r', 0), 0);
    CHECK_INT(add_torchs(recording, 105 * MS, 'r', 1), 0);
    CHECK_INT(ml_annotations_add_notes(recording), 0);
    CHECK_STR(annotations(recording),
              "(r1 75000000, )r1 85000000, (r1 85000000, )r1 95000000, (r1 95000000, "
              ")r1 105000000");
    ml_recording_free(recording);
}

static void
test_every_allocation_may_fail(void)
{
    static const ml_note notes[] = {BEGIN(1, 8), END(2, 8), END(3, 9)};
    int failures = 0;
    for (long budget = 0;; budget++) {
        ml_recording *recording = recording_of(notes, "aab", COUNT(notes));
        CHECK(recording != NULL);
        CHECK_INT(add_torchs(recording, 1, 'x', 0), 0);
        ml_program_position moment;
        budget_begin(budget);
        int told = ml_program_position_at(recording, 2, &moment);
        int added = told == 0 ? ml_annotations_add_notes(recording) : told;
        budget_end();
        CHECK_STR(annotations(recording),
                  added == 0 ? "(x1 1, (a0 1, )a0 2, )b0 3" : "(x1 1");
        ml_recording_free(recording);
        if (added == 0) {
            break;
        }
        CHECK_INT(added, ML_ENOMEM);
        failures++;
    }
    /* Three for each of two tables of phases, two for the annotations. */
    CHECK_INT(failures, 8);
}

int
main(void)
{
    RUN(test_steps_and_phases);
    RUN(test_without_notes);
    RUN(test_what_began_before);
    RUN(test_phases_that_overlap);
    RUN(test_phases_without_end_and_ends_without_phase);
    RUN(test_annotations_in_order);
    RUN(test_regions_that_torch_noted_too);
    RUN(test_regions_nearer_to_another_than_to_their_own);
    RUN(test_every_allocation_may_fail);
    return TEST_RESULT();
}
