/* Owns the view of the references of torch's C++ objects: from a Python tensor or node
 * to its autograd graph, and along the graph to saved tensors, next nodes, gradients,
 * bases of views and hooks.  Runs no Python code and no unpack hook, and waits for no
 * lock: a running node holds its own and is skipped.
 *
 * Only this file includes torch's Python headers.  Only this file and autograd.cpp
 * include autograd's.  They take longer to compile than all of memlab; graph.h has what
 * other files need of them.
 *
 * C++ has no list of a node's saved tensors.  The getters of torch's Python types of
 * nodes know them.  They read only the node of their object, so they are called with an
 * object on the stack here.  A wrapper made by torch would stay with its node. */
#include <Python.h>

#include <cstring>
#include <mutex>
#include <string>
#include <typeinfo>
#include <unordered_map>

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/python_function.h>
#include <torch/csrc/autograd/python_hook.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/version.h>

#include "bridge.h"
#include "objects/graph.h"
#include "objects/objects.h"

namespace {

using torch::autograd::InputMetadata;
using torch::autograd::Node;
using torch::autograd::SavedVariable;

using node_ptr = decltype(torch::autograd::Edge::function);

PyObject *
as_object(const void *thing)
{
    return static_cast<PyObject *>(const_cast<void *>(thing));
}

/* Types are compared by name, because torch does not export all their typeinfos. */
template <typename Any>
bool
is(const Any &object, const char *mangled)
{
    return std::strcmp(typeid(object).name(), mangled) == 0;
}

constexpr char PY_NODE[] = "N5torch8autograd6PyNodeE";
constexpr char ACCUMULATE[] = "N5torch8autograd14AccumulateGradE";
constexpr char COPY_SLICES[] = "N5torch8autograd10CopySlicesE";
constexpr char TENSOR_HOOK[] = "N5torch8autograd23PyFunctionTensorPreHookE";
constexpr char PRE_HOOK[] = "N5torch8autograd17PyFunctionPreHookE";
constexpr char POST_HOOK[] = "N5torch8autograd18PyFunctionPostHookE";
constexpr char GRAD_HOOK[] = "N5torch8autograd32PyFunctionTensorPostAccGradHooksE";

/* Only classes derived from Node can name a node's lock. */
struct node_lock : Node {
    static std::mutex &of(Node &node)
    {
        return node.*(&node_lock::mutex_);
    }
};

/* The saved tensor without its unpack hook.  Newer versions of torch have a method for
 * it. */
template <typename Saved>
auto
raw_data(const Saved &saved, int) -> decltype(saved.get_raw_data())
{
    return saved.get_raw_data();
}

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 11
/* An explicit instantiation may name a private member. */
struct saved_data {
    using type = at::Tensor SavedVariable::*;
    friend type member_of(saved_data);
};

template <typename Tag, typename Tag::type Member> struct open_member {
    friend typename Tag::type member_of(Tag)
    {
        return Member;
    }
};

template struct open_member<saved_data, &SavedVariable::data_>;

template <typename Saved>
std::optional<at::Tensor>
raw_data(const Saved &saved, long)
{
    return saved.*member_of(saved_data());
}
#endif

/* The result of a pack hook, borrowed; NULL: no hook, or this torch does not reveal
 * it. */
template <typename Saved>
auto
packed_data(const Saved &saved, int)
    -> decltype(saved.retrieve_unpack_hook_data(), static_cast<PyObject *>(nullptr))
{
    const auto hook = saved.retrieve_unpack_hook_data();
    return hook ? hook->second.ptr(nullptr) : nullptr;
}

template <typename Saved>
PyObject *
packed_data(const Saved &, long)
{
    return nullptr;
}

/* Keeps what it has returned, because autograd's threads release nodes without the
 * GIL. */
struct walk {
    std::unordered_map<const void *, node_ptr> nodes;
    std::unordered_map<const void *, at::Tensor> tensors;
    const ml_types types = ml_types_find();
    ml_graph_visitor visit = nullptr;
    void *context = nullptr;
    bool stopped = false;
};

void
tell(walk *w, const ml_graph_edge &edge)
{
    w->stopped = w->stopped || w->visit(w->context, &edge) != 0;
}

void
tell_object(walk *w, PyObject *object, const char *name, int64_t index = -1)
{
    if (object != nullptr) {
        tell(w, {ML_GRAPH_OBJECT, object, nullptr, 0, name, index});
    }
}

void
tell_node(walk *w, const node_ptr &node, const char *name, int64_t index = -1)
{
    if (node) {
        w->nodes.emplace(node.get(), node);
        tell(w, {ML_GRAPH_NODE, node.get(), nullptr, 0, name, index});
    }
}

void
tell_tensor(walk *w, const at::Tensor &tensor, const char *name, int64_t index = -1)
{
    if (!tensor.defined()) {
        return;
    }
    const void *impl = tensor.unsafeGetTensorImpl();
    /* Counted before it is kept. */
    const int64_t uses = static_cast<int64_t>(tensor.use_count());
    w->tensors.emplace(impl, tensor);
    tell(w, {ML_GRAPH_TENSOR, impl, ml_storage_identity(tensor), uses, name, index});
}

/* COPY is a reference that is not the program's. */
void
tell_copy(walk *w, const at::Tensor &copy, const char *name, int64_t index = -1)
{
    if (copy.defined()) {
        const void *impl = copy.unsafeGetTensorImpl();
        const int64_t uses = static_cast<int64_t>(copy.use_count()) - 1;
        w->tensors.emplace(impl, copy);
        tell(w, {ML_GRAPH_TENSOR, impl, ml_storage_identity(copy), uses, name, index});
    }
}

void
tell_saved(walk *w, const SavedVariable &saved, const char *name, int64_t index = -1)
{
    if (saved.has_hooks()) {
        tell_object(w, packed_data(saved, 0), name, index);
        return;
    }
    const std::optional<at::Tensor> data = raw_data(saved, 0);
    if (data) {
        tell_copy(w, *data, name, index);
    }
}

/* ---- Nodes ---- */

/* OBJECT was made by pybind for a SavedVariable, and points to it. */
void
tell_saved_object(walk *w, PyObject *object, const char *name, int64_t index)
{
    const auto *instance = reinterpret_cast<pybind11::detail::instance *>(object);
    if (std::strcmp(Py_TYPE(object)->tp_name, "torch._C._autograd.SavedTensor") == 0 &&
        instance->simple_layout) {
        const void *saved = instance->simple_value_holder[0];
        tell_saved(w, *static_cast<const SavedVariable *>(saved), name, index);
    }
}

constexpr char RAW[] = "_raw_saved_";

void
read_saved(walk *w, const PyGetSetDef *entry, PyObject *wrapper)
{
    const char *name = entry->name + sizeof(RAW) - 1;
    PyObject *saved = entry->get(wrapper, entry->closure);
    if (saved == nullptr) {
        PyErr_Clear(); /* released by a backward pass */
        return;
    }
    if (PyTuple_Check(saved)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(saved); i++) {
            tell_saved_object(w, PyTuple_GET_ITEM(saved, i), name, i);
        }
    }
    else if (saved != Py_None) {
        tell_saved_object(w, saved, name, -1);
    }
    Py_DECREF(saved);
}

