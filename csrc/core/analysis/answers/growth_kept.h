/* The blocks that outlive the step that allocated them.  See growth.h. */
#ifndef ML_GROWTH_KEPT_H
#define ML_GROWTH_KEPT_H

#include "analysis/analysis.h"
#include "analysis/answers/growth_steps.h"

/* A block that is kept. */
typedef struct ml_kept {
    ml_string file; /* with these, its line */
    ml_string function;
    int64_t line;
    bool backward;
    bool forward;
    bool given;     /* as far as is known the program's own, such as an input */
    bool workspace; /* judged by its size */
    bool first;     /* like a workspace of its stream, whatever it is judged */
    uint8_t no_line;
    uint32_t step;  /* index */
    uint32_t until; /* of the first step at whose end it is not allocated */
    size_t row;
    uint64_t bytes;
} ml_kept;

typedef struct ml_kept_blocks {
    ml_kept *list; /* owned */
    size_t count;
    size_t capacity;
} ml_kept_blocks;

/* The order of the lines of A and B; 0: it is one line. */
int ml_kept_compare_lines(const ml_kept *a, const ml_kept *b);
/* OUT, all zeros, gets those that may grow, by line, then row.  0 or ML_ENOMEM; free its list in any
 * case. */
int ml_kept_find(const ml_analysis *analysis, const ml_growth_steps *steps,
                 ml_kept_blocks *out);

#endif
