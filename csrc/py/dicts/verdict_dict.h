/* The verdict on a run as a Python dict.
 *
 * Owns its keys, which memlab/_answers/ documents; run_verdict.h owns the figures. */
#ifndef ML_PY_VERDICT_DICT_H
#define ML_PY_VERDICT_DICT_H

#include "core/show/text/verdict_text.h"
#include "state.h"

/* New reference: the verdict in WORDS on DEVICE; NULL with an exception set. */
PyObject *ml_py_verdict(const ml_verdict_words *words, int device);

#endif