void
saved_by(walk *w, Node &node)
{
    const std::string name = node.name();
    PyTypeObject *type = ml_type_of_node(w->types, name.c_str());
    if (type == nullptr) {
        return;
    }
    std::unique_lock<std::mutex> lock(node_lock::of(node), std::try_to_lock);
    if (!lock.owns_lock()) {
        return;
    }
    const auto kept = w->nodes.find(&node);
    if (kept == w->nodes.end()) {
        return;
    }
    alignas(torch::autograd::THPCppFunction) unsigned char
        room[sizeof(torch::autograd::THPCppFunction)] = {};
    auto *wrapper = reinterpret_cast<torch::autograd::THPCppFunction *>(room);
    new (&wrapper->cdata) node_ptr(kept->second);
    reinterpret_cast<PyObject *>(wrapper)->ob_type = type;
    const PyGetSetDef *entry = type->tp_getset;
    for (; entry != nullptr && entry->name != nullptr; entry++) {
        if (std::strncmp(entry->name, RAW, sizeof(RAW) - 1) == 0) {
            read_saved(w, entry, reinterpret_cast<PyObject *>(wrapper));
        }
    }
    wrapper->cdata.~node_ptr();
}

void
saved_by_function(walk *w, PyObject *function)
{
    const auto *self = reinterpret_cast<THPFunction *>(function);
    int64_t i = 0;
    for (const SavedVariable &saved : self->saved_variables) {
        tell_saved(w, saved, "saved_tensors", i++);
    }
}

template <typename Function>
auto
function_of(const Function &node, int) -> decltype(node.obj)
{
    return node.obj;
}

template <typename Function>
PyObject *
function_of(const Function &node, long)
{
    return node.pyobj();
}

/* The dicts of the HOOKS whose type has the name MANGLED, which is Known. */
template <typename Known, typename Hooks>
void
tell_hooks(walk *w, const Hooks &hooks, const char *mangled, const char *name)
{
    for (const auto &hook : hooks) {
        if (is(*hook, mangled)) {
            tell_object(w, static_cast<Known &>(*hook).dict, name);
        }
    }
}

