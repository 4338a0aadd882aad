/* Owns the callback by which torch reports the memory that an operator uses: the
 * storages of its inputs at its begin and end, and those of its outputs.
 *
 * It exists only while a recording watches uses, because it costs a part of every
 * operator.  It does not see work on a device without a torch operator.  Known cases
 * are reported, so that a last use is never too early: a custom autograd.Function's
 * backward pass, with kernels of its own, and a compiled graph.  It takes no lock, yet
 * the allocator's callback must never reach this file. */
/* RecordFunction has no debugging fields in torch's builds.  Without this definition,
 * the header would have them, and other offsets. */
#ifndef NDEBUG
#define NDEBUG 1
#endif

#include <atomic>
#include <cstring>
#include <memory>

#include <ATen/core/TensorBase.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/util/SmallVector.h>

#include "bridge.h"
#include "objects/graph.h"
#include "objects/tensor_fields.h"

namespace {

const ml_api *bound_api;
const ml_source *bound_source;
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
bool changed; /* whether this has ever changed torch's list of callbacks */
std::atomic<bool> forked{false};

/* Deeper nested lists are ignored: no operator of torch's has any. */
constexpr int most_depth = 3;

using use_marks = c10::SmallVector<ml_use_mark, 8>;

struct operation : at::ObserverContext {
    use_marks marks;
    bool custom = false; /* it may run any kernel */
};

void add_parts(use_marks &marks, c10::TensorImpl &tensor);

void
add(use_marks &marks, c10::TensorImpl &tensor)
{
    const c10::Storage &storage = ml_tensor_fields::storage(tensor);
    if (!storage) {
        add_parts(marks, tensor);
        return;
    }
    const at::DataPtr &data = ml_storage_data(*storage.unsafeGetStorageImpl());
    if (data.get() == nullptr || data.device().type() != c10::DeviceType::CUDA) {
        return;
    }
    /* The allocator's own pointers have the block itself as their context. */
    const bool inner = data.get_context() != data.get();
    marks.push_back(
        {reinterpret_cast<uint64_t>(data.get()), data.device().index(), inner ? 1 : 0});
}

void
add_parts(use_marks &marks, c10::TensorImpl &tensor)
{
    ml_visit_components(tensor, [&marks](const char *, const at::Tensor &component) {
        if (component.defined()) {
            add(marks, *component.unsafeGetTensorImpl());
        }
    });
}

void
add_value(use_marks &marks, const c10::IValue &value, int depth)
{
    if (value.isTensor()) {
        const at::Tensor &tensor = value.toTensor();
        if (tensor.defined()) {
            add(marks, *tensor.unsafeGetTensorImpl());
        }
    }
    else if (depth < most_depth && value.isList()) {
        if (!value.isIntList() && !value.isDoubleList() && !value.isBoolList()) {
            for (const c10::IValue &item : value.toListRef()) {
                add_value(marks, item, depth + 1);
            }
        }
    }
    else if (depth < most_depth && value.isTuple()) {
        for (const c10::IValue &item : value.toTupleRef().elements()) {
            add_value(marks, item, depth + 1);
        }
    }
}

void
tell(const use_marks &marks)
{
    if (!marks.empty()) {
        bound_api->used(bound_source, marks.data(), marks.size());
    }
}

bool
begins_with(const at::RecordFunction &function, const char *start)
{
    const char *name = function.name();
    return name != nullptr && std::strncmp(name, start, std::strlen(start)) == 0;
}

/* Its output is not yet written: the next writer, perhaps unseen, uses it first. */
bool
is_empty(const at::RecordFunction &function)
{
    return begins_with(function, "aten::empty") ||
           begins_with(function, "aten::new_empty");
}

/* A graph made by torch.compile has kernels of its own. */
bool
is_compiled(const at::RecordFunction &function)
{
    return begins_with(function, "CompiledFunction");
}

/* One of the node classes for programs' own functions, in Python or C++. */
bool
is_custom(const char *type)
{
    return type != nullptr && (std::strstr(type, "6PyNode") != nullptr ||
                               std::strstr(type, "7CppNode") != nullptr);
}

std::unique_ptr<at::ObserverContext>
on_begin(const at::RecordFunction &function)
{
    if (forked.load(std::memory_order_relaxed)) {
        return nullptr;
    }
    auto begun = std::make_unique<operation>();
    if (is_compiled(function)) {
        bound_api->use_unseen(bound_source);
    }
    begun->custom = function.scope() == at::RecordScope::BACKWARD_FUNCTION &&
                    is_custom(ml_autograd_running());
    for (const c10::IValue &input : function.inputs()) {
        add_value(begun->marks, input, 0);
    }
    tell(begun->marks);
    return begun;
}

/* The inputs again: between begin and end the operator allocates its outputs, while its
 * inputs must stay. */
void
on_end(const at::RecordFunction &function, at::ObserverContext *context)
{
    if (context == nullptr || forked.load(std::memory_order_relaxed)) {
        return;
    }
    auto *begun = static_cast<operation *>(context);
    if (!is_empty(function)) {
        for (const c10::IValue &output : function.outputs()) {
            add_value(begun->marks, output, 0);
        }
    }
    if (begun->custom) {
        /* Tensors saved by its forward pass are not among its inputs. */
        begun->marks.push_back({0, -1, 0});
    }
    tell(begun->marks);
}

} // namespace

extern "C" {

void
ml_torch_uses_bind(const ml_api *api, const ml_source *source)
{
    bound_api = api;
    bound_source = source;
}

void
ml_torch_uses_listen(int enabled)
{
    /* In a child, a thread that does not exist may hold torch's lock, which protects
     * the copy of a changed list. */
    if (forked.load(std::memory_order_relaxed)) {
        return;
    }
    changed = true;
    try {
        if (enabled && handle == at::INVALID_CALLBACK_HANDLE) {
            handle = at::addGlobalCallback(
                at::RecordFunctionCallback(on_begin, on_end)
                    .needsInputs(true)
                    .needsOutputs(true)
                    .scopes({at::RecordScope::FUNCTION,
                             at::RecordScope::BACKWARD_FUNCTION,
                             at::RecordScope::TORCHSCRIPT_FUNCTION,
                             at::RecordScope::CUSTOM_CLASS}));
        }
        else if (!enabled && handle != at::INVALID_CALLBACK_HANDLE) {
            at::removeCallback(handle);
            handle = at::INVALID_CALLBACK_HANDLE;
        }
    }
    catch (...) {
        /* No memory: no use is known. */
    }
}

void
ml_torch_uses_forked(void)
{
    if (changed) {
        forked.store(true, std::memory_order_relaxed);
    }
}

} /* extern "C" */
