/* The workspaces of cuBLAS, recognised by size: torch keeps one for each handle and
 * stream, for the whole run, or until a trainer clears them at its end, after which another
 * training makes new ones; from 2.15 on it makes one for each product. */
#ifndef ML_WORKSPACE_H
#define ML_WORKSPACE_H

#include "analysis/attribution/cause.h"
#include "analysis/lifetimes/lifetimes.h"
#include "base/base.h"

/* 8 MiB and 128 KiB, which few tensors have: 64 patches and a class token of 64 images, 512
 * floats each, do.  On an H100 or later 32 MiB. */
#define ML_WORKSPACE_ODD 8519680
#define ML_WORKSPACE_EVEN 33554432
/* Of cuBLASLt, which serves products with a bias. */
#define ML_WORKSPACE_LIGHT 1048576
/* Of cuDNN's dropout, a divisor: 24 bytes of each thread, of which a multiprocessor has
 * some thousand or half as many. */
#define ML_WORKSPACE_GENERATORS (24 * 512)

static inline bool
ml_workspace_has_size(uint64_t size)
{
    return size == ML_WORKSPACE_ODD || size == ML_WORKSPACE_EVEN;
}

/* The first block of a size and a stream that a thread makes for ever in a phase, or until a trainer
 * clears all of them: a library has one for each stream and thread.  What else is made while it
 * is there is a tensor of that size.  Where a
 * recording begins later, a stream may have one from before, and another of backward
 * passes, unless the recording has its first. */
typedef struct ml_kept_workspace {
    uint64_t stream;
    uint64_t size;   /* one of cuBLAS's, or ML_WORKSPACE_LIGHT in a forward */
    size_t row;      /* of the lifetimes */
    uint32_t thread; /* of none if it was there before the first event */
    uint8_t phase;   /* enum ml_phase */
} ml_kept_workspace;

/* The number of an autograd node, and the thread that made it. */
typedef struct ml_node_number {
    uint64_t number;
    uint16_t thread;
} ml_node_number;

/* What tells the workspaces that their size alone does not tell. */
typedef struct ml_workspaces {
    const ml_recording *recording; /* borrowed */
    const ml_lifetimes *lifetimes; /* borrowed */
    const ml_stack_facts *facts;   /* borrowed */
    const ml_stack_signs *signs;   /* borrowed */
    const uint8_t *marks;          /* borrowed */
    uint32_t last; /* moment of the last allocation in a forward, pass or step */
    ml_kept_workspace *list; /* owned; of each kind the last */
    size_t count;
    size_t capacity;
    uint64_t *cleared; /* owned; rows that a trainer cleared under way, ascending */
    size_t cleared_count;
    size_t cleared_capacity;
    /* The nodes of products that ran; none where no block can be of a product. */
    ml_intern products;
    ml_node_number *nodes; /* owned; by id */
    size_t node_capacity;
} ml_workspaces;

/* A walk over the marks of DEVICE, whose LIFETIMES these are, and one over its nodes.  0 or
 * ML_ENOMEM; call ml_workspaces_fini in any case. */
int ml_workspaces_init(ml_workspaces *of, const ml_causes *causes,
                       const ml_recording *recording, size_t device,
                       const ml_lifetimes *lifetimes);
void ml_workspaces_fini(ml_workspaces *of);

/* Whether LIFE, which a forward made, is cuBLASLt's; or has the size of the states of
 * cuDNN's random numbers for dropout, which a recurrent network of torch makes for ever:
 * some bytes for each thread of the device. */
bool ml_workspaces_hold(const ml_workspaces *of, const ml_lifetime *life);
/* Whether a block freed at REQUESTED, a moment or ML_NEVER, lasts as a workspace does: to
 * the end of all forwards, passes and steps. */
static inline bool
ml_workspaces_last(const ml_workspaces *of, uint32_t requested)
{
    return requested > of->last;
}
/* Whether LIFE, which has the size and lasts, or is cleared with others, may be cuBLAS's: no other
 * block of its stream and phase was there before it.  Of several from before the first event any
 * may be. */
bool ml_workspaces_keep(const ml_workspaces *of, const ml_lifetime *life);

/* Whether LIFE was made in the forward of a product, right after the result: a pass ran the
 * product's node. */
bool ml_workspaces_in_product(const ml_workspaces *of, const ml_lifetime *life);
/* Whether LIFE has the size of a workspace, the next event frees it, and the allocation before it,
 * of the same operation, is the result, which outlives it. */
bool ml_workspaces_follow_result(const ml_workspaces *of, const ml_lifetime *life);
/* Whether LIFE was made for one product: the next event frees it, it has the size of
 * cuBLAS's, and the allocation before it, of the same operation, is the result, which
 * outlives it.  A program that makes and drops a tensor of that size has no such result.
 * The node of a product, in whose forward or backward LIFE was made, tells cuBLASLt's, too;
 * and that of a product into a tensor that exists, if no other event is between.  The odd
 * size tells by itself. */
bool ml_workspaces_of_product(const ml_workspaces *of, const ml_lifetime *life);

#endif
