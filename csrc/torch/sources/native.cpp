/* Owns the C++ half of stacks="all": torch's unwinder and symboliser behind plain C
 * functions.  Not on the allocator callback's proven path: torch's unwinder takes a
 * lock and memory. */
#include <string>
#include <vector>

#include <torch/csrc/profiler/unwind/unwind.h>

#include "bridge.h"

/* From torch/csrc/profiler/combined_traceback.h, which is heavy. */
namespace torch {
unwind::Mode get_symbolize_mode();
}

namespace {

size_t
capture(uint64_t *pcs, size_t capacity) noexcept
{
    try {
        const std::vector<void *> frames = torch::unwind::unwind();
        const size_t count = frames.size() < capacity ? frames.size() : capacity;
        const size_t left_out = frames.size() - count;
        for (size_t i = 0; i < count; i++) {
            const size_t from = i < capacity / 2 ? i : i + left_out;
            pcs[i] = reinterpret_cast<uint64_t>(frames[from]);
        }
        return frames.size();
    }
    catch (...) {
        return 0;
    }
}

/* Symbolises PCS[0..COUNT) into NAMES.  torch's symboliser fails as a whole on one odd
 * frame.  So after a failure the list is halved until odd frames are alone. */
void
symbolize_range(const std::vector<void *> &pcs, size_t first, size_t count,
                torch::unwind::Mode mode, std::vector<torch::unwind::Frame> &names)
{
    const std::vector<void *> part(pcs.begin() + static_cast<ptrdiff_t>(first),
                                   pcs.begin() + static_cast<ptrdiff_t>(first + count));
    try {
        std::vector<torch::unwind::Frame> found = torch::unwind::symbolize(part, mode);
        if (found.size() == count) {
            for (size_t i = 0; i < count; i++) {
                names[first + i] = std::move(found[i]);
            }
            return;
        }
    }
    catch (...) {
    }
    if (count == 1) {
        names[first] = torch::unwind::Frame{"??", "??", 0};
        return;
    }
    symbolize_range(pcs, first, count / 2, mode, names);
    symbolize_range(pcs, first + count / 2, count - count / 2, mode, names);
}

int
symbolize(const uint64_t *pcs, size_t count, ml_native_visitor visit,
          void *context) noexcept
{
    if (count == 0) {
        return 0;
    }
    try {
        std::vector<void *> addresses(count);
        for (size_t i = 0; i < count; i++) {
            addresses[i] = reinterpret_cast<void *>(pcs[i]);
        }
        std::vector<torch::unwind::Frame> names(count);
        symbolize_range(addresses, 0, count, torch::get_symbolize_mode(), names);
        for (size_t i = 0; i < count; i++) {
            const ml_native_frame frame = {names[i].filename.c_str(),
                                           names[i].funcname.c_str(), names[i].lineno};
            const int result = visit(context, i, &frame);
            if (result != 0) {
                return result;
            }
        }
        return 0;
    }
    catch (...) {
        return ML_ENOMEM;
    }
}

const ml_native table = {sizeof(ml_native), ML_ABI_VERSION, capture, symbolize};

} // namespace

const ml_native *
ml_native_table(void)
{
    return &table;
}
