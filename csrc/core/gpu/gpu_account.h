/* The account of a whole GPU at an instant, from the samples among a recording's notes:
 * lines that sum to the device's used memory.
 *
 * Defines each line.  A function of notes and of torch's totals. */
#ifndef ML_GPU_ACCOUNT_H
#define ML_GPU_ACCOUNT_H

#include <stdbool.h>

#include "recording/recording.h"

/* name: meaning, in bytes.  The lines sum to ml_gpu_account.used, without unknown ones.
 * A process's memory outside torch is divided by the sample that first had it. */
#define ML_GPU_ACCOUNT_LINES(XX) \
    XX(torch_allocated) \
    XX(torch_pending_free) /* freed, but another stream may still use it */ \
    XX(torch_cached)       /* reserved, not in use */ \
    XX(outside_at_start)   /* the process's, outside torch, at the first sample */ \
    XX(outside_first_step) /* added after that, up to the end of the first step */ \
    XX(outside_later)      /* added later */ \
    XX(other_processes) \
    XX(driver)  /* of no process, when this one's context was first seen */ \
    XX(unknown) /* the rest */

enum ml_gpu_account_line {
#define XX(name) ML_LINE_##name,
    ML_GPU_ACCOUNT_LINES(XX)
#undef XX
    ML_LINE_COUNT
};

typedef struct ml_gpu_account {
    int64_t bytes[ML_LINE_COUNT]; /* 0 if unknown */
    bool known[ML_LINE_COUNT];
    int64_t used;   /* the sum of bytes */
    int64_t moved;  /* torch's change since the sample; negative: it gave memory back */
    uint64_t total; /* of the device; may be ML_NOTE_UNKNOWN, as the next two */
    uint64_t reserve; /* the driver's reserve, not in used */
    uint64_t usable;  /* see ml_gpu_account_usable */
    uint64_t time;    /* unix ns of the sample */
    int64_t after; /* ns from the instant to the sample; negative: before the instant */
} ml_gpu_account;

/* Samples of one device that define the lines, borrowed; NULL: none.  Without START,
 * the time of additions is unknown. */
typedef struct ml_gpu_account_marks {
    const ml_note *start; /* the first of all */
    const ml_note *step;  /* the first at the end of a step */
    /* the first with a non-zero figure of this process, and one of the others */
    const ml_note *context;
} ml_gpu_account_marks;

/* Adds SAMPLE, the next of its device, to MARKS; AT_STEP: a step had ended. */
void ml_gpu_account_mark(ml_gpu_account_marks *marks, const ml_note *sample,
                         bool at_step);
/* The account at SAMPLE, moved to an instant TIME with torch's totals TORCH. */
void ml_gpu_account_of(const ml_gpu_account_marks *marks, const ml_note *sample,
                       uint64_t time, const ml_totals *torch, ml_gpu_account *out);

/* Of DEVICE at TIME (unix ns), with torch's totals TORCH: by the first sample at or
 * after that time, else by the last before.  False: no sample; *REASON is the string
 * with the reason, or 0. */
bool ml_gpu_account_at(const ml_recording *recording, int device, uint64_t time,
                       const ml_totals *torch, ml_gpu_account *out, uint32_t *reason);
/* What processes can have of the device of SAMPLE, a GPU's note: its total without the
 * driver's reserve, which is the total of cudaMemGetInfo() and of torch.  Old drivers do
 * not tell the reserve: then the whole total.  ML_NOTE_UNKNOWN: not sampled. */
uint64_t ml_gpu_account_usable(const ml_note *sample);
/* The note of the host's memory, chosen the same way; NULL: none. */
const ml_note *ml_gpu_account_host_at(const ml_recording *recording, uint64_t time);

const char *ml_gpu_account_line_text(unsigned line);

#endif
