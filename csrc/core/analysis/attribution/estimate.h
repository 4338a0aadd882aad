/* What lifetimes and sizes say of a device's blocks where the recording has nothing of
 * autograd and no owners: torch's own snapshots.
 *
 * Owns rules that many programs keep and some break: what follows from them is estimated.
 *
 *   trained sizes    those of gradients: blocks that a backward pass makes and leaves, or
 *                    that zero_grad() frees.  A parameter has the size of its gradient, as
 *                    the optimizer's state has.
 *   sites of inputs  stacks whose first block was made after a pass or step and before the
 *                    next call of a module
 *   earlier blocks   those from before the first event, which mostly have no stack: what
 *                    zero_grad() frees, GRADIENT; what a pass frees first, ACTIVATION; of
 *                    those that stay and have a trained size as many as there are gradients
 *                    of it, the oldest, PARAMETER, as many again and again OPTIMIZER_STATE;
 *                    others that stay, PARAMETER that is not trained, where nothing is
 *                    trained or the parameters that are were found */
#ifndef ML_ESTIMATE_H
#define ML_ESTIMATE_H

#include "analysis/attribution/cause.h"
#include "analysis/lifetimes/lifetimes.h"

typedef struct ml_estimate ml_estimate;

/* Arguments are read only here.  *OUT is NULL if CAUSES have no signs.  0 or
 * ML_ENOMEM. */
int ml_estimate_new(const ml_causes *causes, const ml_recording *recording,
                    size_t device, const ml_lifetimes *lifetimes, ml_estimate **out);
void ml_estimate_free(ml_estimate *estimate); /* takes NULL */

/* Whether blocks of SIZE requested bytes may be trained parameters. */
bool ml_estimate_is_trained(const ml_estimate *estimate, uint64_t size);
bool ml_estimate_is_input(const ml_estimate *estimate, uint32_t stack);
/* Whether a block freed at REQUESTED, a moment or ML_NEVER, lasts to the end of all
 * forwards, passes and steps. */
bool ml_estimate_lasts(const ml_estimate *estimate, uint32_t requested);
/* The enum ml_category of block INDEX among those from before the first event;
 * BEFORE_RECORDING: none of these. */
unsigned ml_estimate_earlier(const ml_estimate *estimate, uint64_t index);

#endif
