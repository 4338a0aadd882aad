/* Aligns the clocks of ranks with that of the first.
 *
 * Owns the rules.  Ranks of one boot of one kernel, or else of one host by name, share
 * a clock: nothing is moved, and the bound is the measured difference of their times
 * for one moment.  Other hosts are aligned with the first rank by the ends of training
 * steps, which data-parallel ranks reach together.  The offset is the median of the
 * differences between ends of equal number, and the bound contains nine in ten of them.
 * With fewer than ML_ALIGN_STEPS, the host keeps its own clock, without a bound.
 *
 * All times of a rank move by the same amount, so its order stays. */
#ifndef ML_ALIGN_H
#define ML_ALIGN_H

#include "recording/recording.h"

/* Fewest ends of steps for an alignment. */
#define ML_ALIGN_STEPS 3

/* Fills in alignment, offset, bound and common_steps of COUNT RANKS, from the notes of
 * their parts; the first is the reference.  Equal texts have equal ids.  0 or ML_ENOMEM. */
int ml_align(ml_rank *ranks, size_t count);

/* TIME of a rank whose clock is OFFSET ahead, saturated. */
uint64_t ml_align_time(uint64_t time, int64_t offset);

#endif
