/* The few rows that say most of where the memory of modules is.
 *
 * Owns how far a module tree is unfolded; it must not know how rows are printed. */
#ifndef ML_MODULE_ROWS_H
#define ML_MODULE_ROWS_H

#include "analysis/answers/module_tree.h"

/* What of a node a row is. */
#define ML_MODULE_SHARES(XX) \
    XX(ALL, "all") \
    XX(OWN, "own")   /* not what is in modules of it */ \
    XX(REST, "rest") /* what no row below it has */

enum ml_module_share {
#define XX(name, text) ML_MODULE_##name,
    ML_MODULE_SHARES(XX)
#undef XX
    ML_MODULE_SHARE_COUNT
};

typedef struct ml_module_row {
    uint32_t node;
    uint8_t share; /* enum ml_module_share */
    ml_peak_sum sum;
} ml_module_row;

#define ML_MODULE_ROWS 10

/* The MOST rows or fewer that say most of where the bytes are, the most bytes first, the
 * rest of the root last: those of the largest modules, none of which has less than a hundredth
 * of all bytes.  They add up to all bytes.  ROWS has room for MOST, which is ML_MODULE_ROWS or
 * less.  0 or ML_ENOMEM. */
int ml_module_rows(const ml_module_tree *tree, ml_module_row *rows, size_t most,
                   size_t *count);
/* The row of ROWS, COUNT of them, that has NODE; COUNT where there is none. */
size_t ml_module_row_of(const ml_module_tree *tree, const ml_module_row *rows,
                        size_t count, uint32_t node);

const char *ml_module_share_text(unsigned share); /* "" for an unknown one */

#endif
