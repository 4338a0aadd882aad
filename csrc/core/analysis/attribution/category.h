/* Finds the category of an allocation: the purpose of its memory.
 *
 * The recording's tags come first, and are exact.  Exception: a block passed to a
 * module is INPUT only if it was allocated outside any module's call, pass and step.
 * All other rules follow from the events:
 *
 *   before the first event    BEFORE_RECORDING
 *   in torch.distributed      COMMUNICATION, except for a DTensor's operators
 *   in an optimizer's step    TEMPORARY, if freed before anything else allocates; else
 *                             OPTIMIZER_STATE (not exact)
 *   in a backward pass        TEMPORARY, if freed by the same pass; of these ACTIVATION,
 *                             if allocated by a checkpoint's module calls and freed by
 *                             the pass itself; GRADIENT, if it outlives the pass and
 *                             parameters are known (not exact)
 *   by backward() before it   TEMPORARY, the gradient the pass begins with, if freed
 *                             before the next forward; else GRADIENT (not exact)
 *   elsewhere                 OTHER, if allocated outside any forward and alive when one
 *                             begins; ACTIVATION instead, if the first pass since frees
 *                             it (neither is exact);
 *                             ACTIVATION, if freed by a pass, or if exactly one pass
 *                             began in its life and parameters are known;
 *                             TEMPORARY, if freed before the next pass began;
 *                             ACTIVATION, if kept by a forward that ran out of memory
 *                             (not exact)
 *
 * A block is WORKSPACE (not exact) if it has the size of a cuBLAS handle's workspace, lasts
 * or is cleared with others (workspace.h), and one of these holds: it would be GRADIENT; it saw more than one pass of
 * any thread; hardly any tensor has its size.  A block from before the first event needs
 * known parameters, too, and is one of the few that a stream can have (workspace.h).
 *
 * WORKSPACE instead of UNKNOWN is what cuDNN's dropout keeps, and a stream's first block
 * that a forward makes with the size of a cuBLASLt workspace.  That block lasts likewise,
 * and several passes began in its life.
 *
 * In a recording without autograd events the passes are those of stack_signs.h, and the
 * rules of estimate.h come first; then nothing is exact.
 *
 * All else is UNKNOWN, with a reason.  passes.h says what a backward pass is. */
#ifndef ML_CATEGORY_H
#define ML_CATEGORY_H

#include "analysis/attribution/cause.h"
#include "analysis/lifetimes/lifetimes.h"

/* Why a category is not known. */
#define ML_WHYS(XX) \
    XX(KNOWN, 0, "") \
    XX(PASSES, 1, "the recording does not say what a backward pass made") \
    XX(NO_PASS, 2, "no backward pass followed") \
    XX(SEVERAL, 3, "kept over several backward passes") \
    XX(OWNERS, 4, "kept over a backward pass, and parameters are not known") \
    XX(OUTLIVES, 5, "made by a backward pass that it outlives") \
    /* Replaces SEVERAL; set by answers/growth.h. */ \
    XX(GROWS, 6, "left behind by each step: it grows")

enum ml_why {
#define XX(name, number, text) ML_WHY_##name = (number),
    ML_WHYS(XX)
#undef XX
    ML_WHY_COUNT = 0 ML_WHYS(ML_NUMBERED_ONE)
};

typedef struct ml_verdict {
    uint8_t category; /* enum ml_category */
    uint8_t why;      /* enum ml_why */
    bool exact;       /* false: estimated */
} ml_verdict;

typedef struct ml_categories ml_categories;

/* CAUSES and LIFETIMES, those of DEVICE, are borrowed and outlive the categories.  0 or
 * ML_ENOMEM. */
int ml_categories_new(const ml_causes *causes, const ml_recording *recording,
                      size_t device, const ml_lifetimes *lifetimes,
                      ml_categories **out);
void ml_categories_free(ml_categories *categories); /* takes NULL */

ml_verdict ml_categories_judge(const ml_categories *categories, const ml_lifetime *life,
                               const ml_cause *cause);
/* Whether LIFE, of an event, is like what a library has for one operation; or lasts and is like what
 * it keeps, by its size and as the first of it, where nothing else is known of it: without backward
 * passes a recording tells no more. */
bool ml_categories_like_workspace(const ml_categories *categories,
                                  const ml_lifetime *life);

/* Sets CAUSE's module to the owner's, if LIFE and VERDICT tell it: the owner says more
 * than the call that made the block. */
void ml_cause_name_owner(ml_cause *cause, const ml_lifetime *life,
                         const ml_verdict *verdict);

const char *ml_why_text(unsigned why); /* "" for an unknown one */

#endif
