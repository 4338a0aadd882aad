/* How full the segments are at a recording's end, as text.
 *
 * Owns the layout of torch.cuda._memory_viz's segsum(): a line for each segment from 20
 * MiB on, the total, the legend. */
#ifndef ML_TORCH_SEGSUM_H
#define ML_TORCH_SEGSUM_H

#include "base/base.h"
#include "recording/recording.h"

/* Appends the text of all devices.  0, or ML_ENOMEM with OUT unusable. */
int ml_torch_segsum(const ml_recording *recording, ml_buffer *out);

#endif
