/* The rows of one part of a difference, from the live bytes at two instants.
 *
 * Sums sites by line, module and category; the part of difference.h without instants
 * and phases. */
#ifndef ML_DIFFERENCE_ROWS_H
#define ML_DIFFERENCE_ROWS_H

#include "compare/diff/difference.h"

typedef struct ml_difference_view {
    const ml_string_pool *texts;
    const ml_sites *sites[2];
    const ml_match *match;
    const ml_site_live *live[2]; /* by site */
    bool no_moves;               /* ML_CHANGE_MOVED is no answer */
} ml_difference_view;

/* Fills PART, which has no rows yet.  0 or ML_ENOMEM; PART can be freed either way. */
int ml_difference_rows(const ml_difference_view *view, ml_difference_part *part);
void ml_difference_part_fini(ml_difference_part *part);

#endif
