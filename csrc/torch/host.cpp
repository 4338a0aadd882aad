/* Owns reading torch's cache of pinned host memory.  Never initialises CUDA. */
#include <ATen/core/CachingHostAllocator.h>

#include "bridge.h"

namespace {

using namespace at;

/* torch has these counters from 2.7 on.  Chosen by what the compiler finds: DEVICE is a
 * parameter so that the name need not exist. */
template <class Device>
auto
read(Device device, uint64_t *in_use, uint64_t *held, int)
    -> decltype(getHostAllocator(device)->get_stats(), int())
{
    const auto stats = getHostAllocator(device)->get_stats();
    /* "active" is what tensors have, "allocated" what the cache holds for them too. */
    *in_use = static_cast<uint64_t>(stats.active_bytes.current);
    *held = static_cast<uint64_t>(stats.allocated_bytes.current);
    return 0;
}

template <class Device>
int
read(Device, uint64_t *, uint64_t *, long)
{
    return ML_EUNSUPPORTED;
}

} // namespace

extern "C" int
ml_host_memory(uint64_t *in_use, uint64_t *held)
{
    try {
        return read(c10::DeviceType::CUDA, in_use, held, 0);
    }
    catch (...) {
        return ML_ESOURCE;
    }
}
