/* A remainder under construction.  The files that know its passes add demands to it. */
#ifndef ML_REMAINDER_PARTS_H
#define ML_REMAINDER_PARTS_H

#include "lab/verdict/remainder.h"

typedef struct ml_remainder_builder {
    const ml_advice_case *it;
    ml_remainder *out;
    size_t pass; /* event: start of the current forward */
    size_t now;  /* event of the next request */
    /* Events between which the last module made what its checkpoint recomputes; equal:
     * nothing. */
    size_t anew_from;
    size_t anew_until;
    bool much;
    uint8_t stage; /* enum ml_stage of the failed request */
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

static inline int
ml_remainder_compare_sizes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

bool ml_remainder_is_live(const ml_remainder *out, size_t demand);

/* Demands of the recording by birth, without workspaces. */
typedef struct ml_sequence {
    size_t *list; /* owned */
    size_t count;
} ml_sequence;

/* The demands born from event FROM until UNTIL; 0 or ML_ENOMEM. */
int ml_sequence_take(const ml_remainder_builder *b, size_t from, size_t until,
                     ml_sequence *out);

/* Each adds the demands of its name; 0 or ML_ENOMEM.  They are the backward pass, the
 * optimizer's state, and a second pass like the one that ended at UNTIL. */
int ml_remainder_backward(ml_remainder_builder *b);
int ml_remainder_optimize(ml_remainder_builder *b);
int ml_remainder_repeat(ml_remainder_builder *b, size_t until);
/* The rest of a pass, if an earlier one, begun at PREVIOUS, had ended. */
int ml_remainder_resume(ml_remainder_builder *b, size_t previous);

/* Adds the demands of modules that the forward pass did not reach.  0 or ML_ENOMEM. */
int ml_remainder_finish_forward(ml_remainder_builder *b);

#endif
