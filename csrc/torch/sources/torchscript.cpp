/* Owns the frames of TorchScript's interpreter, and how memlab learns that there are any.
 *
 * Like native.cpp, not on the allocator callback's proven path: torch copies the frames
 * into memory of its own.  So they are asked for only once Python has called a program of
 * TorchScript: the types of its functions and methods call by a function of memlab's.  A
 * callback of torch's would make each node of a backward pass slower (regions.cpp).
 * Programs that C++ alone runs are noticed if they are the first to use CUDA. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>
#include <tuple>

#include <torch/csrc/jit/frontend/source_range.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include "bridge.h"

namespace memlab::torchscript {

namespace {

const ml_api *bound_api;

/* A type whose objects are programs; CALL is its own. */
struct program_type {
    const char *name;
    ternaryfunc call;
};
program_type function_type = {"ScriptFunction", nullptr};
program_type method_type = {"ScriptMethod", nullptr};

template <program_type *type>
PyObject *
call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    bound_api->torchscript_begun(ml_torchscript_running);
    return type->call(self, args, kwargs);
}

/* For ever, as the call may be under way. */
template <program_type *type>
void
watch(PyObject *module)
{
    PyObject *found = PyObject_GetAttrString(module, type->name);
    if (found != nullptr && PyType_Check(found)) {
        PyTypeObject *program = reinterpret_cast<PyTypeObject *>(found);
        type->call = program->tp_call;
        if (type->call != nullptr) {
            program->tp_call = call<type>;
        }
    }
    Py_XDECREF(found);
    PyErr_Clear();
}

} // namespace

extern "C" {

void
ml_torchscript_bind(const ml_api *api)
{
    bound_api = api;
    PyObject *module = PyImport_ImportModule("torch._C");
    if (module != nullptr) {
        watch<&function_type>(module);
        watch<&method_type>(module);
    }
    Py_XDECREF(module);
    PyErr_Clear();
}

int
ml_torchscript_runs(void) noexcept
{
    try {
        return torch::jit::currentCallstack().empty() ? 0 : 1;
    }
    catch (...) {
        return 0;
    }
}

void
ml_torchscript_running(ml_torchscript_visitor visit, void *context) noexcept
{
    try {
        const std::vector<torch::jit::StackEntry> frames =
            torch::jit::currentCallstack();
        for (size_t i = frames.size(); i-- > 0;) {
            /* torch's "file name" here is the function's name. */
            ml_torchscript_frame frame = {frames[i].filename.c_str(), "??", 0};
            const auto place = frames[i].range.file_line_col();
            if (place) {
                frame.filename = std::get<0>(*place).c_str();
                frame.line = static_cast<int64_t>(std::get<1>(*place));
            }
            visit(context, &frame);
        }
    }
    catch (...) {
        /* No memory for them: the stack has the frames so far. */
    }
}

} /* extern "C" */

} // namespace memlab::torchscript
