/* Owns the callbacks by which torch reports the memory that an operator uses: the
 * storages of its inputs at its begin and end, and those of its outputs.
 *
 * They exist only while a recording watches uses, because they cost a part of every
 * operator.  They do not see work on a device without a torch operator.  Known cases
 * are reported, so that a last use is never too early: a custom autograd.Function's
 * backward pass, with kernels of its own, and a compiled graph.  They take no lock, yet
 * the allocator's callback must never reach this file. */
/* RecordFunction has no debugging fields in torch's builds.  Without this definition,
 * the header would have them, and other offsets. */
#ifndef NDEBUG
#define NDEBUG 1
#endif

#include <array>
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
#include "sources/callbacks.h"

namespace memlab::uses {

namespace {

const ml_api *bound_api;
const ml_source *bound_source;
at::CallbackHandle of_operators = at::INVALID_CALLBACK_HANDLE;
at::CallbackHandle of_nodes = at::INVALID_CALLBACK_HANDLE;
bool changed; /* whether this has ever changed torch's list of callbacks */
std::atomic<bool> forked{false};

/* Deeper nested lists are ignored: no operator of torch's has any. */
constexpr int most_depth = 3;

using use_marks = c10::SmallVector<ml_use_mark, 8>;

struct operation : at::ObserverContext {
    use_marks marks;
};

struct custom_node : at::ObserverContext {};

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
begins_with(const char *name, const char *start)
{
    return name != nullptr && std::strncmp(name, start, std::strlen(start)) == 0;
}

/* Its output is not yet written: the next writer, perhaps unseen, uses it first. */
bool
is_empty(const char *name)
{
    return begins_with(name, "aten::empty") || begins_with(name, "aten::new_empty");
}

/* Types of torch's own nodes, by address; of two in one place the later stays. */
std::array<std::atomic<const char *>, 256> torch_nodes{};

/* A node of torch's own uses memory by operators alone; those for programs' own functions,
 * in Python or C++, and those of others may run any kernel. */
bool
is_torch_node(const char *type)
{
    return begins_with(type, "N5torch8autograd") &&
           std::strstr(type, "6PyNode") == nullptr &&
           std::strstr(type, "7CppNode") == nullptr;
}

bool
runs_custom()
{
    const char *type = ml_autograd_running();
    if (type == nullptr) {
        return false;
    }
    const uint64_t spread =
        reinterpret_cast<uintptr_t>(type) * UINT64_C(0x9e3779b97f4a7c15);
    std::atomic<const char *> &known = torch_nodes[spread >> 56];
    if (known.load(std::memory_order_relaxed) == type) {
        return false;
    }
    if (!is_torch_node(type)) {
        return true;
    }
    known.store(type, std::memory_order_relaxed);
    return false;
}

std::unique_ptr<at::ObserverContext>
on_begin(const at::RecordFunction &function)
{
    if (forked.load(std::memory_order_relaxed)) {
        return nullptr;
    }
    /* A graph made by torch.compile has kernels of its own. */
    if (begins_with(function.name(), "CompiledFunction")) {
        bound_api->use_unseen(bound_source);
    }
    auto begun = std::make_unique<operation>();
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
    if (!is_empty(function.name())) {
        for (const c10::IValue &output : function.outputs()) {
            add_value(begun->marks, output, 0);
        }
    }
    tell(begun->marks);
}

/* What a node of torch's own uses, its operators use.  Another may use all that its forward
 * pass saved. */
void
tell_all()
{
    const ml_use_mark any = {0, -1, 0};
    bound_api->used(bound_source, &any, 1);
}

std::unique_ptr<at::ObserverContext>
on_node_begin(const at::RecordFunction &)
{
    if (forked.load(std::memory_order_relaxed) || !runs_custom()) {
        return nullptr;
    }
    tell_all();
    return std::make_unique<custom_node>();
}

void
on_node_end(const at::RecordFunction &, at::ObserverContext *context)
{
    if (context != nullptr && !forked.load(std::memory_order_relaxed)) {
        tell_all();
    }
}

void
listen(void)
{
    of_nodes =
        at::addGlobalCallback(at::RecordFunctionCallback(on_node_begin, on_node_end)
                                  .scopes({at::RecordScope::BACKWARD_FUNCTION}));
    of_operators = at::addGlobalCallback(
        at::RecordFunctionCallback(on_begin, on_end)
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::TORCHSCRIPT_FUNCTION,
                     at::RecordScope::CUSTOM_CLASS}));
}

void
forget(at::CallbackHandle &handle)
{
    if (handle != at::INVALID_CALLBACK_HANDLE) {
        at::removeCallback(handle);
        handle = at::INVALID_CALLBACK_HANDLE;
    }
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
    const callbacks::ChangeForAll change;
    try {
        if (enabled && of_nodes == at::INVALID_CALLBACK_HANDLE) {
            listen();
        }
        else if (!enabled) {
            forget(of_operators);
            forget(of_nodes);
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

} // namespace memlab::uses
