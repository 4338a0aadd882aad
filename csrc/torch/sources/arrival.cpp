/* Owns the callback that tells recordings waiting for CUDA that C++ has initialised it:
 * TorchScript or an extension.  For Python, torch.cuda tells.
 *
 * torch runs the callback before every operator, until it has seen CUDA.  So a
 * recording begins with the memory of the first GPU operator, and records everything
 * after it.  The callback never initialises CUDA.  To begin takes the recorder's lock,
 * for which a thread with the GIL must not wait; the interpreter then begins at its
 * next chance. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <atomic>
#include <memory>

#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "bridge.h"
#include "sources/callbacks.h"

namespace memlab::arrival {

namespace {

const ml_api *bound_api;
const ml_source *bound_source;
PyObject *callback; /* owned, never freed; under the GIL */
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
std::atomic<bool> arrived{false};
std::atomic<bool> forked{false};

/* With the GIL, on the main thread. */
int
tell(void *)
{
    try {
        const callbacks::ChangeForAll change;
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

/* Another thread may be running the callback: this waits for its end.  The function's
 * name depends on torch's version. */
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
                /* TorchScript began before this callback listened. */
                bound_api->torchscript_begun(ml_torchscript_running);
            }
            bound_api->ready(bound_source);
        }
    }
    catch (...) {
        /* CUDA cannot be used: the program will get the error itself. */
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
        const callbacks::ChangeForAll change;
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

} // namespace memlab::arrival
