/* The account of a whole GPU: every line is worked out from the samples that stand above
 * it, in small numbers. */
#include <string.h>

#include "base/base.h"
#include "gpu/gpu_account.h"
#include "test.h"

#define NONE ML_NOTE_UNKNOWN
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* used, of 1000; of this process; of others; torch's reserved */
#define GPU(ns, used, own, others, reserved) \
    { \
        .time = (ns), .kind = ML_NOTE_GPU, .device = 0, .values = { \
            (used), \
            1000, \
            (own), \
            (others), \
            6, \
            (reserved), \
            0 \
        } \
    }
#define STEP(ns) \
    { \
        .time = (ns), .kind = ML_NOTE_STEP, .device = -1 \
    }
#define HOST(ns, resident) \
    { \
        .time = (ns), .kind = ML_NOTE_HOST, .device = -1, .values = { resident } \
    }

/* Nothing of this process at first; a context of 50 in the first step, 20 more later. */
static const ml_note training[] = {
    GPU(10, 107, 0, 100, 0),     HOST(11, 5), STEP(20),
    GPU(21, 408, 300, 100, 250), STEP(30),    GPU(31, 429, 320, 100, 250),
    GPU(40, 445, 320, 110, 250),
};

static const ml_totals torch_then = {.allocated = 120, .active = 150, .reserved = 250};

static ml_recording *
recording_of(const ml_note *notes, size_t count)
{
    ml_recording *recording = NULL;
    if (ml_recording_new(&recording) != 0) {
        return NULL;
    }
    recording->notes = ml_alloc_zeroed(count, sizeof(*notes));
    memcpy(recording->notes, notes, count * sizeof(*notes));
    recording->note_count = count;
    return recording;
}

static bool
account_of(const ml_note *notes, size_t count, uint64_t lost, uint64_t time,
           const ml_totals *torch, ml_gpu_account *out)
{
    ml_recording *recording = recording_of(notes, count);
    uint32_t reason = 0;
    recording->lost_notes = lost;
    bool found = ml_gpu_account_at(recording, 0, time, torch, out, &reason);
    ml_recording_free(recording);
    return found;
}

