/* See objects.h. */
#include "objects/objects.h"

#include <torch/version.h>

#include "objects/graph.h"

namespace {

PyTypeObject *
as_type(PyObject *object)
{
    return object != nullptr && PyType_Check(object)
               ? reinterpret_cast<PyTypeObject *>(object)
               : nullptr;
}

bool
derives(const void *type, PyObject *base)
{
    return as_type(base) != nullptr &&
           PyType_IsSubtype(static_cast<PyTypeObject *>(const_cast<void *>(type)),
                            as_type(base));
}

PyObject *
item(PyObject *module, const char *name)
{
    PyObject *dict = module != nullptr && PyModule_Check(module)
                         ? PyModule_GetDict(module)
                         : nullptr;
    return dict != nullptr ? PyDict_GetItemString(dict, name) : nullptr;
}

/* Number of C++ references to the Python object of IMPL, a tensor or storage with USES
 * references. */
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 10
template <typename Impl>
int64_t
kept_by_torch(Impl *impl, int64_t)
{
    return impl->pyobj_slot()->owns_pyobj() ? 1 : 0;
}
#else
template <typename Impl>
int64_t
kept_by_torch(Impl *, int64_t uses)
{
    return uses > 1 ? 1 : 0;
}
#endif

int
identity_of_tensor(const at::TensorBase &tensor, ml_graph_identity *out)
{
    if (!tensor.defined()) {
        return 0;
    }
    out->tensor = tensor.unsafeGetTensorImpl();
    out->storage = ml_storage_identity(tensor);
    out->tensor_uses = static_cast<int64_t>(tensor.use_count());
    out->kept = kept_by_torch(tensor.unsafeGetTensorImpl(), out->tensor_uses);
    out->storage_uses =
        tensor.has_storage() ? static_cast<int64_t>(tensor.storage().use_count()) : 0;
    return 1;
}

int
identity_of_storage(const c10::Storage &storage, ml_graph_identity *out)
{
    out->storage = storage.unsafeGetStorageImpl();
    out->storage_uses = static_cast<int64_t>(storage.use_count());
    out->kept = kept_by_torch(storage.unsafeGetStorageImpl(), out->storage_uses);
    return out->storage != nullptr;
}

} // namespace

ml_types
ml_types_find() noexcept
{
    ml_types types = {};
    PyObject *core = PyDict_GetItemString(PyImport_GetModuleDict(), "torch._C");
    PyObject *functions = item(core, "_functions");
    types.tensor = item(core, "TensorBase");
    types.storage = item(core, "StorageBase");
    types.function = item(core, "_FunctionBase");
    if (functions != nullptr && PyModule_Check(functions)) {
        types.nodes = PyModule_GetDict(functions);
        const PyTypeObject *node = ml_type_of_node(types, "AccumulateGrad");
        types.traverse = node != nullptr ? node->tp_traverse : nullptr;
    }
    return types;
}

int
ml_classify(const ml_types &types, const void *type) noexcept
{
    if (derives(type, types.tensor)) {
        return ML_GRAPH_IS_TENSOR;
    }
    if (derives(type, types.function)) {
        return ML_GRAPH_IS_FUNCTION;
    }
    const auto *known = static_cast<const PyTypeObject *>(type);
    if (types.traverse != nullptr && known->tp_traverse == types.traverse) {
        return ML_GRAPH_IS_NODE;
    }
    return derives(type, types.storage) ? ML_GRAPH_IS_STORAGE : ML_GRAPH_IS_NOTHING;
}

PyTypeObject *
ml_type_of_node(const ml_types &types, const char *name) noexcept
{
    return types.nodes != nullptr ? as_type(PyDict_GetItemString(types.nodes, name))
                                  : nullptr;
}

const void *
ml_storage_identity(const at::TensorBase &tensor)
{
    try {
        return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
    }
    catch (const c10::Error &) {
        return nullptr; /* a tensor that raises, such as a fake one */
    }
}

int
ml_identity(const void *object, int what, ml_graph_identity *out) noexcept
{
    try {
        *out = {};
        if (what == ML_GRAPH_IS_TENSOR) {
            return identity_of_tensor(ml_tensor_of(object), out);
        }
        if (what == ML_GRAPH_IS_STORAGE) {
            return identity_of_storage(ml_storage_of(object), out);
        }
        return 0;
    }
    catch (...) {
        return 0;
    }
}
