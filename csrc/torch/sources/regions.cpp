/* Owns what torch tells of torch.profiler.record_function() regions, including those of its
 * own optimizers and data loaders, and of collectives.
 *
 * torch tells them to callbacks.  But while a process has one for all threads, each node of a
 * backward pass makes its thread's lists of them anew: a quarter of the instructions that a
 * recording took.  So a thread has the callback only as it enters a region: before the
 * operators by which record_function() begins one, torch runs a kernel of memlab's.  torch
 * keeps with the region whom to tell of its end.  Collectives begin theirs in C++: from a
 * process's first one on, all threads have the callback.
 *
 * It takes locks, so the allocator's callback must never reach this file. */
#include <atomic>
#include <cstring>
#include <memory>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include "bridge.h"
#include "sources/callbacks.h"

namespace memlab::regions {

namespace {

const ml_api *bound_api;

/* Guarded by callbacks::Change. */
/* Bits of the recording sources. */
unsigned listeners;
/* Of the callback on all threads. */
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
bool collectives; /* there was one */
bool placed;      /* the kernels */

std::atomic<bool> listening{false};
/* All threads have the callback while a source records. */
std::atomic<bool> everywhere{false};
std::atomic<uint64_t> last_number{0};

/* This thread enters a region with a callback of its own. */
thread_local bool entering;

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
begin(const at::RecordFunction &function)
{
    if (callbacks::inherited()) {
        return nullptr;
    }
    auto begun = std::make_unique<region>();
    begun->number = last_number.fetch_add(1, std::memory_order_relaxed) + 1;
    tell(0, function, begun->number);
    return begun;
}

std::unique_ptr<at::ObserverContext>
on_begin(const at::RecordFunction &function)
{
    return entering ? nullptr : begin(function);
}

void
on_end(const at::RecordFunction &function, at::ObserverContext *context)
{
    if (context != nullptr && !callbacks::inherited()) {
        tell(1, function, static_cast<region *>(context)->number);
    }
}

at::RecordFunctionCallback
callback_of(at::RecordFunctionCallback::StartCallback start)
{
    return at::RecordFunctionCallback(start, on_end)
        .scopes({at::RecordScope::USER_SCOPE});
}

/* While it lives, the calling thread has the callback. */
struct own_callback {
    at::CallbackHandle own = at::INVALID_CALLBACK_HANDLE;

    own_callback()
    {
        const callbacks::Change change;
        try {
            own = at::addThreadLocalCallback(callback_of(begin));
            entering = true;
        }
        catch (...) {
            /* No memory: the region is left out. */
        }
    }
    own_callback(const own_callback &) = delete;
    own_callback &operator=(const own_callback &) = delete;
    ~own_callback()
    {
        entering = false;
        if (own != at::INVALID_CALLBACK_HANDLE) {
            const callbacks::Change change;
            try {
                at::removeCallback(own);
            }
            catch (...) {
                /* No memory for the list without it: it is told of regions twice. */
            }
        }
    }
};

/* In a callbacks::Change. */
void
settle()
{
    const bool wanted = listeners != 0 && collectives;
    if (wanted == (handle != at::INVALID_CALLBACK_HANDLE)) {
        return;
    }
    if (wanted) {
        handle = at::addGlobalCallback(callback_of(on_begin));
    }
    else {
        at::removeCallback(handle);
        handle = at::INVALID_CALLBACK_HANDLE;
    }
}

/* ---- Kernels ---- */

/* What torch would run without memlab's kernel. */
void
go_on(const c10::OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack)
{
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER,
                                                  c10::DispatchKey::BackendSelect),
                       stack);
}

void
enter_region(const c10::OperatorHandle &op, c10::DispatchKeySet keys,
             torch::jit::Stack *stack)
{
    if (!listening.load(std::memory_order_relaxed) ||
        everywhere.load(std::memory_order_relaxed) || callbacks::inherited()) {
        go_on(op, keys, stack);
        return;
    }
    const own_callback told;
    go_on(op, keys, stack);
}

void
begin_collective(const c10::OperatorHandle &op, c10::DispatchKeySet keys,
                 torch::jit::Stack *stack)
{
    if (!everywhere.load(std::memory_order_relaxed) && !callbacks::inherited()) {
        const callbacks::ChangeForAll change;
        try {
            collectives = true;
            settle();
            /* Last: a thread that is entering a region has a callback of its own. */
            everywhere.store(true);
        }
        catch (...) {
            /* No memory: its region is left out. */
        }
    }
    go_on(op, keys, stack);
}

template <c10::BoxedKernel::BoxedKernelFunction_withDispatchKeys *kernel>
void
place(const c10::OperatorName &name)
{
    /* For ever: another thread may be in the operator. */
    static_cast<void>(
        new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().registerImpl(
            name, c10::DispatchKey::BackendSelect,
            c10::KernelFunction::makeFromBoxedFunction<kernel>(), {}, nullptr,
            "memlab")));
}

/* torch asks for kernels of this key, which these operators lack, first and whatever an
 * operator's arguments are. */
void
place_kernels()
{
    for (const c10::OperatorName &name : c10::Dispatcher::singleton().getAllOpNames()) {
        if (name.name == "profiler::_record_function_enter" ||
            name.name == "profiler::_record_function_enter_new") {
            place<enter_region>(name);
        }
        else if (name.name.compare(0, 6, "c10d::") == 0) {
            place<begin_collective>(name);
        }
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
    /* In a child, a thread that does not exist may hold a lock. */
    if (callbacks::inherited()) {
        return;
    }
    try {
        const callbacks::ChangeForAll change;
        listeners = enabled ? listeners | source : listeners & ~source;
        listening.store(listeners != 0, std::memory_order_relaxed);
        if (!placed) {
            placed = true;
            place_kernels();
        }
        settle();
    }
    catch (...) {
        /* No memory: the recording has no regions. */
        listening.store(false, std::memory_order_relaxed);
    }
}

} /* extern "C" */

} // namespace memlab::regions
