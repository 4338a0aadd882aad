/* Owns the callback by which recordings that wait for CUDA learn that C++ has initialised it:
 * TorchScript, an extension.  Of Python's own torch.cuda tells.
 *
 * torch runs it before every operator, and only until it has seen CUDA: so what the first
 * operator on a GPU allocates itself is there when the recording begins, and all that
 * comes after is recorded.  It never initialises CUDA.  Beginning takes the recorder's
 * lock, which a thread with the GIL must not wait for: there the interpreter does it at
 * its next chance. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <atomic>
#include <memory>

#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "bridge.h"

namespace {

const ml_api *bound_api;
const ml_source *bound_source;
PyObject *callback; /* owned, for ever; under the GIL */
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
std::atomic<bool> arrived{false};
std::atomic<bool> forked{false};

/* With the GIL, on the main thread. */
int
tell(void *)
{
    try {
        at::removeCallback(handle);
    }
    catch (...) {
        /* It stays, and does nothing. */
    }
    PyObject *result = PyObject_CallNoArgs(callback);
    if (result == nullptr) {
        PyErr_WriteUnraisable(callback);
    }
    Py_XDECREF(result);
    return 0;
}

/* Another thread may be in the middle of it: this waits until it is done.  By the name that
 * this version has. */
template <class Context>
auto
await_initialisation(Context &context, int)
    -> decltype(context.lazyInitDevice(at::kCUDA), void())
{
    context.lazyInitDevice(at::kCUDA);
}

template <class Context>
void
await_initialisation(Context &context, long)
{
    context.lazyInitCUDA();
}

std::unique_ptr<at::ObserverContext>
on_begin(const at::RecordFunction &)
{
    if (arrived.load(std::memory_order_relaxed) ||
        forked.load(std::memory_order_relaxed) ||
        !c10::cuda::CUDACachingAllocator::get()->initialized() ||
        arrived.exchange(true)) {
        return nullptr;
    }
    try {
        await_initialisation(at::globalContext(), 0);
        if (PyGILState_Check() == 0) {
            if (ml_torchscript_runs() != 0) {
                /* It began before anybody listened. */
                bound_api->torchscript_begun(ml_torchscript_running);
            }
            bound_api->ready(bound_source);
        }
    }
    catch (...) {
        /* CUDA cannot be used: the program is about to hear of it. */
    }
    if (Py_AddPendingCall(tell, nullptr) != 0) {
        /* The interpreter's queue is full: the next operator tries again. */
        arrived.store(false);
    }
    return nullptr;
}

} // namespace

extern "C" {

void
ml_arrival_bind(const ml_api *api, const ml_source *source)
{
    bound_api = api;
    bound_source = source;
}

int
ml_arrival_watch(PyObject *function)
{
    if (callback != nullptr) {
        return 0;
    }
    callback = Py_NewRef(function);
    try {
        ml_regions_changed();
        handle = at::addGlobalCallback(at::RecordFunctionCallback(on_begin).scopes(
            {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
        return 0;
    }
    catch (...) {
        return ML_ENOMEM;
    }
}

void
ml_arrival_forked(void)
{
    forked.store(true, std::memory_order_relaxed);
}

} /* extern "C" */