void
hooks_of(walk *w, Node &node)
{
    using namespace torch::autograd;
    tell_hooks<PyFunctionTensorPreHook>(w, node.tensor_pre_hooks(), TENSOR_HOOK,
                                        "_backward_hooks");
    tell_hooks<PyFunctionPreHook>(w, node.pre_hooks(), PRE_HOOK, "pre_hooks");
    tell_hooks<PyFunctionPostHook>(w, node.post_hooks(), POST_HOOK, "post_hooks");
}

void
from_node(walk *w, Node &node)
{
    int64_t i = 0;
    if (is(node, PY_NODE)) {
        /* It is this object that has saved. */
        tell_object(w, function_of(static_cast<torch::autograd::PyNode &>(node), 0),
                    "function");
    }
    else if (is(node, ACCUMULATE)) {
        tell_tensor(w, static_cast<torch::autograd::AccumulateGrad &>(node).variable,
                    "variable");
    }
    else {
        if (is(node, COPY_SLICES)) {
            tell_node(w, static_cast<torch::autograd::CopySlices &>(node).fn, "fn");
        }
        saved_by(w, node);
    }
    for (const auto &edge : node.next_edges()) {
        tell_node(w, edge.function, "next_functions", i++);
    }
    hooks_of(w, node);
}

/* ---- Tensors ---- */

void
gradient_of(walk *w, const torch::autograd::AutogradMeta *meta)
{
    /* A backward pass may be writing it, under its node's lock. */
    const auto accumulator = meta->grad_accumulator_.lock();
    std::unique_lock<std::mutex> lock;
    if (accumulator) {
        lock =
            std::unique_lock<std::mutex>(node_lock::of(*accumulator), std::try_to_lock);
    }
    if (!accumulator || lock.owns_lock()) {
        tell_tensor(w, meta->grad_, "grad");
    }
}

/* Parts of a sparse tensor, which has no storage. */
void
parts_of(walk *w, c10::TensorImpl *impl)
{
    /* A subclass may use these dispatch keys itself. */
    if (!impl->is_python_dispatch()) {
        ml_visit_components(*impl, [w](const char *name, const at::Tensor &component) {
            tell_copy(w, component, name);
        });
    }
}

void
from_tensor(walk *w, const at::TensorBase &tensor)
{
    parts_of(w, tensor.unsafeGetTensorImpl());
    namespace impl = torch::autograd::impl;
    const auto *meta = impl::get_autograd_meta(tensor);
    if (meta == nullptr) {
        return;
    }
    tell_node(w, meta->grad_fn_, "grad_fn");
    gradient_of(w, meta);
    const auto *view = impl::get_view_autograd_meta(tensor);
    if (view != nullptr && view->has_bw_view()) {
        tell_tensor(w, view->get_backward_view().base_, "_base");
    }
    tell_hooks<torch::autograd::PyFunctionTensorPreHook>(w, meta->hooks_, TENSOR_HOOK,
                                                         "_backward_hooks");
    const auto &after = meta->post_acc_grad_hooks_;
    if (after && is(*after, GRAD_HOOK)) {
        using Known = torch::autograd::PyFunctionTensorPostAccGradHooks;
        tell_object(w, static_cast<Known &>(*after).dict,
                    "_post_accumulate_grad_hooks");
    }
}

/* ---- Accumulators ---- */

template <class Kept>
std::weak_ptr<Kept>
weakly(const std::shared_ptr<Kept> &node)
{
    return node;
}

template <class Kept>
c10::weak_intrusive_ptr<Kept>
weakly(const c10::intrusive_ptr<Kept> &node)
{
    return c10::weak_intrusive_ptr<Kept>(node);
}

/* The node that accumulates TENSOR's gradient, or NULL. */
node_ptr
accumulator_of(const at::Tensor &tensor)
{
    const node_ptr node = torch::autograd::impl::try_get_grad_accumulator(tensor);
    return node != nullptr && node->num_inputs() == 1 ? node : node_ptr();
}

/* Its members are constant, so the metadata is constructed anew in place. */
void
set_metadata(Node &node, const InputMetadata &metadata)
{
    InputMetadata copy(metadata);
    InputMetadata *place = &node.mutable_input_metadata(0);
    place->~InputMetadata();
    new (place) InputMetadata(std::move(copy));
}

/* ---- The table ---- */

void *
begin() noexcept
{
    try {
        return new walk;
    }
    catch (...) {
        return nullptr;
    }
}

void
end(void *context) noexcept
{
    delete static_cast<walk *>(context);
}

int
classify(const void *context, const void *type) noexcept
{
    return ml_classify(static_cast<const walk *>(context)->types, type);
}

