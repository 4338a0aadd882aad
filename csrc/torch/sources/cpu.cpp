/* Owns the "cpu" source: a wrapper around torch's CPU allocator that reports
 * allocations and frees.
 *
 * The wrapper returns the wrapped allocator's own pointers, each its own context, as
 * torch's default does.  So raw_allocate, copy-on-write and other users of a simple
 * DataPtr work as before.  The address leads to what is needed for the free
 * (cpu_table.h).  Storages keep a pointer to their allocator, so the wrapper is never
 * freed; uninstalled, it passes calls through.
 *
 * Nothing orders the callers, so the source is not ordered. */
#include <atomic>
#include <new>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/ApproximateClock.h>

#include "bridge.h"
#include "sources/cpu_table.h"

namespace memlab::cpu {

namespace {

/* Allocations up to this size count as small, as in torch's CUDA allocator. */
constexpr uint64_t small_bytes = 1u << 20;

/* Written before anything can be recorded, never after. */
const ml_api *bound_api;
extern ml_source source;

std::atomic<int> listening{0};
std::atomic<uint64_t> current_bytes{0};
std::atomic<uint64_t> peak_bytes{0};
std::atomic<uint64_t> live_count{0};
std::atomic<uint64_t> untracked_count{0};
std::atomic<const char *> failure{""};

void
add_bytes(uint64_t bytes) noexcept
{
    const uint64_t now =
        current_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    uint64_t peak = peak_bytes.load(std::memory_order_relaxed);
    while (now > peak &&
           !peak_bytes.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
    live_count.fetch_add(1, std::memory_order_relaxed);
}

void
subtract_bytes(uint64_t bytes) noexcept
{
    current_bytes.fetch_sub(bytes, std::memory_order_relaxed);
    live_count.fetch_sub(1, std::memory_order_relaxed);
}

/* TEXT: receives what is known of the running autograd node. */
ml_event
new_event(ml_action action, uint64_t addr, uint64_t size, ml_event_text *text) noexcept
{
    ml_event event{};
    event.action = static_cast<uint8_t>(action);
    event.addr = addr;
    event.size = size;
    event.block_bytes = size;
    event.flags = ML_EVENT_BLOCK_KNOWN;
    event.time = static_cast<uint64_t>(c10::getApproximateTime());
    ml_autograd_fill(&event, text);
    return event;
}

/* torch's schema has two events for a free; on the CPU both happen at once. */
void
record_free(const ml_cpu_node *node) noexcept
{
    if (listening.load(std::memory_order_relaxed) == 0) {
        return;
    }
    ml_event_text text{};
    ml_event event =
        new_event(ML_ACTION_FREE_REQUESTED, node->addr.load(std::memory_order_relaxed),
                  node->size.load(std::memory_order_relaxed), &text);
    event.origin_stack = node->stack.load(std::memory_order_relaxed);
    bound_api->record(&source, 0, &event, &text);
    event.action = ML_ACTION_FREE_COMPLETED;
    bound_api->record(&source, 0, &event, &text);
}

/* Ends a node that is no longer in the table. */
void
retire(ml_cpu_node *node) noexcept
{
    subtract_bytes(node->size.load(std::memory_order_relaxed));
    record_free(node);
    ml_cpu_node_give_back(node);
}

class wrapper final : public c10::Allocator {
  public:
    c10::DataPtr allocate(size_t bytes) override
    {
        c10::DataPtr data = inner.load(std::memory_order_acquire)->allocate(bytes);
        if (listening.load(std::memory_order_relaxed) == 0 || bytes == 0 ||
            data.get() == nullptr) {
            return data;
        }
        return track(std::move(data), bytes);
    }

    c10::DeleterFnPtr raw_deleter() const override
    {
        /* The raw interface is safe only if the wrapped allocator offers it: memory
         * allocated while nothing was recorded is its own. */
        return inner.load(std::memory_order_acquire)->raw_deleter() != nullptr
                   ? free
                   : nullptr;
    }

    void copy_data(void *to, const void *from, size_t bytes) const override
    {
        inner.load(std::memory_order_acquire)->copy_data(to, from, bytes);
    }

    std::atomic<c10::Allocator *> inner{nullptr};

  private:
    static void free(void *pointer) noexcept;
    c10::DataPtr track(c10::DataPtr data, size_t bytes) noexcept;
};

/* Made once, never destroyed. */
wrapper *the_wrapper;

c10::DataPtr
wrapper::track(c10::DataPtr data, size_t bytes) noexcept
{
    void *const pointer = data.get();
    const uint64_t addr = reinterpret_cast<uint64_t>(pointer);
    ml_cpu_node *node = ml_cpu_table_covers(addr) ? ml_cpu_node_take() : nullptr;
    if (node == nullptr) {
        untracked_count.fetch_add(1, std::memory_order_relaxed);
        return data;
    }
    node->addr.store(addr, std::memory_order_relaxed);
    node->size.store(bytes, std::memory_order_relaxed);
    node->stack.store(0, std::memory_order_relaxed);
    node->deleter = data.get_deleter();
    node->context = data.get_context();
    ml_cpu_node *stale;
    if (!ml_cpu_table_insert(node, &stale)) {
        ml_cpu_node_give_back(node);
        untracked_count.fetch_add(1, std::memory_order_relaxed);
        return data;
    }
    if (stale != nullptr) {
        retire(stale);
    }
    add_bytes(bytes);
    /* Recorded after the node is in the table: a walk that starts in between sees the
     * allocation at least once. */
    ml_event_text text{};
    ml_event event = new_event(ML_ACTION_ALLOC, addr, bytes, &text);
    node->stack.store(bound_api->record(&source, 0, &event, &text),
                      std::memory_order_relaxed);
    const c10::Device device = data.device();
    data.release_context();
    return {pointer, pointer, free, device};
}

void
wrapper::free(void *pointer) noexcept
{
    ml_cpu_node *node = ml_cpu_table_remove(reinterpret_cast<uint64_t>(pointer));
    if (node == nullptr) {
        const c10::DeleterFnPtr deleter =
            the_wrapper->inner.load(std::memory_order_acquire)->raw_deleter();
        if (deleter != nullptr) {
            deleter(pointer);
        }
        return;
    }
    const c10::DeleterFnPtr deleter = node->deleter;
    void *const context = node->context;
    /* Recorded before the memory is given back, so that the free precedes the next
     * allocation at this address. */
    retire(node);
    deleter(context);
}

/* The priority of torch's current CPU allocator, which c10 does not reveal: the lowest
 * that may replace it.  A higher one would exclude others forever. */
uint8_t priority;
/* Installed over torch's allocator and not removed. */
bool in_place;

void
install()
{
    if (in_place) {
        return;
    }
    the_wrapper->inner.store(c10::GetCPUAllocator(), std::memory_order_release);
    for (int p = 0; p <= UINT8_MAX && c10::GetCPUAllocator() != the_wrapper; p++) {
        priority = static_cast<uint8_t>(p);
        c10::SetCPUAllocator(the_wrapper, priority);
    }
    in_place = true;
}

/* An allocator installed over memlab's may wrap it, so memlab's stays beneath. */
void
uninstall()
{
    if (in_place && c10::GetCPUAllocator() == the_wrapper) {
        c10::SetCPUAllocator(the_wrapper->inner.load(std::memory_order_relaxed),
                             priority);
        in_place = false;
    }
}

int
device_count(void *)
{
    return 1;
}

int
attach(void *)
{
    if (ml_cpu_table_init() != 0) {
        failure.store("no address space left for the table of CPU allocations",
                      std::memory_order_relaxed);
        return ML_ENOMEM;
    }
    if (the_wrapper == nullptr) {
        the_wrapper = new (std::nothrow) wrapper;
    }
    return the_wrapper != nullptr ? 0 : ML_ENOMEM;
}

void
enable(void *, int enabled)
{
    if (the_wrapper == nullptr) {
        return;
    }
    if (enabled) {
        install();
        listening.store(1, std::memory_order_relaxed);
    }
    else {
        listening.store(0, std::memory_order_relaxed);
        uninstall();
    }
    ml_regions_listen(ML_REGIONS_CPU, enabled);
}

int
walk(void *, const ml_walk_visitor *visitor)
{
    ml_cpu_view view;
    size_t visited = 0;
    int found;
    for (uint32_t i = 0; (found = ml_cpu_table_view(i, &view)) >= 0; i++) {
        if (found == 0) {
            continue;
        }
        ml_segment segment{};
        segment.addr = view.addr;
        segment.total = view.size;
        segment.allocated = view.size;
        segment.active = view.size;
        segment.requested = view.size;
        segment.stack = view.stack;
        segment.small = view.size <= small_bytes;
        segment.first_block = visited++;
        segment.block_count = 1;
        ml_block block{};
        block.addr = view.addr;
        block.size = view.size;
        block.requested = view.size;
        block.stack = view.stack;
        block.state = ML_BLOCK_ALLOCATED;
        int result = visitor->segment(visitor->context, 0, &segment);
        if (result == 0) {
            result = visitor->block(visitor->context, 0, &block);
        }
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

int
rules(void *, int, ml_allocator_rules *out)
{
    *out = ml_allocator_rules{};
    out->max_split_bytes = UINT64_MAX;
    return 0;
}

int
totals(void *, int, ml_totals *current, ml_totals *peak)
{
    const uint64_t now = current_bytes.load(std::memory_order_relaxed);
    const uint64_t most = peak_bytes.load(std::memory_order_relaxed);
#define XX(name) \
    current->name = now; \
    peak->name = most;
    ML_TOTALS(XX)
#undef XX
    return 0;
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
    return failure.load(std::memory_order_relaxed);
}

ml_source source = {sizeof(ml_source),
                    ML_ABI_VERSION,
                    "cpu",
                    nullptr,
                    0,
                    device_count,
                    attach,
                    enable,
                    walk,
                    rules,
                    totals,
                    unix_ns,
                    now,
                    error,
                    nullptr,
                    nullptr,
                    nullptr,
                    nullptr,
                    nullptr};

} // namespace

extern "C" {

ml_source *
ml_cpu_source(const ml_api *api)
{
    bound_api = api;
    return &source;
}

void
ml_cpu_forked(void)
{
    listening.store(0, std::memory_order_relaxed);
}

void
ml_cpu_count(ml_cpu_counters *out)
{
    out->live = live_count.load(std::memory_order_relaxed);
    out->untracked = untracked_count.load(std::memory_order_relaxed);
    out->installed = the_wrapper != nullptr && c10::GetCPUAllocator() == the_wrapper;
}

} /* extern "C" */

} // namespace memlab::cpu
