/* The account of a whole GPU at an instant, from the samples among a recording's notes:
 * lines that add up to the device's used memory.
 *
 * Defines each line.  A function of notes and of torch's totals. */
#ifndef ML_GPU_ACCOUNT_H
#define ML_GPU_ACCOUNT_H

#include <stdbool.h>

#include "recording/recording.h"

/* name: what it is, in bytes.  They add up to ml_gpu_account.used, those not known left
 * out.  What a process holds outside torch is told apart by the sample that first had
 * it. */
#define ML_GPU_ACCOUNT_LINES(XX) \
    XX(torch_allocated) \
    XX(torch_pending_free) /* freed, but another stream has yet to be done with it */ \
    XX(torch_cached)       /* reserved, not in use */ \
    XX(outside_at_start)   /* of torch, in this process, at the first sample */ \
    XX(outside_first_step) /* came after that, up to the end of the first step */ \
    XX(outside_later)      /* came after that */ \
    XX(other_processes) \
    XX(driver)  /* of no process, when this one was first seen with a context */ \
    XX(unknown) /* the rest */

enum ml_gpu_account_line {
#define XX(name) ML_LINE_##name,
    ML_GPU_ACCOUNT_LINES(XX)
#undef XX
    ML_LINE_COUNT
};

typedef struct ml_gpu_account {
    int64_t bytes[ML_LINE_COUNT]; /* 0 where not known */
    bool known[ML_LINE_COUNT];
    int64_t used;   /* the sum of bytes */
    int64_t moved;  /* of which torch took since the sample, or gave back if negative */
    uint64_t total; /* of the device */
    uint64_t reserve; /* of it, kept by the driver from everybody, not in used; may be
                         ML_NOTE_UNKNOWN */
    uint64_t time;    /* unix ns of the sample */
    int64_t after;    /* ns from the instant to the sample; negative: it came before */
} ml_gpu_account;

/* Samples of one device that give the lines their meaning, borrowed; NULL: there was
 * none.  What came when cannot be told without START. */
typedef struct ml_gpu_account_marks {
    const ml_note *start;   /* the first of all */
    const ml_note *step;    /* the first at the end of a step */
    const ml_note *context; /* the first that has a figure of this process, not 0, and
                               one of the others */
} ml_gpu_account_marks;

/* Takes SAMPLE, the next of its device, into MARKS; AT_STEP: a step has ended by it. */
void ml_gpu_account_mark(ml_gpu_account_marks *marks, const ml_note *sample,
                         bool at_step);
/* The account at SAMPLE, moved to an instant at TIME at which torch's totals are TORCH. */
void ml_gpu_account_of(const ml_gpu_account_marks *marks, const ml_note *sample,
                       uint64_t time, const ml_totals *torch, ml_gpu_account *out);

/* Of DEVICE at TIME (unix ns), at which torch's totals are TORCH: by the first sample at
 * that time or after, else by the last before.  False where there is none; then *REASON
 * is the string that says why, 0 for nothing said. */
bool ml_gpu_account_at(const ml_recording *recording, int device, uint64_t time,
                       const ml_totals *torch, ml_gpu_account *out, uint32_t *reason);
/* The note of the host's memory, chosen likewise; NULL without one. */
const ml_note *ml_gpu_account_host_at(const ml_recording *recording, uint64_t time);

const char *ml_gpu_account_line_text(unsigned line);

#endif
