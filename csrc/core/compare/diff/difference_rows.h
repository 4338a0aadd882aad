/* The rows of one part of a difference, from what is live at two instants.
 *
 * Owns summing sites by line, module and category; the part of difference.h that knows
 * neither instants nor phases. */
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

/* Into PART, whose rows are none.  0 or ML_ENOMEM; PART can be taken down either way. */
int ml_difference_rows(const ml_difference_view *view, ml_difference_part *part);
void ml_difference_part_fini(ml_difference_part *part);

#endif
