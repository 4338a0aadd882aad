/* Whether memory grew step by step before an out of memory; a part of oom.h.
 *
 * Keeps the lowest allocated bytes of each step.  A step ends at an ML_NOTE_STEP of the
 * program; in a recording without these, where a backward pass begins.  Between two
 * such ends memory falls to the bytes that outlive a step, without activations, however
 * long a sequence is.  So if the lowest bytes rise in every step, the program keeps
 * memory. */
#ifndef ML_OOM_GROWTH_H
#define ML_OOM_GROWTH_H

#include "analysis/answers/oom.h"

typedef struct ml_oom_floor {
    uint64_t bytes;
    uint64_t position; /* events before that instant */
} ml_oom_floor;

typedef struct ml_oom_steps {
    const ml_recording *recording; /* borrowed */
    size_t device;
    bool marked;
    size_t next_note;
    bool inside;          /* a backward pass */
    bool begun;           /* what was before the first end is no whole step */
    ml_oom_floor current; /* of the step under way */
    ml_oom_floor *floors; /* owned */
    size_t count;
    size_t capacity;
} ml_oom_steps;

void ml_oom_steps_init(ml_oom_steps *steps, const ml_recording *recording,
                       size_t device);
void ml_oom_steps_fini(ml_oom_steps *steps);
/* The event at POSITION is about to happen, with ALLOCATED bytes before it.  0 or
 * ML_ENOMEM. */
int ml_oom_steps_add(ml_oom_steps *steps, const ml_event *event, uint64_t position,
                     uint64_t allocated);
/* The growth over these steps, with ALLOCATED bytes live at the end.  0 or ML_E*. */
int ml_oom_steps_judge(const ml_oom_steps *steps, uint64_t allocated,
                       ml_oom_growth *out);

#endif