#define CHECK_LINE(account, line, want) \
    do { \
        CHECK((account).known[ML_LINE_##line]); \
        CHECK_INT((account).bytes[ML_LINE_##line], want); \
    } while (0)

static int64_t
sum(const ml_gpu_account *account)
{
    int64_t bytes = 0;
    for (unsigned i = 0; i < ML_LINE_COUNT; i++) {
        bytes += account->bytes[i];
    }
    return bytes;
}

static void
test_lines(void)
{
    ml_gpu_account account;
    CHECK(account_of(training, COUNT(training), 0, 40, &torch_then, &account));
    CHECK_LINE(account, torch_allocated, 120);
    CHECK_LINE(account, torch_pending_free, 30);
    CHECK_LINE(account, torch_cached, 100);
    CHECK_LINE(account, outside_at_start, 0);
    CHECK_LINE(account, outside_first_step, 50);
    CHECK_LINE(account, outside_later, 20);
    CHECK_LINE(account, other_processes, 110);
    /* 408 - 300 - 100 when this process was first seen there. */
    CHECK_LINE(account, driver, 8);
    CHECK_LINE(account, unknown, 7);
    CHECK_INT(account.used, 445);
    CHECK_INT(sum(&account), 445);
    CHECK_INT(account.moved, 0);
    CHECK_INT(account.after, 0);
    CHECK_UINT(account.total, 1000);
    CHECK_UINT(account.reserve, 6);
    CHECK_UINT(account.usable, 994);
}

/* An H200's own figures, by NVML 13.0; cudaMemGetInfo() gave 150109880320.  An old driver
 * does not tell the reserve. */
static void
test_what_processes_can_have(void)
{
    ml_note sample = {.kind = ML_NOTE_GPU,
                      .values = {0, 150754820096, 0, 0, 644939776}};
    CHECK_UINT(ml_gpu_account_usable(&sample), 150109880320);
    sample.values[4] = NONE;
    CHECK_UINT(ml_gpu_account_usable(&sample), 150754820096);
    sample.values[1] = NONE;
    CHECK_UINT(ml_gpu_account_usable(&sample), NONE);
}

static void
test_the_sample_at_or_after(void)
{
    ml_gpu_account account;
    CHECK(account_of(training, COUNT(training), 0, 22, &torch_then, &account));
    CHECK_INT(account.after, 31 - 22);
    CHECK_INT(account.used, 429);
    CHECK_LINE(account, unknown, 1);
}

static void
test_else_the_last_before(void)
{
    ml_gpu_account account;
    CHECK(account_of(training, COUNT(training), 0, 90, &torch_then, &account));
    CHECK_INT(account.after, 40 - 90);
    CHECK_INT(account.used, 445);
}

/* Torch gave back 30 between the instant and the sample. */
static void
test_torch_moved_in_between(void)
{
    ml_gpu_account account;
    ml_totals torch = {.allocated = 260, .active = 260, .reserved = 280};
    CHECK(account_of(training, COUNT(training), 0, 20, &torch, &account));
    CHECK_INT(account.moved, 30);
    CHECK_INT(account.used, 408 + 30);
    CHECK_INT(sum(&account), 438);
    CHECK_LINE(account, torch_cached, 20);
    CHECK_LINE(account, outside_first_step, 50);
    CHECK_LINE(account, outside_later, 0);
    CHECK_LINE(account, unknown, 0);
}

/* The device says less than its parts. */
static void
test_unknown_is_signed(void)
{
    static const ml_note notes[] = {
        GPU(10, 408, 300, 100, 250),
        GPU(20, 400, 300, 100, 250),
    };
    ml_gpu_account account;
    CHECK(account_of(notes, COUNT(notes), 0, 20, &torch_then, &account));
    CHECK_LINE(account, driver, 8);
    CHECK_LINE(account, unknown, -8);
    CHECK_INT(account.used, 400);
}

/* A library was unloaded: what is left came first. */
static void
test_outside_that_went(void)
{
    static const ml_note notes[] = {
        GPU(10, 158, 50, 100, 0), STEP(20),
        GPU(21, 188, 80, 100, 0), GPU(30, 168, 60, 100, 0),
        GPU(40, 148, 40, 100, 0),
    };
    ml_gpu_account account;
    ml_totals none = {0};
    CHECK(account_of(notes, COUNT(notes), 0, 30, &none, &account));
    CHECK_LINE(account, outside_at_start, 50);
    CHECK_LINE(account, outside_first_step, 10);
    CHECK_LINE(account, outside_later, 0);
    CHECK(account_of(notes, COUNT(notes), 0, 40, &none, &account));
    CHECK_LINE(account, outside_at_start, 40);
    CHECK_LINE(account, outside_first_step, 0);
    CHECK_LINE(account, outside_later, 0);
    CHECK_INT(account.used, 148);
}

static void
test_process_not_told(void)
{
    static const ml_note notes[] = {GPU(10, 408, NONE, NONE, 250)};
    ml_gpu_account account;
    CHECK(account_of(notes, COUNT(notes), 0, 10, &torch_then, &account));
    CHECK(!account.known[ML_LINE_outside_at_start]);
    CHECK(!account.known[ML_LINE_outside_first_step]);
    CHECK(!account.known[ML_LINE_outside_later]);
    CHECK(!account.known[ML_LINE_other_processes]);
    CHECK(!account.known[ML_LINE_driver]);
    CHECK_LINE(account, unknown, 408 - 250);
    CHECK_INT(sum(&account), 408);
}

/* Without the first samples nobody knows what came when. */
static void
test_lost_notes(void)
{
    ml_gpu_account account;
    CHECK(account_of(training, COUNT(training), 3, 40, &torch_then, &account));
    CHECK(!account.known[ML_LINE_outside_at_start]);
    CHECK(!account.known[ML_LINE_outside_first_step]);
    CHECK_LINE(account, outside_later, 70);
    CHECK_INT(sum(&account), 445);
}

static void
test_no_sample(void)
{
    ml_recording *recording = NULL;
    ml_note absent = GPU(10, NONE, NONE, NONE, NONE);
    ml_gpu_account account;
    uint32_t reason = 0;
    recording = recording_of(&absent, 1);
    CHECK_INT(
        ml_recording_add_string(recording, "absent", 6, &recording->notes[0].name), 0);
    CHECK(!ml_gpu_account_at(recording, 0, 10, &torch_then, &account, &reason));
    CHECK_UINT(reason, recording->notes[0].name);
    CHECK(!ml_gpu_account_at(recording, 1, 10, &torch_then, &account, &reason));
    CHECK_UINT(reason, 0);
    CHECK(ml_gpu_account_host_at(recording, 10) == NULL);
    ml_recording_free(recording);
}

static void
test_host(void)
{
    ml_recording *recording = recording_of(training, COUNT(training));
    CHECK_UINT(ml_gpu_account_host_at(recording, 10)->values[0], 5);
    CHECK_UINT(ml_gpu_account_host_at(recording, 99)->time, 11);
    ml_recording_free(recording);
}

int
main(void)
{
    RUN(test_lines);
    RUN(test_what_processes_can_have);
    RUN(test_the_sample_at_or_after);
    RUN(test_else_the_last_before);
    RUN(test_torch_moved_in_between);
    RUN(test_unknown_is_signed);
    RUN(test_outside_that_went);
    RUN(test_process_not_told);
    RUN(test_lost_notes);
    RUN(test_no_sample);
    RUN(test_host);
    return TEST_RESULT();
}
