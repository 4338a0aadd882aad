/* Owns the callback by which torch reports torch.profiler.record_function() regions,
 * including those of its own optimizers and data loaders, and TorchScript programs.
 *
 * It exists only while a source records, for these two scopes: torch runs nothing for
 * an operator because of it.  It takes a lock, so the allocator's callback must never
 * reach this file. */
#include <atomic>
#include <cstring>
#include <memory>

#include <ATen/record_function.h>

#include "bridge.h"

namespace {

const ml_api *bound_api;
/* Bits of the recording sources.  Changed only under the recorder's lock. */
unsigned listeners;
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
/* Whether this has ever changed torch's list of callbacks. */
std::atomic<bool> changed{false};
std::atomic<bool> forked{false};
std::atomic<uint64_t> last_number{0};

/* Connects a region's end, which may come on another thread, with its begin. */
struct region : at::ObserverContext {
    uint64_t number = 0;
};

void
tell(int end, const at::RecordFunction &function, uint64_t number)
{
    const char *name = function.name();
    bound_api->region(end, number, name, name != nullptr ? std::strlen(name) : 0);
}

std::unique_ptr<at::ObserverContext>
on_begin(const at::RecordFunction &function)
{
    if (forked.load(std::memory_order_relaxed)) {
        return nullptr;
    }
    if (function.scope() == at::RecordScope::TORCHSCRIPT_FUNCTION) {
        bound_api->torchscript_begun(ml_torchscript_running);
        return nullptr;
    }
    auto begun = std::make_unique<region>();
    begun->number = last_number.fetch_add(1, std::memory_order_relaxed) + 1;
    tell(0, function, begun->number);
    return begun;
}

void
on_end(const at::RecordFunction &function, at::ObserverContext *context)
{
    if (context != nullptr && !forked.load(std::memory_order_relaxed)) {
        tell(1, function, static_cast<region *>(context)->number);
    }
}

} // namespace

extern "C" {

void
ml_regions_bind(const ml_api *api)
{
    bound_api = api;
}

void
ml_regions_listen(unsigned source, int enabled)
{
    /* In a child, a thread that does not exist may hold torch's lock, which protects
     * the copy of a changed list. */
    if (forked.load(std::memory_order_relaxed)) {
        return;
    }
    const unsigned before = listeners;
    listeners = enabled ? listeners | source : listeners & ~source;
    try {
        changed.store(true, std::memory_order_relaxed);
        if (before == 0 && listeners != 0) {
            handle = at::addGlobalCallback(
                at::RecordFunctionCallback(on_begin, on_end)
                    .scopes({at::RecordScope::USER_SCOPE,
                             at::RecordScope::TORCHSCRIPT_FUNCTION}));
        }
        else if (before != 0 && listeners == 0) {
            at::removeCallback(handle);
        }
    }
    catch (...) {
        /* No memory: the recording has no regions. */
        listeners = 0;
    }
}

void
ml_regions_changed(void)
{
    changed.store(true, std::memory_order_relaxed);
}

/* After a change of torch's list of callbacks, each thread copies the list, under
 * torch's lock, in its next operator.  In a child that may be too late: a thread that
 * does not exist there may hold the lock, and the child would wait forever. */
void
ml_regions_before_fork(void)
{
    if (changed.load(std::memory_order_relaxed) &&
        !forked.load(std::memory_order_relaxed)) {
        try {
            static_cast<void>(
                at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE));
        }
        catch (...) {
            /* No memory: the child copies the list itself. */
        }
    }
}

void
ml_regions_forked(void)
{
    if (changed.load(std::memory_order_relaxed)) {
        forked.store(true, std::memory_order_relaxed);
    }
}

} /* extern "C" */
