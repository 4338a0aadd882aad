/* What makes a run fit in words: the batch that fits, and each remedy with its cost.
 *
 * Owns these words.  Names are unescaped.  The buffer remembers errors. */
#ifndef ML_MAKE_FIT_TEXT_H
#define ML_MAKE_FIT_TEXT_H

#include "base/base.h"
#include "lab/verdict/make_fit.h"

/* The batch that fits, as far as it is known, else the command that finds it.  Nothing for
 * a run that did not run out of memory. */
void ml_fit_put_batch(ml_buffer *out, const ml_make_fit *fit);
/* The smallest set of remedies that fits; nothing if none is known. */
void ml_fit_put_chosen(ml_buffer *out, const ml_make_fit *fit);
void ml_fit_put_remedy(ml_buffer *out, const ml_remedy *remedy); /* what to change */
const char *ml_remedy_cost(unsigned kind); /* "" for an unknown one */

#endif
