/* The rules that find wastes, one file a family.
 *
 * Each looks at a case and proposes what the program could have done instead, as edits of
 * demands; whether that lowers a peak is found by trial, so that a rule may propose what
 * it is not sure of.  An edit is for the whole recording, not for the peak alone: the
 * next lower peak may be of the same waste.  0 or ML_ENOMEM. */
#ifndef ML_ADVICE_RULES_H
#define ML_ADVICE_RULES_H

#include "lab/advice/advice_case.h"

/* By string: a module of that path has a gradient that an optimizer read, or state.  To be
 * freed; NULL without memory. */
bool *ml_advice_trained(const ml_advice_case *it);

/* By demand: a gradient that no optimizer read, though one made a step while it was there.
 * To be freed; NULL without memory. */
bool *ml_advice_frozen(const ml_advice_case *it);

/* Gradients that live on while the next forward runs, but of those. */
int ml_advise_gradients(const ml_advice_case *it, ml_proposals *out);
/* Blocks that are held after their last use. */
int ml_advise_frees(const ml_advice_case *it, ml_proposals *out);
/* Activations of modules that checkpointing would make anew. */
int ml_advise_checkpoint(const ml_advice_case *it, ml_proposals *out);
/* Settings of the allocator, and lines whose blocks keep segments. */
int ml_advise_cache(const ml_advice_case *it, ml_proposals *out);
/* Graphs that no backward pass frees. */
int ml_advise_graph(const ml_advice_case *it, ml_proposals *out);
/* An optimizer's temporaries, and gradients that no optimizer reads. */
int ml_advise_optimizer(const ml_advice_case *it, ml_proposals *out);
/* Copies of the parameters, and blocks that grow by being copied. */
int ml_advise_copies(const ml_advice_case *it, ml_proposals *out);
/* Logits in float32, and of all tokens at once. */
int ml_advise_loss(const ml_advice_case *it, ml_proposals *out);
/* Data that lie on the GPU for the whole run. */
int ml_advise_inputs(const ml_advice_case *it, ml_proposals *out);
/* Workspaces of cuBLAS that are most of the peak. */
int ml_advise_workspaces(const ml_advice_case *it, ml_proposals *out);
/* A smaller batch in evaluations that make the peak. */
int ml_advise_evaluation(const ml_advice_case *it, ml_proposals *out);

#endif
