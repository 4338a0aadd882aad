/* Owns the frames of TorchScript's interpreter.
 *
 * Like native.cpp, not on the allocator callback's proven path: torch copies the frames
 * into memory of its own. */
#include <string>
#include <tuple>

#include <torch/csrc/jit/frontend/source_range.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include "bridge.h"

int
ml_torchscript_runs(void) noexcept
{
    try {
        return torch::jit::currentCallstack().empty() ? 0 : 1;
    }
    catch (...) {
        return 0;
    }
}

void
ml_torchscript_running(ml_torchscript_visitor visit, void *context) noexcept
{
    try {
        const std::vector<torch::jit::StackEntry> frames =
            torch::jit::currentCallstack();
        for (size_t i = frames.size(); i-- > 0;) {
            /* torch's "file name" here is the function's name. */
            ml_torchscript_frame frame = {frames[i].filename.c_str(), "??", 0};
            const auto place = frames[i].range.file_line_col();
            if (place) {
                frame.filename = std::get<0>(*place).c_str();
                frame.line = static_cast<int64_t>(std::get<1>(*place));
            }
            visit(context, &frame);
        }
    }
    catch (...) {
        /* No memory for them: the stack has the frames so far. */
    }
}
