/* Frames of TorchScript, on top of Python's.
 *
 * It brings frames from torch's interpreter of TorchScript to the table of stacks,
 * through the one function that visits the frames under way. */
#ifndef ML_TORCHSCRIPT_H
#define ML_TORCHSCRIPT_H

#include "memlab.h"
#include "stacks/stacks.h"

/* The id of PARENT extended by the calling thread's TorchScript frames, which FRAMES
 * visits; sets ML_EVENT_STACK_LOST in *FLAGS if they did not fit.  torch's FRAMES takes
 * memory: most processes have no TorchScript program, and never come here. */
uint32_t ml_torchscript_extend(ml_stacks *stacks, uint32_t parent,
                               ml_torchscript_frames frames, uint8_t *flags);

#endif
