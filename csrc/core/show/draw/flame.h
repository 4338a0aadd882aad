/* Flame graphs: memory at a recording's end, by the stacks that hold it.
 *
 * Owns the tree of one or all devices' memory by stream, segment, state and frame.
 * Also owns its SVG and the folded lines of torch.cuda._memory_viz.  The tree's bytes
 * sum to the reserved bytes. */
#ifndef ML_FLAME_H
#define ML_FLAME_H

#include "show/text/markup.h"

enum ml_flame_what {
    ML_FLAME_SEGMENTS, /* each segment apart */
    ML_FLAME_MEMORY    /* the segments of a stream merged */
};

/* Appends the picture: one file of valid XML that loads nothing.  DEVICE exists or is
 * ML_ALL_DEVICES.  0, or a negative ML_E* with OUT unusable. */
int ml_flame_svg(const ml_recording *recording, size_t device, enum ml_flame_what what,
                 ml_buffer *out);

/* Appends the picture of the memory gained and lost from BEFORE to AFTER, over all
 * devices, by stream, state and stack.  Frames are equal by file, line and function.  A
 * box is as wide as the larger side, so that losses show.  Results as above. */
int ml_flame_difference(const ml_recording *before, const ml_recording *after,
                        ml_buffer *out);

/* Appends a line for each block, and one for the rounding of each rounded block:
 * "stream_S;seg_A;state;frame;frame bytes", from the outermost frame on.  Equal, byte
 * for byte, to the input that torch's segments() and memory() give to
 * format_flamegraph.  Results as above. */
int ml_flame_folded(const ml_recording *recording, size_t device,
                    enum ml_flame_what what, ml_buffer *out);

/* The same for segments that only one side has, compared by device, address and size:
 * "only_before;" or "only_after;", then the line of ml_flame_folded().  Byte for byte
 * as torch's compare().  Results as above. */
int ml_flame_folded_difference(const ml_recording *before, const ml_recording *after,
                               ml_buffer *out);

#endif
