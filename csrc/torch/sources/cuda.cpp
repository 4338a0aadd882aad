/* Owns the "cuda" source: attaching to c10's CUDA caching allocator, and reading its
 * segments, settings and totals.  tracker.cpp has the callback.  Never initialises
 * CUDA. */
#include <atomic>
#include <cmath>
#include <cstdio>
#include <exception>
#include <limits>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/ApproximateClock.h>

#include "bridge.h"
#include "sources/cuda_settings.h"

void ml_tracker_call(const c10::cuda::CUDACachingAllocator::TraceEntry &entry) noexcept;

namespace memlab::cuda {

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

/* c10 cannot detach, so each is done once a process. */
std::atomic<bool> tracking{false};
std::atomic<bool> observing{false};
std::atomic<ml_oom_hook> oom_hook{nullptr};
std::atomic<bool> forked{false};
/* Written before anything is attached, never after. */
const ml_api *bound_api;
extern ml_source source;
/* This thread's last failure: a static text or failure_text. */
thread_local const char *failure = "";
thread_local char failure_text[512];

int
fail(int error, const char *text) noexcept
{
    failure = text;
    return error;
}

int
fail_exception(const char *what) noexcept
{
    std::snprintf(failure_text, sizeof failure_text, "torch's CUDA allocator: %s",
                  what);
    return fail(ML_ESOURCE, failure_text);
}

/* Runs CALL, which returns 0 or a negative error; turns exceptions into errors. */
template <class Call>
int
guarded(Call &&call) noexcept
{
    try {
        return call();
    }
    catch (const std::bad_alloc &) {
        return fail(ML_ENOMEM, "out of memory");
    }
    catch (const std::exception &error) {
        return fail_exception(error.what());
    }
    catch (...) {
        return fail_exception("an unknown exception");
    }
}

/* Only torch's own allocator reports events. */
int
check_backend()
{
    const std::string name = caching::get()->name();
    if (name == "native") {
        return 0;
    }
    if (name == "cudaMallocAsync") {
        return fail(
            ML_EUNSUPPORTED,
            "torch runs with PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync, an "
            "allocator that reports no memory events; remove "
            "backend:cudaMallocAsync from PYTORCH_CUDA_ALLOC_CONF to record");
    }
    return fail(
        ML_EUNSUPPORTED,
        "torch.cuda.memory.change_current_allocator() has replaced torch's CUDA "
        "allocator by one that reports no memory events; leave out that call to "
        "record (a torch.cuda.MemPool with the same allocator is recorded)");
}

bool
initialized()
{
    return caching::get()->initialized();
}

/* c10 tells the process's allowance; without a limit, that is the device's total.  The
 * fraction is their quotient, so the total is exact to the byte. */
void
note_out_of_memory(int64_t device, uint64_t asked, uint64_t most,
                   uint64_t free) noexcept
{
    uint64_t total = most;
    uint64_t allowed = UINT64_MAX;
    guarded([&] {
        const double fraction =
            caching::getMemoryFraction(static_cast<c10::DeviceIndex>(device));
        if (fraction > 0.0 && fraction < 1.0) {
            allowed = most;
            total = static_cast<uint64_t>(
                std::llround(static_cast<double>(most) / fraction));
        }
        return 0;
    });
    bound_api->out_of_memory(&source, static_cast<int>(device), asked, free, total,
                             allowed);
}

/* c10 holds no lock around it; the caller may hold the GIL. */
void
on_out_of_memory(int64_t device, size_t alloc_bytes, size_t total_bytes,
                 size_t free_bytes) noexcept
{
    note_out_of_memory(device, alloc_bytes, total_bytes, free_bytes);
    const ml_oom_hook hook = oom_hook.load(std::memory_order_acquire);
    if (hook != nullptr) {
        hook(device, alloc_bytes, total_bytes, free_bytes);
    }
}

int
device_count(void *)
{
    int count = 0;
    guarded([&] {
        if (caching::get()->name() == "native" && initialized()) {
            count = c10::cuda::device_count();
        }
        return 0;
    });
    return count < ML_DEVICE_MAX ? count : ML_DEVICE_MAX;
}

/* Runs ONCE, guarded by DONE, if torch's allocator is capable and ready.  c10 accepts
 * trackers and observers before CUDA is initialised, but then never calls them. */
template <class Once>
int
attach_once(std::atomic<bool> &done, Once &&once)
{
    return guarded([&] {
        int result = check_backend();
        if (result == 0 && !initialized()) {
            result = fail(ML_ESTATE, "CUDA is not initialised yet");
        }
        if (result == 0 && !done.exchange(true)) {
            once();
        }
        return result;
    });
}

void
observe()
{
    if (!observing.exchange(true)) {
        caching::attachOutOfMemoryObserver(on_out_of_memory);
    }
}

/* Before CUDA is initialised, device_count() is 0 and nothing can be attached.  The
 * recorder attaches again when it learns that there are devices. */
int
attach(void *)
{
    /* Threads that do not exist in this child may hold the devices' locks. */
    if (forked.load(std::memory_order_relaxed)) {
        return fail(ML_EUNSUPPORTED,
                    "a forked child of a process that uses CUDA records "
                    "nothing; start a new one");
    }
    const int result = attach_once(tracking, [] {
        ml_tracker_set_devices(c10::cuda::device_count());
        caching::attachAllocatorTraceTracker(ml_tracker_call);
        observe();
    });
    return result == ML_ESTATE ? 0 : result;
}

void
enable(void *, int enabled)
{
    ml_tracker_listen(enabled);
    ml_regions_listen(ML_REGIONS_CUDA, enabled);
}

/* c10's snapshot.  The slow part is the copy of torch's own trace, which comes with
 * the annotations.  Both are left out if this version can and WANTS_ANNOTATIONS is
 * false. */
template <class Allocator>
auto
take_snapshot(Allocator *allocator, bool wants_annotations, int)
    -> decltype(allocator->snapshot({0, 0}, true))
{
    return allocator->snapshot({0, 0}, wants_annotations);
}

template <class Allocator>
auto
take_snapshot(Allocator *allocator, bool, long) -> decltype(allocator->snapshot())
{
    return allocator->snapshot();
}

/* Converts unix microseconds back to ticks: torch converts annotations, and the visitor
 * takes ticks.  The clock is linear, so two points give the inverse. */
uint64_t
ticks_of_microseconds(int64_t microseconds)
{
    const uint64_t now = static_cast<uint64_t>(c10::getApproximateTime());
    /* Forward, because c10 converts ticks before its first measurement to 0. */
    const uint64_t span = uint64_t{1} << 40;
    uint64_t points[2] = {now, now + span};
    if (ml_clock_unix_ns(points, sizeof points[0], 2) != 0 || points[1] <= points[0]) {
        return 0;
    }
    const double per_ns =
        static_cast<double>(span) / static_cast<double>(points[1] - points[0]);
    /* The middle of the microsecond, so that truncation returns it. */
    const int64_t ns = microseconds * 1000 + 500 - static_cast<int64_t>(points[0]);
    return now + static_cast<uint64_t>(
                     static_cast<int64_t>(static_cast<double>(ns) * per_ns));
}

template <class Annotation>
int
visit_annotations(const ml_walk_visitor *visitor, const std::vector<Annotation> &all)
{
    for (const auto &entry : all) {
        const auto name = entry.metadata_.find("name");
        const auto stage = entry.metadata_.find("stage");
        if (name == entry.metadata_.end() || stage == entry.metadata_.end()) {
            continue;
        }
        const int result = visitor->annotation(visitor->context, stage->second.c_str(),
                                               name->second.c_str(), entry.device_,
                                               ticks_of_microseconds(entry.time_.t_));
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

template <class Segment>
int
visit_segment(const ml_walk_visitor *visitor, const Segment &from, size_t first_block)
{
    ml_segment segment{};
    segment.addr = from.address;
    segment.total = from.total_size;
    segment.allocated = from.allocated_size;
    segment.active = from.active_size;
    segment.requested = from.requested_size;
    segment.stream = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(from.stream));
    segment.pool[0] = from.owner_private_pool_id.first;
    segment.pool[1] = from.owner_private_pool_id.second;
    segment.small = !from.is_large;
    segment.expandable = from.is_expandable;
    segment.first_block = first_block;
    segment.block_count = from.blocks.size();
    int result = visitor->segment(visitor->context, from.device, &segment);
    uint64_t addr = from.address;
    for (const auto &part : from.blocks) {
        if (result != 0) {
            break;
        }
        ml_block block{};
        block.addr = addr;
        block.size = part.size;
        block.requested = part.requested_size;
        if (part.allocated) {
            block.state = ML_BLOCK_ALLOCATED;
        }
        else {
            block.state = part.active ? ML_BLOCK_PENDING_FREE : ML_BLOCK_INACTIVE;
        }
        result = visitor->block(visitor->context, from.device, &block);
        addr += part.size;
    }
    return result;
}

int
walk(void *, const ml_walk_visitor *visitor)
{
    return guarded([&] {
        int result = check_backend();
        /* Before CUDA is initialised there is no memory, and c10's snapshot would
         * initialise it. */
        if (result != 0 || !initialized()) {
            return result;
        }
        ml_tracker_walk_begin();
        struct walk_end {
            ~walk_end()
            {
                ml_tracker_walk_end();
            }
        };
        /* torch keeps annotations only while its own history is on. */
        const bool wants_annotations =
            visitor->annotation != nullptr && caching::get()->isHistoryEnabled();
        const auto snapshot = [&] {
            const walk_end at_exit;
            return take_snapshot(caching::get(), wants_annotations, 0);
        }();
        if (visitor->setting != nullptr) {
            result = ml_visit_settings(visitor, snapshot.config_metadata);
        }
        if (result == 0 && wants_annotations) {
            result = visit_annotations(visitor, snapshot.external_annotations);
        }
        size_t next_block[ML_DEVICE_MAX] = {};
        for (const auto &segment : snapshot.segments) {
            if (result != 0) {
                break;
            }
            const int device = segment.device;
            if (device < 0 || device >= ML_DEVICE_MAX) {
                continue;
            }
            result = visit_segment(visitor, segment, next_block[device]);
            next_block[device] += segment.blocks.size();
        }
        return result;
    });
}

/* Deprecated names, but the only ones with the same meaning from torch 2.6 to 2.13. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
int
rules(void *, int, ml_allocator_rules *out)
{
    return guarded([&] {
        ml_allocator_rules found{};
        const size_t split = caching::CUDAAllocatorConfig::max_split_size();
        found.max_split_bytes =
            split == std::numeric_limits<size_t>::max() ? UINT64_MAX : split;
        const std::vector<size_t> divisions =
            caching::CUDAAllocatorConfig::roundup_power2_divisions();
        for (size_t i = 0; i < ml_division_count && i < divisions.size(); i++) {
            found.roundup_divisions[i] = static_cast<uint32_t>(divisions[i]);
        }
        found.expandable_segments = caching::CUDAAllocatorConfig::expandable_segments();
        found.has_segments = 1;
        *out = found;
        return 0;
    });
}
#pragma GCC diagnostic pop

/* Passes torch's statistics of DEVICE to USE. */
template <class Use>
int
with_stats(int device, Use use)
{
    return guarded([&] {
        /* A thread that does not exist in this child may hold the device's lock. */
        if (forked.load(std::memory_order_relaxed)) {
            return fail(ML_ESTATE, "a forked child cannot read its parent's figures");
        }
        if (!initialized()) {
            return fail(ML_ESTATE, "CUDA is not initialised yet");
        }
        if (device < 0 || device >= c10::cuda::device_count()) {
            return fail(ML_EINVALID, "no such CUDA device");
        }
        use(caching::getDeviceStats(static_cast<c10::DeviceIndex>(device)));
        return 0;
    });
}

int
totals(void *, int device, ml_totals *current, ml_totals *peak)
{
    return with_stats(device, [&](const auto &stats) {
#define XX(name) \
    current->name = static_cast<uint64_t>(stats.name##_bytes[0].current); \
    peak->name = static_cast<uint64_t>(stats.name##_bytes[0].peak);
        ML_TOTALS(XX)
#undef XX
    });
}

/* torch's statistics, with the counter that only some versions have. */
template <class Stats, class = void> struct all_counters : Stats {
    int64_t num_oom_rejections = 0;
};

template <class Stats>
struct all_counters<Stats, std::void_t<decltype(Stats::num_oom_rejections)>> : Stats {
};

int
counters(void *, int device, ml_source_counters *out)
{
    return with_stats(device, [&](const auto &stats) {
        const all_counters<std::decay_t<decltype(stats)>> all{stats};
#define XX(name) out->of[ML_SOURCE_COUNTER_##name] = static_cast<uint64_t>(all.name);
        ML_SOURCE_COUNTERS(XX)
#undef XX
    });
}

int
changes(void *, int device, uint64_t *out)
{
    return with_stats(device, [&](const auto &stats) {
        *out = 0;
        /* Blocks; blocks that still wait for a stream; growth of segments. */
        for (const auto &stat :
             {stats.allocation[0], stats.active[0], stats.reserved_bytes[0]}) {
            *out += static_cast<uint64_t>(stat.allocated + stat.freed);
        }
    });
}

void
watch_uses(void *, int enabled)
{
    ml_torch_uses_listen(enabled);
}

int
unix_ns(void *, uint64_t *ticks, size_t stride_bytes, size_t count)
{
    return ml_clock_unix_ns(ticks, stride_bytes, count);
}

uint64_t
now(void *)
{
    return static_cast<uint64_t>(c10::getApproximateTime());
}

const char *
error(void *)
{
    return failure;
}

int
pinned(void *, uint64_t *in_use, uint64_t *held)
{
    return ml_host_memory(in_use, held);
}

ml_source source = {sizeof(ml_source),
                    ML_ABI_VERSION,
                    "cuda",
                    nullptr,
                    1,
                    device_count,
                    attach,
                    enable,
                    walk,
                    rules,
                    totals,
                    unix_ns,
                    now,
                    error,
                    pinned,
                    counters,
                    changes,
                    watch_uses,
                    nullptr};

} // namespace

extern "C" {

const char *
ml_cuda_error(void)
{
    return error(nullptr);
}

int
ml_cuda_walk(const ml_walk_visitor *visitor)
{
    return walk(nullptr, visitor);
}

ml_source *
ml_cuda_source(const ml_api *api)
{
    bound_api = api;
    ml_tracker_bind(api, &source);
    ml_torch_uses_bind(api, &source);
    return &source;
}

void
ml_cuda_forked(void)
{
    /* In a child forked before CUDA is initialised, no device's lock can be held. */
    if (initialized()) {
        forked.store(true, std::memory_order_relaxed);
    }
    ml_tracker_listen(0);
    ml_torch_uses_forked();
    /* The files to write are the parent's. */
    oom_hook.store(nullptr, std::memory_order_release);
}

void
ml_cuda_set_oom_hook(ml_oom_hook hook)
{
    oom_hook.store(hook, std::memory_order_release);
}

int
ml_cuda_observe_oom(void)
{
    static std::atomic<bool> checked{false};
    return attach_once(checked, observe);
}

} /* extern "C" */

} // namespace memlab::cuda
