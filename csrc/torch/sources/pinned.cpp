/* Owns the switch of torch's recorder of pinned host memory.
 *
 * torch calls nobody at an event of pinned memory, so its own recorder keeps them.  Its
 * function of Python for that also switches torch's recorder of the GPUs, on or off: so
 * the host's allocator is told here, alone. */
#include "bridge.h"
#include "sources/host_allocator.h"

/* The header came with the recorder, in torch 2.13. */
#if __has_include(<c10/core/RingBuffer.h>)
#include <torch/csrc/profiler/combined_traceback.h>

namespace {

std::shared_ptr<c10::GatheredContext>
gather_python()
{
    return torch::CapturedTraceback::gather(true, true, false);
}

std::shared_ptr<c10::GatheredContext>
gather_all()
{
    return torch::CapturedTraceback::gather(true, true, true);
}

} // namespace

extern "C" int
ml_pinned_record(int enabled, int context, int native, size_t max_entries, int clear)
{
    using level = c10::CachingDeviceAllocator::RecordContext;
    static const level levels[] = {level::NEVER, level::STATE, level::ALLOC,
                                   level::ALL};
    try {
        at::getHostAllocator(at::kCUDA)->record_history(
            enabled != 0, native ? gather_all : gather_python, max_entries,
            levels[context], clear != 0);
        return 0;
    }
    catch (...) {
        return ML_ESOURCE;
    }
}

extern "C" int
ml_pinned_recording(void)
{
    try {
        return at::getHostAllocator(at::kCUDA)->is_history_enabled() ? 1 : 0;
    }
    catch (...) {
        return ML_ESOURCE;
    }
}

#else

extern "C" int
ml_pinned_record(int, int, int, size_t, int)
{
    return ML_EUNSUPPORTED;
}

extern "C" int
ml_pinned_recording(void)
{
    return ML_EUNSUPPORTED;
}

#endif
