/* Estimates the categories of a device's blocks from their lifetimes and sizes, for a
 * recording without autograd events and owners: torch's own snapshots.
 *
 * Owns rules that many programs keep and some break, so the result is an estimate:
 *
 *   trained sizes    The sizes of gradients: blocks that a backward pass allocates and
 *                    leaves, or that zero_grad() frees; but no workspaces, as far as
 *                    ml_workspaces_keep tells.  A parameter has the size of its
 *                    gradient, and so has each of its optimizer states.
 *   sites of inputs  Stacks whose first block was allocated after a pass or step and
 *                    before the next call of a module.
 *   earlier blocks   Those from before the first event, most of which have no stack.
 *                    What zero_grad() frees is GRADIENT; what a pass frees first is
 *                    ACTIVATION.  Of the blocks of a trained size that stay, the oldest
 *                    are PARAMETER, as many as there are gradients of the size; each
 *                    further such number is OPTIMIZER_STATE; what is over of a
 *                    workspace's size is WORKSPACE.  The others that stay are
 *                    PARAMETER, not trained, if nothing is trained or the trained
 *                    parameters were found. */
#ifndef ML_ESTIMATE_H
#define ML_ESTIMATE_H

#include "analysis/attribution/cause.h"
#include "analysis/attribution/workspace.h"
#include "analysis/lifetimes/lifetimes.h"

typedef struct ml_estimate ml_estimate;

/* Arguments are read only here.  *OUT is NULL if CAUSES have no signs.  0 or
 * ML_ENOMEM. */
int ml_estimate_new(const ml_causes *causes, const ml_recording *recording,
                    size_t device, const ml_lifetimes *lifetimes,
                    const ml_workspaces *workspaces, ml_estimate **out);
void ml_estimate_free(ml_estimate *estimate); /* takes NULL */

/* Whether blocks of SIZE requested bytes may be trained parameters. */
bool ml_estimate_is_trained(const ml_estimate *estimate, uint64_t size);
bool ml_estimate_is_input(const ml_estimate *estimate, uint32_t stack);
/* The enum ml_category of block INDEX among those from before the first event;
 * BEFORE_RECORDING: none of these. */
unsigned ml_estimate_earlier(const ml_estimate *estimate, uint64_t index);

#endif
