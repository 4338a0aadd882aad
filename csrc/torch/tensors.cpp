/* Owns the view of torch's tensors from C: where the storage of a Python tensor lies,
 * and its gradient.  Reads torch's own structures, runs no Python code and takes no
 * reference; it must not know what the answers are for. */
#include <Python.h>

#include <torch/csrc/autograd/python_variable.h>

#include "bridge.h"

namespace {

/* False where TENSOR has no memory of its own: meta, fake, sparse, wrappers. */
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
    out->cuda = device.is_cuda();
    out->device = device.is_cuda() ? device.index() : 0;
    return true;
}

int
storage_of(const void *object, ml_tensor *out) noexcept
{
    try {
        PyObject *tensor = static_cast<PyObject *>(const_cast<void *>(object));
        return look(THPVariable_Unpack(tensor), out);
    }
    catch (...) {
        return 0; /* a tensor that refuses to say where it lies, as fake ones do */
    }
}

int
gradient_of(const void *object, ml_tensor *out) noexcept
{
    try {
        PyObject *tensor = static_cast<PyObject *>(const_cast<void *>(object));
        const at::Tensor &self = THPVariable_Unpack(tensor);
        /* Not Tensor::grad(), which warns at tensors that are no leaves. */
        return self.defined() && look(self.unsafeGetTensorImpl()->grad(), out);
    }
    catch (...) {
        return 0;
    }
}

const ml_tensors table = {sizeof(ml_tensors), ML_ABI_VERSION, storage_of, gradient_of};

} // namespace

const ml_tensors *
ml_tensors_table(void)
{
    return &table;
}
