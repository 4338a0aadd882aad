/* The steps from a root to a target, in words.
 *
 * Owns their order; holders_names.h names each reference. */
#ifndef ML_PY_HOLDERS_PATHS_H
#define ML_PY_HOLDERS_PATHS_H

#include "holders/holders_walk.h"

/* The steps of HOLD's path: a new list of tuples; NULL with an exception. */
PyObject *ml_holders_path(ml_walk *walk, const ml_hold *hold);

#endif
