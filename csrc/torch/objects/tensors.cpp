/* Owns the view of torch's tensors from C: a Python tensor's storage, its components
 * and its gradient.  Reads torch's own structures and runs no Python code. */
#include <Python.h>

#include <cstring>
#include <string>

#include <ATen/NestedTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>

#include "bridge.h"
#include "objects/graph.h"
#include "objects/objects.h"
#include "objects/tensor_fields.h"

namespace {

/* False if TENSOR has no memory of its own: meta, fake, sparse, wrappers. */
bool
look(const at::TensorBase &tensor, ml_tensor *out)
{
    if (!tensor.defined() || !tensor.has_storage()) {
        return false;
    }
    const c10::Storage &storage = tensor.storage();
    const void *data = storage.data();
    const c10::Device device = storage.device();
    if (data == nullptr || !(device.is_cuda() || device.is_cpu())) {
        return false;
    }
    out->addr = reinterpret_cast<uint64_t>(data);
    out->bytes = storage.nbytes();
    out->storage = reinterpret_cast<uint64_t>(storage.unsafeGetStorageImpl());
    out->cuda = device.is_cuda();
    out->device = device.is_cuda() ? device.index() : 0;
    return true;
}

int
storage_of(const void *object, ml_tensor *out) noexcept
{
    try {
        return look(ml_tensor_of(object), out);
    }
    catch (...) {
        return 0; /* a tensor that raises, such as a fake one */
    }
}

int
gradient_of(const void *object, ml_tensor *out) noexcept
{
    try {
        const at::TensorBase &self = ml_tensor_of(object);
        /* Tensor::grad() would warn about tensors that are no leaves. */
        return self.defined() && look(self.unsafeGetTensorImpl()->grad(), out);
    }
    catch (...) {
        return 0;
    }
}

/* ---- Cache misses ---- */

/* Of each object what its fields above are in: a heap's blocks begin within a line. */
void
fetch(const void *object)
{
    __builtin_prefetch(object);
    __builtin_prefetch(static_cast<const char *>(object) + 63);
}

void
fetch_storages(c10::TensorImpl *const *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fetch(ml_tensor_fields::storage(*tensors[i]).unsafeGetStorageImpl());
    }
}

void
fetch_all(const void *const *objects, size_t count, int gradients) noexcept
{
    c10::TensorImpl *tensors[ML_FETCHED];
    try {
        for (size_t i = 0; i < count; i++) {
            tensors[i] = ml_tensor_of(objects[i]).unsafeGetTensorImpl();
            fetch(tensors[i]);
        }
        for (size_t i = 0; gradients != 0 && i < count; i++) {
            fetch(tensors[i]->autograd_meta());
        }
        fetch_storages(tensors, count);
        for (size_t i = 0; gradients != 0 && i < count; i++) {
            tensors[i] = tensors[i]->grad().unsafeGetTensorImpl();
            fetch(tensors[i]);
        }
        if (gradients != 0) {
            fetch_storages(tensors, count);
        }
    }
    catch (...) {
        /* Who asks for one waits for it. */
    }
}

/* ---- Parts ---- */

/* The Python object of a tensor, borrowed; from torch 2.11 on, and before. */
template <class Impl>
auto
own_object(Impl &impl, int) -> decltype(impl.pyobj_slot()->load_pyobj())
{
    return impl.pyobj_slot()->load_pyobj();
}

template <class Impl>
PyObject *
own_object(Impl &impl, long)
{
    return impl.pyobj_slot()->_unchecked_untagged_pyobj();
}

class Visit {
  public:
    Visit(ml_tensor_visitor visit, void *context) : visit_(visit), context_(context)
    {
    }

    /* Visits TENSOR, reached by SUFFIX, and its gradient.  OBJECT: its own, if known.
     * Returns the visitor's non-zero result, or 0. */
    int whole(const at::TensorBase &tensor, const std::string &suffix, PyObject *object)
    {
        if (!tensor.defined()) {
            return 0;
        }
        const int stopped = components(tensor, suffix, object);
        const at::Tensor &gradient = tensor.unsafeGetTensorImpl()->grad();
        return stopped == 0 && gradient.defined()
                   ? whole(gradient, suffix + ".grad", nullptr)
                   : stopped;
    }

  private:
    ml_tensor_visitor visit_;
    void *context_;
    uint64_t whole_ = 0; /* the tensor whose components are visited */

    /* Whether a tensor may have components.  Only these kinds have the dispatch keys,
     * which are cheaper to test than the type. */
    static bool may_consist(const c10::TensorImpl &impl)
    {
        const c10::DispatchKeySet keys = impl.key_set();
        return keys.has(c10::DispatchKey::Sparse) ||
               keys.has(c10::DispatchKey::SparseCsr) ||
               keys.has(c10::DispatchKey::Quantized) ||
               keys.has(c10::DispatchKey::NestedTensor);
    }

