/* The lines of a recording's stacks: memory while each line of the program ran, from
 * the recording alone.
 *
 * A line runs while it is in the stack of the thread.  So an allocation counts at each
 * line of its stack, once, however often that line is in the stack.
 *
 * Allocations of a backward pass on autograd's threads have no running line.  They
 * count at the lines of the forward operation that cause.h finds, in a separate
 * figure. */
#ifndef ML_STACK_LINES_H
#define ML_STACK_LINES_H

#include "analysis/answers/peak.h"

/* name, key in the answer: sums over the stacks with the line; bytes, but the last in
 * items. */
#define ML_STACK_LINE_SUMS(XX) \
    XX(at_peak, "at_peak_bytes") /* live at the peak, allocated while it ran */ \
    /* Live at the peak, allocated by the backward pass of operations run in the line. */ \
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

/* PEAK is of DEVICE of RECORDING, which outlives the lines.  0, or ML_ENOMEM with
 * nothing to free. */
int ml_stack_lines_init(ml_stack_lines *all, const ml_recording *recording,
                        size_t device, const ml_peak *peak);
void ml_stack_lines_fini(ml_stack_lines *all);

#endif
