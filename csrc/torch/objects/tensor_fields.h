/* Private fields of a tensor, and the tensors that belong to it.
 *
 * Owns how they are reached.  C++. */
#ifndef ML_TENSOR_FIELDS_H
#define ML_TENSOR_FIELDS_H

#include <optional>

#include <ATen/core/TensorBase.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

struct ml_tensor_fields : c10::TensorImpl {
    static c10::Storage &storage(c10::TensorImpl &tensor)
    {
        return tensor.*(&ml_tensor_fields::storage_);
    }
    static std::optional<c10::Device> &device(c10::TensorImpl &tensor)
    {
        return tensor.*(&ml_tensor_fields::device_opt_);
    }
};

inline c10::intrusive_ptr<c10::StorageImpl>
ml_own_storage(const c10::Storage &storage)
{
    return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
        storage.unsafeGetStorageImpl());
}

inline const at::DataPtr &
ml_storage_data(c10::StorageImpl &storage)
{
    /* Bypasses the checks, which copy copy-on-write data. */
    return storage._mutable_data_ptr_no_checks();
}

inline bool
ml_is_on(c10::TensorImpl &tensor, c10::DeviceType type)
{
    const std::optional<c10::Device> &device = ml_tensor_fields::device(tensor);
    return device.has_value() && device->type() == type;
}

#endif
