/* Frames of TorchScript, on top of Python's.
 *
 * It brings frames from torch's interpreter of TorchScript to the table of stacks,
 * through the one function that visits the frames under way. */
#ifndef ML_TORCHSCRIPT_H
#define ML_TORCHSCRIPT_H

#include "memlab.h"
#include "stacks/stacks.h"

/* Any thread.  A TorchScript program has begun; FRAMES visits the running frames, from
 * now on. */
void ml_torchscript_begun(ml_torchscript_frames frames);

/* HOT until ml_torchscript_begun; after that, torch's own function takes memory.  The
 * id of PARENT extended by the calling thread's TorchScript frames; sets
 * ML_EVENT_STACK_LOST in *FLAGS if they did not fit. */
uint32_t ml_torchscript_extend(ml_stacks *stacks, uint32_t parent, uint8_t *flags);

#endif
