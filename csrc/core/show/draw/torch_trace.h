/* The events of a recording, as text that reads like a program.
 *
 * Owns the layout of torch.cuda._memory_viz's trace(): a line for each event, letters
 * that name what is there now, and which segment an address is in. */
#ifndef ML_TORCH_TRACE_H
#define ML_TORCH_TRACE_H

#include "base/base.h"
#include "recording/recording.h"

/* Appends the text, of all devices that have events.  0 or ML_ENOMEM, after which what OUT
 * holds is of no use. */
int ml_torch_trace(const ml_recording *recording, ml_buffer *out);

#endif
