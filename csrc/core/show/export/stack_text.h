/* Live memory at the peak by stack, as text for profile viewers.
 *
 * Owns the folded lines of flame graph tools and the JSON of speedscope.  Bytes sum to
 * the allocated peak. */
#ifndef ML_STACK_TEXT_H
#define ML_STACK_TEXT_H

#include "base/base.h"
#include "recording/recording.h"

/* Each appends the text of DEVICE, which must exist, or of ML_ALL_DEVICES.  0, or
 * ML_ENOMEM with OUT unusable. */

/* A line for each stack: frames from the outermost on, separated by ';', then bytes.
 * With several devices, the device is the first frame. */
int ml_stack_folded(const ml_recording *recording, size_t device, ml_buffer *out);
/* A profile for each device; a stack's weight is its bytes. */
int ml_stack_speedscope(const ml_recording *recording, size_t device, ml_buffer *out);

#endif
