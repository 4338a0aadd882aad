/* Owns the callback that c10's CUDA caching allocator runs for every memory event.
 *
 * c10 holds the device's lock around it, and the caller may hold the GIL.  So nothing
 * here takes a lock, memory or the GIL, does I/O, or throws.  The file is an object of
 * its own: its undefined symbols prove this (tests/native/test_hot_path_symbols.py). */
#include <atomic>
#include <type_traits>

#include <c10/cuda/CUDACachingAllocator.h>

#include "bridge.h"

namespace {

using c10::cuda::CUDACachingAllocator::TraceEntry;

/* Written before the tracker is attached, never after. */
const ml_api *bound_api;
const ml_source *bound_source;

std::atomic<int> listening{0};
std::atomic<int> device_total{1};

/* All SNAPSHOT entries carry device 0, but c10 visits its devices in order on one
 * thread, so counting tells the device.  Initial-exec: no lazy allocation. */
__thread int walk_device __attribute__((tls_model("initial-exec"))) = -1;
__thread int foreign_device __attribute__((tls_model("initial-exec"))) = 0;

/* The region of torch.compile that this thread runs. */
__thread struct {
    const char *name;
    size_t bytes;
} compiled __attribute__((tls_model("initial-exec")));

static_assert(
    static_cast<int>(TraceEntry::ALLOC) == ML_ACTION_ALLOC &&
        static_cast<int>(TraceEntry::FREE_REQUESTED) == ML_ACTION_FREE_REQUESTED &&
        static_cast<int>(TraceEntry::FREE_COMPLETED) == ML_ACTION_FREE_COMPLETED &&
        static_cast<int>(TraceEntry::SEGMENT_ALLOC) == ML_ACTION_SEGMENT_ALLOC &&
        static_cast<int>(TraceEntry::SEGMENT_FREE) == ML_ACTION_SEGMENT_FREE &&
        static_cast<int>(TraceEntry::SEGMENT_MAP) == ML_ACTION_SEGMENT_MAP &&
        static_cast<int>(TraceEntry::SEGMENT_UNMAP) == ML_ACTION_SEGMENT_UNMAP &&
        static_cast<int>(TraceEntry::SNAPSHOT) == ML_ACTION_SNAPSHOT &&
        static_cast<int>(TraceEntry::OOM) == ML_ACTION_OOM,
    "c10's actions are memlab's");

/* Members that only some versions of TraceEntry have. */
template <class T>
auto
set_pool(ml_event &event, const T &entry, int) noexcept
    -> decltype(entry.mempool_, void())
{
    const uint64_t first = entry.mempool_.first;
    const uint64_t second = entry.mempool_.second;
    /* Half of an id would be another pool's. */
    const bool whole = ((first | second) >> 32) == 0;
    event.pool[0] = whole ? static_cast<uint32_t>(first) : 0;
    event.pool[1] = whole ? static_cast<uint32_t>(second) : 0;
    event.flags = whole ? ML_EVENT_POOL_KNOWN : 0;
}

template <class T>
void
set_pool(ml_event &event, const T &, long) noexcept
{
    event.pool[0] = 0;
    event.pool[1] = 0;
    event.flags = 0;
}

template <class T>
auto
text_of(const T &entry, int) noexcept -> decltype(entry.user_metadata_, ml_event_text{})
{
    ml_event_text text{};
    text.metadata = entry.user_metadata_.data();
    text.metadata_bytes = entry.user_metadata_.size();
    return text;
}

template <class T>
ml_event_text
text_of(const T &, long) noexcept
{
    return {};
}

template <class T>
auto
set_internal(ml_event_text &text, const T &entry, int) noexcept
    -> decltype(entry.internal_metadata_, void())
{
    text.internal = entry.internal_metadata_.data();
    text.internal_bytes = entry.internal_metadata_.size();
}

template <class T>
void
set_internal(ml_event_text &, const T &, long) noexcept
{
}

/* Which of torch's other actions it is. */
template <class T>
auto
other_of(const T &entry, int) noexcept -> decltype(T::ANNOTATE, uint32_t{})
{
    return entry.action_ == T::ANNOTATE ? ML_OTHER_ANNOTATE : ML_OTHER_UNKNOWN;
}

template <class T>
uint32_t
other_of(const T &, long) noexcept
{
    return ML_OTHER_UNKNOWN;
}

/* Of a SNAPSHOT entry that carries 0.  Apart, as few events are. */
[[gnu::cold, gnu::noinline]] int
walked_device() noexcept
{
    if (walk_device >= 0) {
        return walk_device++;
    }
    const int device = foreign_device;
    const int next = device + 1;
    foreign_device = next < device_total.load(std::memory_order_relaxed) ? next : 0;
    return device;
}

inline int
device_of(const TraceEntry &entry) noexcept
{
    return entry.action_ == TraceEntry::SNAPSHOT && entry.device_ == 0 ? walked_device()
                                                                       : entry.device_;
}

} // namespace

void
ml_tracker_call(const TraceEntry &entry) noexcept
{
    if (listening.load(std::memory_order_relaxed) == 0) {
        if (entry.action_ == TraceEntry::SNAPSHOT) {
            device_of(entry); /* keeps the count in step with c10's loop */
        }
        return;
    }
    /* Each field is written once, in the width in which it is read.  A load right after
     * a store of another width waits for the store.  The core writes the others. */
    ml_event event;
    event.addr = static_cast<uint64_t>(entry.addr_);
    event.size = static_cast<uint64_t>(entry.size_);
    event.time = static_cast<uint64_t>(entry.time_.approx_t_);
    event.stream = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(entry.stream_));
    event.block_bytes = 0;
    event.origin_stack = 0;
    event.next = 0;
    event.next_thread = 0;
    event.other = other_of(entry, 0);
    const int action = static_cast<int>(entry.action_);
    event.action = static_cast<uint8_t>(
        action >= 0 && action < ML_ACTION_OTHER ? action : ML_ACTION_OTHER);
    set_pool(event, entry, 0);
    ml_event_text text = text_of(entry, 0);
    set_internal(text, entry, 0);
    text.compiled = compiled.name;
    text.compiled_bytes = compiled.bytes;
    ml_autograd_fill(&event, &text);
    bound_api->record(bound_source, device_of(entry), &event, &text);
}

extern "C" {

void
ml_tracker_bind(const ml_api *api, const ml_source *source)
{
    bound_api = api;
    bound_source = source;
}

void
ml_tracker_listen(int enabled)
{
    listening.store(enabled, std::memory_order_relaxed);
}

void
ml_tracker_set_devices(int count)
{
    device_total.store(count > 0 ? count : 1, std::memory_order_relaxed);
}

void
ml_tracker_compiled(const char *name, size_t bytes)
{
    compiled.name = name;
    compiled.bytes = bytes;
}

void
ml_tracker_walk_begin(void)
{
    walk_device = 0;
}

void
ml_tracker_walk_end(void)
{
    walk_device = -1;
}

} /* extern "C" */
