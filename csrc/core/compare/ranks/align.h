/* Aligns the clocks of ranks with that of the first.
 *
 * Owns the rules.  Ranks of one boot of one kernel, or where that is not known of one host
 * by its name, share a clock: nothing is moved, and the bound is how far apart the two
 * tell one moment, as far as they were asked.  A host is set to that of the first rank by
 * the ends of training steps, which data-parallel ranks reach together: the offset is the
 * median of the differences between ends of equal number, and nine in ten of them lie
 * within the bound around it.  With fewer than ML_ALIGN_STEPS of them its own clock has to
 * do, and there is no bound.
 *
 * All times of a rank move by the same amount, so its order stays. */
#ifndef ML_ALIGN_H
#define ML_ALIGN_H

#include "recording/recording.h"

/* Ends of steps that it takes to set a clock by. */
#define ML_ALIGN_STEPS 3

/* Fills in alignment, offset, bound and common_steps of COUNT RANKS, from the notes of
 * their parts; the first is the reference.  Equal texts have equal ids.  0 or ML_ENOMEM. */
int ml_align(ml_rank *ranks, size_t count);

/* TIME of a rank whose clock is OFFSET ahead; what no time can be stays at the border. */
uint64_t ml_align_time(uint64_t time, int64_t offset);

#endif
