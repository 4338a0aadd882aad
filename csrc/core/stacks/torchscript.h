/* Frames of TorchScript, on top of Python's.
 *
 * It brings frames from torch's interpreter of TorchScript to the table of stacks,
 * through the one function that visits the frames under way. */
#ifndef ML_TORCHSCRIPT_H
#define ML_TORCHSCRIPT_H

#include "memlab.h"
#include "stacks/stacks.h"

/* Any thread.  A program in TorchScript has begun; FRAMES tells what runs, for as long as
 * the process lives. */
void ml_torchscript_begun(ml_torchscript_frames frames);

/* HOT until ml_torchscript_begun, after which torch's own function takes memory.  The id of
 * PARENT extended by what runs on the calling thread; sets ML_EVENT_STACK_LOST in *FLAGS
 * where that did not fit. */
uint32_t ml_torchscript_extend(ml_stacks *stacks, uint32_t parent, uint8_t *flags);

#endif