void
from_object(walk *w, int what, PyObject *object)
{
    if (what == ML_GRAPH_IS_TENSOR) {
        const at::Tensor &tensor = THPVariable_Unpack(object);
        if (tensor.defined()) {
            tell(w, {ML_GRAPH_TENSOR, tensor.unsafeGetTensorImpl(),
                     ml_storage_identity(tensor),
                     static_cast<int64_t>(tensor.use_count()), nullptr, -1});
            w->tensors.emplace(tensor.unsafeGetTensorImpl(), tensor);
        }
        const auto *self = reinterpret_cast<THPVariable *>(object);
        tell_object(w, self->backward_hooks, "_backward_hooks");
        tell_object(w, self->post_accumulate_grad_hooks, "_post_accumulate_grad_hooks");
    }
    else if (what == ML_GRAPH_IS_NODE) {
        tell_node(w, reinterpret_cast<torch::autograd::THPCppFunction *>(object)->cdata,
                  nullptr);
    }
    else if (what == ML_GRAPH_IS_FUNCTION) {
        saved_by_function(w, object);
    }
}

int
references(void *context, int kind, int what, const void *thing, ml_graph_visitor visit,
           void *visit_context) noexcept
{
    auto *w = static_cast<walk *>(context);
    w->visit = visit;
    w->context = visit_context;
    w->stopped = false;
    try {
        if (kind == ML_GRAPH_OBJECT) {
            from_object(w, what, as_object(thing));
        }
        else if (kind == ML_GRAPH_NODE) {
            /* Returned by this walk earlier, which keeps it. */
            from_node(w, *w->nodes.at(thing));
        }
        else {
            /* A copy, because the table grows meanwhile. */
            from_tensor(w, w->tensors.at(thing));
        }
    }
    catch (const std::bad_alloc &) {
        return ML_ENOMEM;
    }
    catch (...) {
        /* An object that raises is left out; its references count as not found. */
    }
    return w->stopped ? 1 : 0;
}

void
name_node(const void *context, const void *thing, char *text, size_t capacity) noexcept
{
    try {
        const auto *w = static_cast<const walk *>(context);
        Node &node = *w->nodes.at(thing);
        std::string name;
        if (is(node, PY_NODE)) {
            PyObject *function =
                function_of(static_cast<torch::autograd::PyNode &>(node), 0);
            name = function != nullptr ? Py_TYPE(function)->tp_name : "PyNode";
        }
        else {
            name = node.name();
            name.erase(0, name.rfind(':') + 1);
        }
        std::strncpy(text, name.c_str(), capacity - 1);
        text[capacity - 1] = '\0';
    }
    catch (...) {
        text[0] = '\0';
    }
}

const ml_graph graph_table = {sizeof(ml_graph), ML_ABI_VERSION, begin,     end,
                              classify,         references,     name_node, ml_identity};

} // namespace

struct ml_accumulator {
    decltype(weakly(node_ptr())) node;
    InputMetadata metadata;
};

std::shared_ptr<const ml_accumulator>
ml_accumulator_of(const at::TensorBase &tensor)
{
    const node_ptr node = accumulator_of(at::Tensor(tensor));
    return node != nullptr ? std::shared_ptr<ml_accumulator>(new ml_accumulator{
                                 weakly(node), node->input_metadata(0)})
                           : nullptr;
}

void
ml_accumulator_follow(const at::TensorBase &tensor,
                      const ml_accumulator *before) noexcept
{
    try {
        const node_ptr node = accumulator_of(at::Tensor(tensor));
        if (node != nullptr) {
            const bool same = before != nullptr && before->node.lock() == node;
            set_metadata(*node,
                         same ? before->metadata : InputMetadata(at::Tensor(tensor)));
        }
    }
    catch (...) {
    }
}

bool
ml_visit_components(c10::TensorImpl &tensor, const ml_component_visitor &visit)
{
    if (const auto *sparse = dynamic_cast<at::SparseTensorImpl *>(&tensor)) {
        visit("_indices()", sparse->indices());
        visit("_values()", sparse->values());
        return true;
    }
    auto *sparse = dynamic_cast<at::SparseCsrTensorImpl *>(&tensor);
    if (sparse == nullptr) {
        return false;
    }
    const c10::Layout layout = sparse->layout();
    const bool rows = layout == c10::kSparseCsr || layout == c10::kSparseBsr;
    visit(rows ? "crow_indices()" : "ccol_indices()",
          at::Tensor(sparse->compressed_indices()));
    visit(rows ? "col_indices()" : "row_indices()",
          at::Tensor(sparse->plain_indices()));
    visit("values()", at::Tensor(sparse->values()));
    return true;
}

const at::TensorBase &
ml_tensor_of(const void *object)
{
    return THPVariable_Unpack(as_object(object));
}

const c10::Storage &
ml_storage_of(const void *object)
{
    return THPStorage_Unpack(as_object(object));
}

const ml_graph *
ml_graph_table(void)
{
    return &graph_table;
}
