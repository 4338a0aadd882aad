/* The rules that find wastes, one file a family.
 *
 * Each rule looks at a case and proposes edits of demands.  A trial decides whether a
 * proposal lowers a peak, so a rule may propose without being sure.  Edits cover the
 * whole recording, because the next lower peak may have the same waste.  Rules return 0
 * or ML_ENOMEM. */
#ifndef ML_ADVICE_RULES_H
#define ML_ADVICE_RULES_H

#include "lab/advice/advice_case.h"

/* By string: a module with that path has a gradient that an optimizer read, or state.
 * The caller frees it with ml_free; NULL: no memory. */
bool *ml_advice_trained(const ml_advice_case *it);

/* By demand: a gradient that was live during an optimizer's step and that no optimizer
 * read. The caller frees it with ml_free; NULL: no memory. */
bool *ml_advice_frozen(const ml_advice_case *it);

/* By demand: steps that ended before it was freed left it, of a line that grows.  The caller
 * frees it with ml_free; NULL: no memory. */
bool *ml_advice_left_by_steps(const ml_advice_case *it);

/* Gradients that live through the next forward. */
int ml_advise_gradients(const ml_advice_case *it, ml_proposals *out);
/* Blocks that lines leave behind step after step. */
int ml_advise_steps_kept(const ml_advice_case *it, ml_proposals *out);
/* Blocks that are held after their last use. */
int ml_advise_frees(const ml_advice_case *it, ml_proposals *out);
/* Activations that checkpointing would recompute. */
int ml_advise_checkpoint(const ml_advice_case *it, ml_proposals *out);
/* Settings of the allocator, and lines whose blocks keep segments. */
int ml_advise_cache(const ml_advice_case *it, ml_proposals *out);
/* Graphs that no backward pass frees. */
int ml_advise_graph(const ml_advice_case *it, ml_proposals *out);
/* An optimizer's temporaries. */
int ml_advise_optimizer(const ml_advice_case *it, ml_proposals *out);
/* Gradients that no optimizer reads, and graphs that lead only to them. */
int ml_advise_frozen(const ml_advice_case *it, ml_proposals *out);
/* Copies of the parameters, and blocks that grow by being copied. */
int ml_advise_copies(const ml_advice_case *it, ml_proposals *out);
/* Graphs of several micro-batches that one backward pass runs. */
int ml_advise_micro(const ml_advice_case *it, ml_proposals *out);
/* Logits in float32, and of all tokens at once. */
int ml_advise_loss(const ml_advice_case *it, ml_proposals *out);
/* Data that lie on the GPU for the whole run. */
int ml_advise_inputs(const ml_advice_case *it, ml_proposals *out);
/* Workspaces of cuBLAS that are most of the peak. */
int ml_advise_workspaces(const ml_advice_case *it, ml_proposals *out);
/* Results that evaluations keep. */
int ml_advise_results(const ml_advice_case *it, ml_proposals *out);
/* A smaller batch in evaluations that make the peak. */
int ml_advise_evaluation(const ml_advice_case *it, ml_proposals *out);

#endif
