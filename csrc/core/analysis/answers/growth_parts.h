/* What finding growth consists of, for its own files.  See growth.h. */
#ifndef ML_GROWTH_PARTS_H
#define ML_GROWTH_PARTS_H

#include "analysis/answers/growth.h"
#include "analysis/answers/growth_kept.h"
#include "analysis/answers/growth_steps.h"

/* What was left at a line by one step. */
typedef struct left {
    uint32_t step;
    uint64_t bytes;
    uint64_t blocks;
} left;

/* A line that grows: its blocks, and the steps that left something. */
typedef struct found {
    ml_growing line;
    size_t first; /* kept blocks */
    size_t end;
    uint32_t begin; /* steps, by index */
    uint32_t last;
    bool folded;
    size_t into;    /* if folded: the line that ends the graph, by index */
    uint32_t place; /* among the lines that are told; or NOT_TOLD */
} found;

typedef struct growth_work {
    const ml_analysis *analysis;
    ml_growth_steps steps;
    ml_kept_blocks kept;
    left *lefts;    /* owned; room for one a step; of the line looked at */
    uint64_t *sums; /* owned; room for one a step and one more */
    found *list;    /* owned */
    size_t found_count;
    size_t found_capacity;
    /* Each of several streams has first blocks of a workspace's size: lines do without them. */
    bool streams;
} growth_work;

/* Whether BLOCK is still allocated at the end of the last step. */
static inline bool
ml_kept_is_left(const growth_work *f, const ml_kept *block)
{
    return block->until == f->steps.count;
}

/* The first of the COUNT steps in LEFTS, that left something, from which on the distances are
 * usual; COUNT: the growth has stopped. */
size_t ml_growth_run(const growth_work *f, size_t count);
/* Sets in *OUT what a step leaves of those FIRST up to COUNT, and whether that is certain.  False:
 * they are too few, and not alike. */
bool ml_growth_measure(growth_work *f, size_t first, size_t count, found *out);
/* Finds the streams with workspaces, and whether each step leaves new ones.  0 or ML_ENOMEM. */
int ml_growth_find_streams(growth_work *f, ml_growing_streams *out);
/* Sets the holder of LINE, if a note tells it. */
void ml_growth_name_holder(const growth_work *f, found *line);
/* All lines with blocks in a graph become part of the line that makes its end: a loss, or the
 * last block that a node of autograd holds. */
void ml_growth_fold_graphs(growth_work *f);

#endif
