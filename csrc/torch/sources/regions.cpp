/* Owns the callback by which torch tells of torch.profiler.record_function() regions,
 * those of torch's own optimizers and data loaders among them, and of programs in
 * TorchScript.
 *
 * It is there while a source records, and for these two scopes only: torch runs
 * nothing for an operator because of it.  Telling takes a lock, so nothing here
 * may be reached from the allocator's callback. */
#include <atomic>
#include <cstring>
#include <memory>

#include <ATen/record_function.h>

#include "bridge.h"

namespace {

const ml_api *bound_api;
/* Bits of the sources that record.  Changed under the recorder's lock only. */
unsigned listeners;
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
/* Whether this has ever changed torch's list of callbacks. */
std::atomic<bool> changed{false};
std::atomic<bool> forked{false};
std::atomic<uint64_t> last_number{0};

/* Pairs a region's end, which may come on another thread, with its begin. */
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
    /* In a child torch's own lock may be held by a thread that is not there and copies the
     * list that was changed. */
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
        /* No memory for it: the recording has no regions. */
        listeners = 0;
    }
}

void
ml_regions_changed(void)
{
    changed.store(true, std::memory_order_relaxed);
}

/* After a change of torch's list of callbacks each thread copies it, under torch's lock, in
 * its next operator.  In a child that could be too late: the lock may be held by another
 * thread, which is not there, and the child would wait for it for ever. */
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
            /* No memory for it: the child copies the list itself. */
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
