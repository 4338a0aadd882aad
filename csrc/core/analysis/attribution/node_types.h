/* What the type of an autograd node, by its mangled name, tells of its operation.  Names are
 * those of torch 2.0 onwards. */
#ifndef ML_NODE_TYPES_H
#define ML_NODE_TYPES_H

#include <stdbool.h>

#include "recording/recording.h"

/* What the forward of a node allocates. */
enum ml_node_kind {
    ML_NODE_UNSEEN,
    ML_NODE_ALLOCATES,
    ML_NODE_IN_PLACE, /* it may allocate, or work in place */
    ML_NODE_PYTHON,   /* a torch.autograd.Function's */
    ML_NODE_BARE      /* it allocates nothing */
};

/* Of a TYPE, never UNSEEN: enum ml_node_kind. */
uint8_t ml_node_kind(ml_string type);
/* Whether it is the node of a product of matrices or vectors, which cuBLAS computes. */
bool ml_node_is_product(ml_string type);

#endif
