/* The parts of the allocated peak, by category and by repeated modules.
 *
 * Owns which modules count as one: those with equal paths up to their first number, as
 * transformer.h.0 and transformer.h.11. */
#ifndef ML_ADVICE_PARTS_H
#define ML_ADVICE_PARTS_H

#include "lab/advice/advice_case.h"

typedef struct ml_advice_part {
    ml_string module; /* up to the first number, borrowed of the recording; length 0:
                          outside any module */
    bool repeats;     /* a number follows */
    uint8_t category; /* enum ml_category */
    uint8_t why;      /* enum ml_why; if the category is unknown */
    uint64_t bytes;   /* that the blocks occupy */
    uint64_t blocks;
    uint64_t modules; /* distinct numbers that follow; 1 if none does */
} ml_advice_part;

/* *OUT is freed by ml_free; most bytes first.  0 or ML_ENOMEM. */
int ml_advice_find_parts(const ml_advice_case *it, ml_advice_part **out, size_t *count);

#endif