    int components(const at::TensorBase &tensor, const std::string &suffix,
                   PyObject *object)
    {
        c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
        whole_ = reinterpret_cast<uint64_t>(impl);
        if (!may_consist(*impl)) {
            return one(tensor, suffix, object);
        }
        /* A subclass may use any of these dispatch keys itself. */
        int stopped = 0;
        if (!impl->is_python_dispatch() &&
            ml_visit_components(*impl, [&](const char *name, const at::Tensor &part) {
                stopped = stopped != 0 ? stopped
                                       : one(part, suffix + attribute(name), nullptr);
            })) {
            return stopped;
        }
        stopped = one(tensor, suffix, object);
        if (stopped != 0) {
            return stopped;
        }
        if (auto *nested = dynamic_cast<at::native::NestedTensorImpl *>(impl)) {
            stopped =
                both(nested->get_nested_sizes(), suffix + "._nested_tensor_size",
                     nested->get_nested_strides(), suffix + "._nested_tensor_strides");
            return stopped != 0
                       ? stopped
                       : one(nested->get_storage_offsets(),
                             suffix + "._nested_tensor_storage_offsets", nullptr);
        }
        if (auto *quantized = dynamic_cast<at::QTensorImpl *>(impl)) {
            auto quantizer = dynamic_cast<at::PerChannelAffineQuantizer *>(
                quantized->quantizer().get());
            if (quantizer != nullptr) {
                return both(quantizer->scales(), suffix + ".q_per_channel_scales",
                            quantizer->zero_points(),
                            suffix + ".q_per_channel_zero_points");
            }
        }
        return 0;
    }

    /* ".values" of "values()" */
    static std::string attribute(const std::string &method)
    {
        return "." + method.substr(0, method.size() - 2);
    }

    int both(const at::TensorBase &first, const std::string &first_suffix,
             const at::TensorBase &second, const std::string &second_suffix)
    {
        const int stopped = one(first, first_suffix, nullptr);
        return stopped != 0 ? stopped : one(second, second_suffix, nullptr);
    }

    int one(const at::TensorBase &tensor, const std::string &suffix, PyObject *object)
    {
        if (!tensor.defined()) {
            return 0;
        }
        c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
        ml_tensor_part part = {};
        part.suffix = suffix.c_str();
        part.object = object;
        part.impl = reinterpret_cast<uint64_t>(impl);
        part.whole = whole_;
        int64_t flat = 0;
        measure(*impl, &part, &flat);
        const c10::Device device = place(*impl, &part);
        const std::string type = c10::DeviceTypeName(device.type(), true);
        part.device_type = type.c_str();
        part.device_number = static_cast<int>(device.type());
        part.device = device.has_index() ? device.index() : 0;
        if (impl->requires_grad()) {
            part.flags |= tensor.is_leaf() ? ML_TENSOR_LEAF : ML_TENSOR_RESULT;
        }
        if (impl->is_python_dispatch() && part.addr == 0 && !device.is_meta()) {
            part.flags |= ML_TENSOR_WRAPPER;
            part.object = object != nullptr ? object : own_object(*impl, 0);
        }
        return visit_(context_, &part);
    }

    /* Elements and sizes, without Python: a subclass's methods are not called. */
    static void measure(c10::TensorImpl &impl, ml_tensor_part *part, int64_t *flat)
    {
        auto *nested = may_consist(impl)
                           ? dynamic_cast<at::native::NestedTensorImpl *>(&impl)
                           : nullptr;
        if (nested != nullptr) {
            *flat = static_cast<int64_t>(nested->get_buffer_size());
            part->sizes = flat;
            part->dims = 1;
            part->numel = static_cast<uint64_t>(*flat);
        }
        else if (!impl.has_symbolic_sizes_strides()) {
            const c10::IntArrayRef sizes = impl.sizes_default();
            part->sizes = sizes.data();
            part->dims = sizes.size();
            part->numel = static_cast<uint64_t>(impl.numel_default());
        }
    }

    static c10::Device place(c10::TensorImpl &impl, ml_tensor_part *part)
    {
        if (!impl.has_storage()) {
            return impl.is_python_dispatch() ? c10::Device(c10::kCPU) : impl.device();
        }
        const c10::Storage &storage = impl.storage();
        part->storage = reinterpret_cast<uint64_t>(storage.unsafeGetStorageImpl());
        part->addr = reinterpret_cast<uint64_t>(storage.data());
        part->bytes = part->addr != 0 ? storage.nbytes() : 0;
        return storage.device();
    }
};

int
parts_of(const void *object, ml_tensor_visitor visit, void *context) noexcept
{
    try {
        PyObject *self = static_cast<PyObject *>(const_cast<void *>(object));
        return Visit(visit, context).whole(ml_tensor_of(object), "", self);
    }
    catch (...) {
        return 0;
    }
}

/* ---- Marks ---- */

/* A tensor keeps its version counter for life and shares it with its views.  While a
 * mark holds the counter, no other counter has its address. */
using Mark = c10::VariableVersion;
static_assert(sizeof(Mark) == sizeof(void *), "a version is a pointer to its counter");

/* NULL: OBJECT is no tensor.  isinstance() would run the program's code. */
const Mark *
mark_in(const void *object)
{
    static const ml_types types = ml_types_find();
    const PyTypeObject *type = Py_TYPE(static_cast<const PyObject *>(object));
    return ml_classify(types, type) == ML_GRAPH_IS_TENSOR
               ? &ml_tensor_of(object).unsafeGetTensorImpl()->version_counter()
               : nullptr;
}

void *
mark_of(const void *object) noexcept
{
    try {
        const Mark *mark = mark_in(object);
        return mark != nullptr && mark->enabled() ? new Mark(*mark) : nullptr;
    }
    catch (...) {
        return nullptr;
    }
}

int
marked_with(const void *object, const void *mark) noexcept
{
    const Mark *own = mark_in(object);
    return own != nullptr && std::memcmp(own, mark, sizeof(Mark)) == 0;
}

void
release_mark(void *mark) noexcept
{
    delete static_cast<Mark *>(mark);
}

const ml_tensors tensors_table = {
    sizeof(ml_tensors), ML_ABI_VERSION, storage_of,  gradient_of,  fetch_all,
    parts_of,           mark_of,        marked_with, release_mark,
};

} // namespace

const ml_tensors *
ml_tensors_table(void)
{
    return &tensors_table;
}
