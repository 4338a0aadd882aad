/* Adds frames of TorchScript to stacks.  See torchscript.h. */
#include "stacks/torchscript.h"

#include <string.h>

#include "base/base.h"

typedef struct extension {
    ml_stacks *stacks; /* borrowed */
    uint32_t stack;
} extension;

/* It has no code object; its texts replace one. */
static void
add_frame(void *context, const ml_torchscript_frame *frame)
{
    extension *to = context;
    if (to->stack == ML_STACK_LOST) {
        return;
    }
    ml_code_text text = {
        .name = {frame->name, strlen(frame->name)},
        .filename = {frame->filename, strlen(frame->filename)},
    };
    ml_frame_key key = {
        .code = ml_hash_bytes(text.name.bytes, text.name.length) | ML_TORCHSCRIPT_CODE,
        .fingerprint = ml_hash_bytes(text.filename.bytes, text.filename.length),
        .offset =
            frame->line > 0 && frame->line < UINT32_MAX ? (uint32_t)frame->line : 0,
    };
    to->stack = ml_stacks_add(to->stacks, to->stack, &key, &text);
}

uint32_t
ml_torchscript_extend(ml_stacks *stacks, uint32_t parent, ml_torchscript_frames frames,
                      uint8_t *flags)
{
    if (parent == ML_STACK_LOST) {
        return parent;
    }
    extension to = {stacks, parent};
    frames(add_frame, &to);
    if (to.stack == ML_STACK_LOST) {
        *flags |= ML_EVENT_STACK_LOST;
    }
    return to.stack;
}
