/* What is live at the peak by stack, as text for viewers of profiles.
 *
 * Owns the folded lines of flame graph tools and the JSON of speedscope.  Bytes add
 * up to what is allocated at the peak. */
#ifndef ML_STACK_TEXT_H
#define ML_STACK_TEXT_H

#include "base/base.h"
#include "recording/recording.h"

/* Each appends the text of DEVICE, which exists, or ML_ALL_DEVICES.  0 or ML_ENOMEM, after
 * which what OUT holds is of no use. */

/* A line for each stack: frames from the outermost on, with ';' between, and bytes.  Of
 * several devices the first frame is the device. */
int ml_stack_folded(const ml_recording *recording, size_t device, ml_buffer *out);
/* A profile for each device, of stacks with bytes as their weights. */
int ml_stack_speedscope(const ml_recording *recording, size_t device, ml_buffer *out);

#endif
