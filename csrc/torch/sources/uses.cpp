/* Owns the callback by which torch tells which memory an operator uses: the storages of
 * its inputs when it begins and again when it ends, and those of its outputs.
 *
 * It is there only while a recording wants to know of uses, for it costs a part of every
 * operator.  What runs on a device without an operator of torch's is not seen; where that
 * is known to happen (a custom autograd.Function's backward pass, whose kernels may be
 * anybody's; a compiled graph) it says so, so that a last use is never told too early.
 * Telling takes no lock, yet nothing here may be reached from the allocator's callback. */
/* A RecordFunction of torch's builds has no fields for debugging; with them, and without this,
 * the header's would lie elsewhere. */
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

/* Lists within lists are followed no deeper: no operator of torch's has any. */
constexpr int most_depth = 3;

using use_marks = c10::SmallVector<ml_use_mark, 8>;

struct operation : at::ObserverContext {
    use_marks marks;
    bool custom = false; /* its kernels may be anybody's */
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
    /* The allocator's own have the block itself as their context. */
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

/* Its output has not been written yet: whoever does that, perhaps unseen, uses it first. */
bool
is_empty(const at::RecordFunction &function)
{
    return begins_with(function, "aten::empty") ||
           begins_with(function, "aten::new_empty");
}

/* A graph that torch.compile made has kernels of its own. */
bool
is_compiled(const at::RecordFunction &function)
{
    return begins_with(function, "CompiledFunction");
}

/* Of the classes of nodes that programs make, in Python or C++. */
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

/* Again what it began with: between the two the operator allocates its outputs, while its
 * inputs must still be there. */
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
        /* What it kept of its forward pass is nowhere among its inputs. */
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
    /* In a child torch's own lock may be held by a thread that is not there and copies the
     * list that was changed. */
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
        /* No memory for it: no use is known. */
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
