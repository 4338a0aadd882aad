/* The memory of modules as a tree of their paths' parts, with repeated modules as one
 * node: the 48 layers of model.layers are model.layers.*.
 *
 * Owns which modules repeat.
 *
 * Numbers side by side repeat if they have parts of one name, or no parts; each part is
 * then one node for all of them.  The stacks of the whole recording tell which parts
 * exist, so a layer with little memory at the instant is still like the others.  Memory
 * outside modules has a node below the root for each reason. */
#ifndef ML_MODULE_TREE_H
#define ML_MODULE_TREE_H

#include "analysis/answers/module_trie.h"
#include "base/base.h"

/* Children are consecutive, most bytes first, and come after their parent. */
typedef struct ml_module_node {
    /* Of a path; bytes borrowed from the recording.  "*" for several numbers; empty for
     * the root and for memory outside modules. */
    ml_string part;
    ml_string least, greatest; /* of several numbers; also borrowed */
    uint32_t parent;           /* node; of the root: 0 */
    uint32_t first;            /* node: its first child */
    uint32_t children;         /* items */
    /* number of modules with memory that it represents; 0 outside modules */
    uint32_t modules;
    uint8_t no_module; /* enum ml_no_module */
    bool several;      /* numbers */
    bool each;         /* its children are these numbers, not their parts */
    bool beside;       /* siblings represent several numbers too */
    ml_peak_sum own;   /* of the modules themselves */
    ml_peak_sum all;   /* including submodules */
} ml_module_node;

typedef struct ml_module_tree {
    ml_module_node *nodes; /* owned; the root first */
    size_t count;
    uint32_t *of_module; /* owned; by string: node of a given module, or 0 */
    uint32_t of_reason[ML_NO_MODULE_COUNT]; /* node, or 0 */
} ml_module_tree;

/* From COUNT MODULES, as in a peak.  RECORDING is borrowed and outlives the tree.  0 or
 * ML_ENOMEM. */
int ml_module_tree_new(const ml_recording *recording, const ml_peak_module *modules,
                       size_t count, ml_module_tree **out);
void ml_module_tree_free(ml_module_tree *tree); /* takes NULL */

/* The path of NODE, not NUL-terminated. */
void ml_module_path(const ml_module_tree *tree, uint32_t node, ml_buffer *out);

#endif
