/* Words for references, one reference at a time.
 *
 * Owns the naming of each kind of reference.  Runs no code of the program: no repr, no
 * attribute access, no comparison of its objects. */
#ifndef ML_PY_HOLDERS_NAMES_H
#define ML_PY_HOLDERS_NAMES_H

#include "holders/holders_namer.h"

/* Names the reference from place I of the chain to the next.  LENT: it lies on that
 * frame's stack.  0 or -1. */
int ml_name_step(ml_namer *n, size_t i, bool lent);

#endif
