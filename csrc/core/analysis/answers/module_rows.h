/* The few rows that best show where the memory of modules is.
 *
 * Owns how far a module tree is unfolded. */
#ifndef ML_MODULE_ROWS_H
#define ML_MODULE_ROWS_H

#include "analysis/answers/module_tree.h"

/* The part of a node in a row. */
#define ML_MODULE_SHARES(XX) \
    XX(ALL, "all") \
    XX(OWN, "own")   /* without its submodules */ \
    XX(REST, "rest") /* without all rows below it */

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

/* At most MOST rows that best show where the bytes are, most bytes first, the rest of
 * the root last.  They are of the largest modules, none below a hundredth of all bytes,
 * and sum to all bytes.  ROWS has room for MOST, which is at most ML_MODULE_ROWS.  0 or
 * ML_ENOMEM. */
int ml_module_rows(const ml_module_tree *tree, ml_module_row *rows, size_t most,
                   size_t *count);
/* The row of ROWS, COUNT of them, with NODE; COUNT if there is none. */
size_t ml_module_row_of(const ml_module_tree *tree, const ml_module_row *rows,
                        size_t count, uint32_t node);

const char *ml_module_share_text(unsigned share); /* "" for an unknown one */

#endif
