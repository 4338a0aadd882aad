/* The lines of a recording's stacks: what memory did while each line of the program ran,
 * as far as the recording alone can tell.
 *
 * Owns the figures of a line.  A line runs while it is in the stack of the thread, so an
 * allocation counts at each of its stack's lines, once, however often that line is in it.
 * It must not know which lines are shown, nor how.
 *
 * What a backward pass allocates on autograd's threads has no line that runs: it counts
 * at the lines of the forward operation, as cause.h finds it, in a figure of its own. */
#ifndef ML_STACK_LINES_H
#define ML_STACK_LINES_H

#include "analysis/answers/peak.h"

/* name, key of its answer: sums over the stacks that have the line; bytes, the last in
 * items. */
#define ML_STACK_LINE_SUMS(XX) \
    XX(at_peak, "at_peak_bytes") /* live at the peak, allocated while it ran */ \
    /* Live at the peak, allocated by a backward pass for what ran while it did. */ \
    XX(backward, "backward_bytes") \
    XX(allocated, "allocated_bytes") /* in the recording, while it ran */ \
    XX(left, "left_bytes")           /* of allocated, not freed at the end */ \
    XX(allocations, "allocations")   /* those of allocated */

typedef struct ml_stack_line_figures {
#define XX(name, key) uint64_t name;
    ML_STACK_LINE_SUMS(XX)
#undef XX
    uint64_t peak; /* most allocated right after one of allocations; 0: there is none */
} ml_stack_line_figures;

typedef struct ml_stack_line {
    ml_string file; /* bytes borrowed from the recording, as are those of function */
    ml_string function;
    int64_t line;  /* 0: unknown */
    uint8_t place; /* enum ml_frame_place, never native */
    ml_stack_line_figures figures;
} ml_stack_line;

typedef struct ml_stack_lines {
    ml_stack_line *lines; /* owned; by file, function and line; those with a figure */
    size_t count;
} ml_stack_lines;

/* PEAK is of DEVICE of RECORDING, which outlives the lines.  0 or ML_ENOMEM, after
 * which there is nothing to take down. */
int ml_stack_lines_init(ml_stack_lines *all, const ml_recording *recording,
                        size_t device, const ml_peak *peak);
void ml_stack_lines_fini(ml_stack_lines *all);

#endif
