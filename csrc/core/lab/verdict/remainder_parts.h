/* A remainder under construction.  The files that know its passes add demands to it. */
#ifndef ML_REMAINDER_PARTS_H
#define ML_REMAINDER_PARTS_H

#include "lab/verdict/remainder.h"

typedef struct ml_remainder_builder {
    const ml_advice_case *it;
    ml_remainder *out;
    size_t pass; /* event: the forward under way began */
    size_t now;  /* event of what is asked for next */
    size_t
        returned; /* demand of the remainder that the forward returned; 0: none of it */
    /* Events between which the last module made what checkpoints make again; the same:
     * nothing is. */
    size_t anew_from;
    size_t anew_until;
    bool much;     /* unknown amounts are assumed large */
    bool late;     /* ML_ASSUMED_LATE */
    bool casts;    /* the loss ends with a cast to float32 */
    bool apart;    /* what is added now is of a head or a loss */
    bool squares;  /* the backward pass of a loss that squares follows */
    uint8_t stage; /* enum ml_stage of the request that failed */
    /* As ML_NOTE_LOOP: each enum ml_loop_fact, and bytes. */
    uint8_t gradients_live;
    uint8_t output_lives;
    uint8_t loss;       /* enum ml_loop_loss, without ALONE */
    bool result_passes; /* it was ALONE */
    bool in_float32;    /* it was FLOAT32 */
    bool loss_inside;   /* the model makes its loss, before it returns */
    size_t forward_end; /* event; 0: the forward pass had ended before the failure */
    uint64_t outputs_living;
    uint64_t batch; /* of ML_NOTE_BATCH; 0: none */
    /* Of ML_NOTE_HEAD; 0: none. */
    uint64_t head_takes;
    uint64_t head_makes;
    uint64_t head_bytes;
    bool head_shared; /* no parameter of its own tells that it follows */
} ml_remainder_builder;

/* Adds a demand of LIKE's stream and pool at NOW; *INDEX, unless NULL, is its index.  0
 * or ML_ENOMEM. */
int ml_remainder_add(ml_remainder_builder *b, uint64_t bytes, size_t like, bool scales,
                     enum ml_remainder_kind kind, size_t *index);
void ml_remainder_free_at(ml_remainder_builder *b, size_t index, size_t event);

static inline bool
ml_remainder_is_kept(unsigned category)
{
    return category == ML_CATEGORY_PARAMETER || category == ML_CATEGORY_BUFFER ||
           category == ML_CATEGORY_OPTIMIZER_STATE ||
           category == ML_CATEGORY_WORKSPACE || category == ML_CATEGORY_COMMUNICATION;
}

/* What FACT says; what is not known is so where much is assumed. */
static inline bool
ml_remainder_holds(const ml_remainder_builder *b, uint8_t fact)
{
    return fact == ML_LOOP_UNKNOWN ? b->much : fact == ML_LOOP_YES;
}

/* Whether the loss is of KIND; one that is not known is of any where much is assumed. */
static inline bool
ml_remainder_has_loss(const ml_remainder_builder *b, enum ml_loop_loss kind)
{
    return b->loss == kind || (b->much && b->loss == ML_LOSS_UNKNOWN);
}

bool ml_remainder_is_live(const ml_remainder *out, size_t demand);
/* Whether demand I is a workspace that a library keeps, or may be: before a first backward pass
 * none is told from a tensor of its size. */
bool ml_remainder_is_workspace(const ml_remainder_builder *b, size_t i);

/* Whether one of NAMES is the innermost function on demand I's stack, or the file of
 * torch.nn.modules that it is in. */
bool ml_remainder_is_of(const ml_remainder_builder *b, size_t i,
                        const char *const *names, size_t count);

static inline ml_string
ml_remainder_module_at(const ml_remainder_builder *b, size_t i)
{
    return b->it->recording->strings[ml_explained_of(b->it, i)->cause.module];
}

static inline bool
ml_remainder_is_parameter(const ml_remainder_builder *b, size_t i)
{
    return ml_explained_of(b->it, i)->verdict.category == ML_CATEGORY_PARAMETER;
}

static inline bool
ml_remainder_is_of_pass(const ml_remainder_builder *b, size_t i)
{
    const ml_demand *demand = &b->out->workload->demands[i];
    return demand->bytes != 0 && demand->born != ML_NO_EVENT &&
           demand->born >= b->pass && demand->born < b->out->failed &&
           !ml_remainder_is_parameter(b, i);
}

/* Whether the pass cast weights to 16 bits: a loss then uses float32. */
bool ml_remainder_is_autocast(const ml_remainder_builder *b);
/* Whether a loss over classes asked for demand I. */
bool ml_remainder_is_of_classes(const ml_remainder_builder *b, size_t i);
/* Add what the loss of the demand RESULT asks for; the rest of one that asked for the request that
 * failed.  0 or ML_ENOMEM. */
int ml_remainder_add_loss(ml_remainder_builder *b, size_t result);
int ml_remainder_finish_loss(ml_remainder_builder *b);

/* Demands of the recording by birth, without workspaces. */
typedef struct ml_sequence {
    size_t *list; /* owned */
    size_t count;
} ml_sequence;

/* The demands born from event FROM until UNTIL; 0 or ML_ENOMEM. */
int ml_sequence_take(const ml_remainder_builder *b, size_t from, size_t until,
                     ml_sequence *out);

/* Each asks for what its name says; 0 or ML_ENOMEM.  The backward pass of what waits for it;
 * the state of the optimizer, and a second pass like that which ended at UNTIL. */
int ml_remainder_make_anew(ml_remainder_builder *b); /* of one module's checkpoint */
int ml_remainder_backward(ml_remainder_builder *b);
int ml_remainder_gather(ml_remainder_builder *b); /* gradients that are not there */
int ml_remainder_optimize(ml_remainder_builder *b);
int ml_remainder_repeat(ml_remainder_builder *b, size_t until);
/* The rest of a pass, if an earlier one, begun at PREVIOUS, had ended. */
int ml_remainder_resume(ml_remainder_builder *b, size_t previous);

/* Adds the demands of modules that the forward pass did not reach.  0 or ML_ENOMEM. */
int ml_remainder_finish_forward(ml_remainder_builder *b);

#endif
