/* The paths of modules as a trie: a place for each part of a path, below that of the
 * earlier parts.
 *
 * Owns the set of modules: those named by a recording's stacks, and those given with
 * their memory. */
#ifndef ML_MODULE_TRIE_H
#define ML_MODULE_TRIE_H

#include "analysis/answers/peak.h"
#include "base/base.h"

/* Parts of a path that are distinguished; deeper ones belong to the last. */
#define ML_MODULE_DEPTH 64

typedef struct ml_module_place {
    uint32_t parent;
    uint32_t part;  /* index into parts */
    uint32_t first; /* place: a child; 0: none */
    uint32_t next;  /* place: next sibling; 0: none */
    uint32_t depth;
    bool given;      /* it or one in it */
    ml_peak_sum own; /* of the module itself */
    ml_peak_sum all; /* including submodules */
} ml_module_place;

typedef struct ml_module_trie {
    const ml_recording *recording; /* borrowed */
    ml_module_place *places;       /* owned; the root first, children after parents */
    size_t count, capacity;
    ml_string *parts; /* owned; bytes borrowed of the recording */
    size_t part_capacity;
    ml_intern part_ids, place_ids;
    uint32_t *ends; /* owned; by string: place of the module; 0: none */
} ml_module_trie;

/* From COUNT MODULES.  0 or ML_ENOMEM; free it in any case. */
int ml_module_trie_init(ml_module_trie *trie, const ml_recording *recording,
                        const ml_peak_module *modules, size_t count);
void ml_module_trie_fini(ml_module_trie *trie);

void ml_peak_sum_add(ml_peak_sum *sum, ml_peak_sum more);

#endif
