/* Why one peak is higher than another: what of it is more, and what less.
 *
 * Owns telling which memory of two instants is of the same kind: that of one category, one
 * line and module, allocated in one phase.  The two may be of different recordings, whose
 * ids mean different things, so all is told apart by what it says.  Of each grouping the
 * differences add up to that of the whole.  It must not know what the two are. */
#ifndef ML_DIFFERENCE_H
#define ML_DIFFERENCE_H

#include "peak.h"

/* Bytes and blocks (items) before and after. */
typedef struct ml_two {
    uint64_t bytes[2];
    uint64_t blocks[2];
} ml_two;

/* What is of one category, line and phase. */
typedef struct ml_difference_line {
    ml_string file; /* borrowed of a recording; empty without a line */
    ml_string function;
    int64_t line; /* 0: none */
    ml_two two;
    uint8_t category; /* enum ml_category */
    uint8_t phase;    /* enum ml_phase */
    uint8_t no_line;  /* enum ml_no_line */
    /* Of the modules that have a part in the difference, "*" for what differs between
     * them; NUL at the end; owned.  NULL: none. */
    char *module;
} ml_difference_line;

typedef struct ml_difference_module {
    ml_string module;  /* borrowed; empty: none */
    uint8_t no_module; /* enum ml_no_module */
    ml_two two;
} ml_difference_module;

typedef struct ml_difference {
    ml_two whole;
    ml_two categories[ML_CATEGORY_COUNT];
    /* Owned; the greatest differences first, then by text.  Those without are left out. */
    ml_difference_line *lines;
    size_t line_count;
    ml_difference_module *modules;
    size_t module_count;
} ml_difference;

/* From BEFORE, a peak of the recording OF_BEFORE, to AFTER.  All are borrowed and outlive
 * the answer.  Linear, but for sorting the answer.  0 or ML_ENOMEM. */
int ml_difference_new(const ml_recording *of_before, const ml_peak *before,
                      const ml_recording *of_after, const ml_peak *after,
                      ml_difference **out);
void ml_difference_free(ml_difference *difference); /* takes NULL */

#endif
