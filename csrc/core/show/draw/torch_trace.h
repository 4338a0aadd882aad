/* The events of a recording, as text that reads like a program.
 *
 * Owns the layout of torch.cuda._memory_viz's trace(): a line for each event, letters
 * for live blocks, and the segment of an address. */
#ifndef ML_TORCH_TRACE_H
#define ML_TORCH_TRACE_H

#include "base/base.h"
#include "recording/recording.h"

/* Appends the text of all devices with events.  0, or ML_ENOMEM with OUT unusable. */
int ml_torch_trace(const ml_recording *recording, ml_buffer *out);

#endif
