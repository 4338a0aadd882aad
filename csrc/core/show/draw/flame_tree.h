/* The tree of a flame graph: memory at a recording's end by stream, segment, state and
 * frame.
 *
 * Owns which blocks share a node, which frames are noise, and the order of neighbours.
 * The tree's bytes sum to the reserved bytes. */
#ifndef ML_FLAME_TREE_H
#define ML_FLAME_TREE_H

#include "analysis/attribution/frame_lines.h"
#include "base/base.h"
#include "recording/recording.h"

enum ml_flame_kind {
    ML_FLAME_KIND_ROOT,
    ML_FLAME_KIND_DEVICE,  /* value: index */
    ML_FLAME_KIND_STREAM,  /* value: handle */
    ML_FLAME_KIND_SEGMENT, /* value: index of the device's segment */
    ML_FLAME_KIND_STATE,   /* value: enum ml_block_state */
    ML_FLAME_KIND_FRAME,   /* value: frame id */
    ML_FLAME_KIND_NO_STACK,
    ML_FLAME_KIND_ROUNDING, /* block bytes beyond the request */
    ML_FLAME_KIND_STACK     /* no node: the result of stack VALUE below PARENT */
};

typedef struct ml_flame_key {
    uint64_t value;
    uint32_t parent;
    uint32_t kind;
} ml_flame_key;

typedef struct ml_flame_node {
    ml_flame_key is;
    uint32_t device;
    uint32_t depth;
    uint64_t bytes;  /* including everything below */
    uint64_t blocks; /* likewise */
    uint64_t x;      /* hundredths of a pixel */
    uint64_t width;
    size_t first_child; /* index into children */
    size_t child_count;
} ml_flame_node;

typedef struct ml_flame_tree {
    const ml_recording *recording; /* borrowed */
    bool by_segment;               /* false: the segments of a stream are one */
    ml_frame_lines lines;
    ml_intern nodes_by_key;
    ml_flame_node *nodes; /* owned */
    size_t node_capacity;
    ml_intern stacks_by_key;
    ml_flame_key *stack_keys; /* owned; by id of stacks_by_key */
    size_t stack_key_capacity;
    uint32_t *stack_nodes; /* owned; likewise */
    size_t stack_node_capacity;
    uint32_t *cut;      /* owned; by stack, its outermost DEEPEST frames */
    uint32_t *path;     /* owned; DEEPEST */
    uint8_t *noise;     /* owned; see ml_flame_is_noise */
    uint32_t *children; /* owned; nodes by parent, largest first */
    bool full;          /* frames were left out */
} ml_flame_tree;

/* How many of DEVICE, or ML_ALL_DEVICES, have memory. */
size_t ml_flame_device_count(const ml_recording *recording, size_t device);

/* DEVICE, or ML_ALL_DEVICES; BY_DEVICE: each device is a node.  RECORDING is borrowed
 * and outlives the tree.  0 or ML_ENOMEM.  Free the tree in any case. */
int ml_flame_tree_init(ml_flame_tree *t, const ml_recording *recording, size_t device,
                       bool by_segment, bool by_device);
void ml_flame_tree_fini(ml_flame_tree *t);

/* Appends N's name, unescaped; WHOLE: with the path of a frame's file. */
void ml_flame_node_name(const ml_flame_tree *t, const ml_flame_node *n, bool whole,
                        ml_buffer *out);

/* A node's place among its siblings. */
typedef struct ml_flame_ranked {
    uint32_t parent;
    uint32_t id;
    uint64_t weight;
    bool last; /* unused memory comes last, whatever its weight */
} ml_flame_ranked;

/* For qsort: by parent, then heaviest first. */
int ml_flame_compare_ranked(const void *left, const void *right);

/* Free memory. */
bool ml_flame_is_unused(const ml_flame_node *n);

/* Whether FRAME is a frame of the interpreter or torch's dispatcher that says nothing.
 * NOISE caches the answer for each frame; 0 at first. */
bool ml_flame_is_noise(const ml_recording *recording, uint8_t *noise, uint32_t frame);

#endif
