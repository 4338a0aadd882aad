/* How full the segments are at the end of a recording, as text.
 *
 * Owns the layout of torch.cuda._memory_viz's segsum(): a line for each segment of 20
 * MiB or more, the sums over all, the legend. */
#ifndef ML_TORCH_SEGSUM_H
#define ML_TORCH_SEGSUM_H

#include "base/base.h"
#include "recording/recording.h"

/* Appends the text, of all devices.  0 or ML_ENOMEM, after which what OUT holds is of no
 * use. */
int ml_torch_segsum(const ml_recording *recording, ml_buffer *out);

#endif
