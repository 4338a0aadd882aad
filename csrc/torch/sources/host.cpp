/* Owns reading torch's cache of pinned host memory.  Never initialises CUDA. */
#include <torch/version.h>

#include <algorithm>

#include "bridge.h"
#include "sources/host_allocator.h"

namespace {

using namespace at;

/* Before 2.13, torch's counter of tensors' pinned bytes is wrong.  It never falls or,
 * if a copy had to end first, rises by a byte at each free (pytorch/pytorch#183067). */
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
constexpr bool COUNTS_USE = false;
#else
constexpr bool COUNTS_USE = true;
#endif

/* Bytes in the cache, used or not.  If torch has the first name, as 2.8 does, the
 * second counts tensors' bytes. */
template <class Stats>
auto
held_bytes(const Stats &stats, int) -> decltype(stats.reserved_bytes.current)
{
    return stats.reserved_bytes.current;
}

template <class Stats>
auto
held_bytes(const Stats &stats, long) -> decltype(stats.allocated_bytes.current)
{
    return stats.allocated_bytes.current;
}

template <class Stats>
auto
used_bytes(const Stats &stats, int) -> decltype(stats.active_bytes.current)
{
    return stats.active_bytes.current;
}

template <class Stats>
int64_t
used_bytes(const Stats &, long)
{
    return 0;
}

/* torch has these counters from 2.7 on.  The compiler decides: DEVICE is a parameter so
 * that the name may be missing. */
template <class Device>
auto
read(Device device, uint64_t *in_use, uint64_t *held, int)
    -> decltype(getHostAllocator(device)->get_stats(), int())
{
    const auto stats = getHostAllocator(device)->get_stats();
    *held = static_cast<uint64_t>(held_bytes(stats, 0));
    *in_use = UINT64_MAX;
    if (COUNTS_USE) {
        *in_use = static_cast<uint64_t>(used_bytes(stats, 0));
        /* torch reads the two counters one after the other, while threads continue. */
        *held = std::max(*held, *in_use);
    }
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
