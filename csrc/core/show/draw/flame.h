/* Flame graphs: the memory at the end of a recording by the stacks that hold it.
 *
 * Owns the tree of a device's, or all devices', memory by stream, segment, state and
 * frame, its picture as SVG, and the folded lines that torch.cuda._memory_viz writes of
 * it.  Bytes of the tree add up to what is reserved. */
#ifndef ML_FLAME_H
#define ML_FLAME_H

#include "show/text/markup.h"

enum ml_flame_what {
    ML_FLAME_SEGMENTS, /* each segment for itself */
    ML_FLAME_MEMORY    /* the segments of a stream as one */
};

/* Appends the picture: a file of its own, valid XML, that loads nothing.  DEVICE exists or
 * is ML_ALL_DEVICES.  0 or a negative ML_E*, after which what OUT holds is of no use. */
int ml_flame_svg(const ml_recording *recording, size_t device, enum ml_flame_what what,
                 ml_buffer *out);

/* Appends the picture of what came and what went from BEFORE to AFTER, all their devices,
 * by stream, state and stack: frames are one where file, line and function are equal.  As
 * wide as the larger of the two, so that what went shows as well.  Likewise. */
int ml_flame_difference(const ml_recording *before, const ml_recording *after,
                        ml_buffer *out);

/* Appends a line for each block, and for each that is larger than what was asked for:
 * "stream_S;seg_A;state;frame;frame bytes", the frames from the outermost on.  Byte for
 * byte as torch's segments() and memory() hand them to format_flamegraph.  Likewise. */
int ml_flame_folded(const ml_recording *recording, size_t device,
                    enum ml_flame_what what, ml_buffer *out);

/* The same of segments that only one of the two has, told by device, address and size:
 * "only_before;" or "only_after;" and what ml_flame_folded() says of them.  Byte for byte as
 * torch's compare() hands them over.  Likewise. */
int ml_flame_folded_difference(const ml_recording *before, const ml_recording *after,
                               ml_buffer *out);

#endif
